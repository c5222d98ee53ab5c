#include "net/message_buffer.h"

#include <pthread.h>
#include <stdlib.h>
#include <uv.h>

#include "base/clock.h"

struct kin_message_pool {
    pthread_mutex_t mutex;
    kin_message_buffer *all; // [n]
    kin_message_buffer *free_ones;
    int n, n_free;
};

int kin_message_pool_open(kin_message_pool **out, int n, kin_err *err) {
    *out = NULL;
    kin_message_pool *p = calloc(1, sizeof *p);
    if (p) p->all = calloc((size_t)n, sizeof *p->all);
    if (!p || !p->all) {
        free(p);
        return kin_err_set(err, "out of memory");
    }
    pthread_mutex_init(&p->mutex, NULL);
    p->n = p->n_free = n;
    for (int i = 0; i < n; i++) {
        p->all[i].next = p->free_ones;
        p->free_ones = &p->all[i];
    }
    *out = p;
    return 0;
}

void kin_message_pool_close(kin_message_pool *p) {
    if (!p) return;
    kin_assert(p->n_free == p->n);
    for (int i = 0; i < p->n; i++) free(p->all[i].payload);
    pthread_mutex_destroy(&p->mutex);
    free(p->all);
    free(p);
}

bool kin_message_buffer_grow(kin_message_buffer *buffer, size_t n) {
    if (n <= buffer->cap) return true;
    uint8_t *payload = realloc(buffer->payload, n);
    if (!payload) return false;
    buffer->payload = payload;
    buffer->cap = n;
    return true;
}

kin_message_buffer *kin_message_pool_get(kin_message_pool *p, size_t n) {
    pthread_mutex_lock(&p->mutex);
    kin_message_buffer *buffer = p->free_ones;
    if (buffer) {
        p->free_ones = buffer->next;
        p->n_free--;
    }
    pthread_mutex_unlock(&p->mutex);
    if (!buffer || kin_message_buffer_grow(buffer, n)) return buffer;
    kin_message_pool_give(p, buffer);
    return NULL;
}

void kin_message_pool_give(kin_message_pool *p, kin_message_buffer *buffer) {
    if (!buffer) return;
    pthread_mutex_lock(&p->mutex);
    buffer->next = p->free_ones;
    p->free_ones = buffer;
    p->n_free++;
    pthread_mutex_unlock(&p->mutex);
}

struct kin_message_queue {
    uv_mutex_t mutex;
    uv_cond_t came; // libuv's: its timeouts do not depend on the wall clock
    kin_message_buffer *first, **end;
    bool interrupted, woken;
    int n_waiting; // threads waiting for a message
};

int kin_message_queue_open(kin_message_queue **out, kin_err *err) {
    kin_message_queue *q = *out = calloc(1, sizeof *q);
    if (!q) return kin_err_set(err, "out of memory");
    q->end = &q->first;
    if (uv_mutex_init(&q->mutex) != 0) {
        free(q);
        *out = NULL;
        return kin_err_set(err, "out of memory");
    }
    if (uv_cond_init(&q->came) == 0) return 0;
    uv_mutex_destroy(&q->mutex);
    free(q);
    *out = NULL;
    return kin_err_set(err, "out of memory");
}

void kin_message_queue_close(kin_message_queue *q) {
    if (!q) return;
    kin_assert(!q->first);
    uv_cond_destroy(&q->came);
    uv_mutex_destroy(&q->mutex);
    free(q);
}

void kin_message_queue_put(kin_message_queue *q, kin_message_buffer *buffer) {
    buffer->next = NULL;
    uv_mutex_lock(&q->mutex);
    *q->end = buffer;
    q->end = &buffer->next;
    uv_cond_signal(&q->came);
    uv_mutex_unlock(&q->mutex);
}

bool kin_message_queue_is_ready(kin_message_queue *q) {
    uv_mutex_lock(&q->mutex);
    bool ready = q->first || q->interrupted || q->woken;
    uv_mutex_unlock(&q->mutex);
    return ready;
}

bool kin_message_queue_is_waited_for(kin_message_queue *q) {
    uv_mutex_lock(&q->mutex);
    bool is = q->n_waiting > 0 && !q->first;
    uv_mutex_unlock(&q->mutex);
    return is;
}

bool kin_message_queue_has(kin_message_queue *q, bool (*is_it)(void *user, const kin_message_buffer *buffer), void *user) {
    uv_mutex_lock(&q->mutex);
    const kin_message_buffer *buffer = q->first;
    while (buffer && !is_it(user, buffer)) buffer = buffer->next;
    uv_mutex_unlock(&q->mutex);
    return buffer != NULL;
}

void kin_message_queue_drain(kin_message_queue *q, kin_message_pool *pool) {
    uv_mutex_lock(&q->mutex);
    kin_message_buffer *buffer = q->first, *next;
    q->first = NULL;
    q->end = &q->first;
    uv_mutex_unlock(&q->mutex);
    for (; buffer; buffer = next) {
        next = buffer->next;
        kin_message_pool_give(pool, buffer);
    }
}

void kin_message_queue_interrupt(kin_message_queue *q, bool interrupted) {
    uv_mutex_lock(&q->mutex);
    q->interrupted = interrupted;
    uv_cond_broadcast(&q->came);
    uv_mutex_unlock(&q->mutex);
}

bool kin_message_queue_is_interrupted(kin_message_queue *q) {
    uv_mutex_lock(&q->mutex);
    bool interrupted = q->interrupted;
    uv_mutex_unlock(&q->mutex);
    return interrupted;
}

void kin_message_queue_wake(kin_message_queue *q) {
    uv_mutex_lock(&q->mutex);
    q->woken = true;
    uv_cond_signal(&q->came);
    uv_mutex_unlock(&q->mutex);
}

kin_message_buffer *kin_message_queue_pop(kin_message_queue *q, int wait_ms) {
    kin_time now = kin_clock_now(), until = now + (wait_ms < 0 ? 0 : (uint64_t)wait_ms * 1000000);
    uv_mutex_lock(&q->mutex);
    q->n_waiting++;
    while (!q->first && !q->interrupted && !q->woken && (wait_ms < 0 || now < until)) {
        if (wait_ms < 0)
            uv_cond_wait(&q->came, &q->mutex);
        else
            uv_cond_timedwait(&q->came, &q->mutex, until - now);
        now = kin_clock_now();
    }
    kin_message_buffer *buffer = q->interrupted ? NULL : q->first;
    if (buffer) {
        q->first = buffer->next;
        if (!q->first) q->end = &q->first;
    } else {
        q->woken = false;
    }
    q->n_waiting--;
    uv_mutex_unlock(&q->mutex);
    return buffer;
}
