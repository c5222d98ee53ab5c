#include "ring/parcel.h"

#include <pthread.h>
#include <stdlib.h>
#include <uv.h>

#include "base/clock.h"

struct kin_parcels {
    pthread_mutex_t mutex;
    kin_parcel *all; // [n]
    kin_parcel *free_ones;
    int n, n_free;
};

int kin_parcels_open(kin_parcels **out, int n, kin_err *err) {
    *out = NULL;
    kin_parcels *p = calloc(1, sizeof *p);
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

void kin_parcels_close(kin_parcels *p) {
    if (!p) return;
    kin_assert(p->n_free == p->n);
    for (int i = 0; i < p->n; i++) free(p->all[i].payload);
    pthread_mutex_destroy(&p->mutex);
    free(p->all);
    free(p);
}

static bool make_room(kin_parcel *parcel, size_t n) {
    if (n <= parcel->cap) return true;
    uint8_t *payload = realloc(parcel->payload, n);
    if (!payload) return false;
    parcel->payload = payload;
    parcel->cap = n;
    return true;
}

kin_parcel *kin_parcels_take(kin_parcels *p, size_t n) {
    pthread_mutex_lock(&p->mutex);
    kin_parcel *parcel = p->free_ones;
    if (parcel) {
        p->free_ones = parcel->next;
        p->n_free--;
    }
    pthread_mutex_unlock(&p->mutex);
    if (!parcel || make_room(parcel, n)) return parcel;
    kin_parcels_give(p, parcel);
    return NULL;
}

void kin_parcels_give(kin_parcels *p, kin_parcel *parcel) {
    if (!parcel) return;
    pthread_mutex_lock(&p->mutex);
    parcel->next = p->free_ones;
    p->free_ones = parcel;
    p->n_free++;
    pthread_mutex_unlock(&p->mutex);
}

struct kin_parcel_queue {
    uv_mutex_t mutex;
    uv_cond_t came; // libuv's: its waits do not end early or late when somebody sets the clock
    kin_parcel *first, **end;
    bool interrupted;
};

int kin_parcel_queue_open(kin_parcel_queue **out, kin_err *err) {
    kin_parcel_queue *q = *out = calloc(1, sizeof *q);
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

void kin_parcel_queue_close(kin_parcel_queue *q) {
    if (!q) return;
    kin_assert(!q->first);
    uv_cond_destroy(&q->came);
    uv_mutex_destroy(&q->mutex);
    free(q);
}

void kin_parcel_queue_put(kin_parcel_queue *q, kin_parcel *parcel) {
    parcel->next = NULL;
    uv_mutex_lock(&q->mutex);
    *q->end = parcel;
    q->end = &parcel->next;
    uv_cond_signal(&q->came);
    uv_mutex_unlock(&q->mutex);
}

void kin_parcel_queue_interrupt(kin_parcel_queue *q, bool interrupted) {
    uv_mutex_lock(&q->mutex);
    q->interrupted = interrupted;
    uv_cond_broadcast(&q->came);
    uv_mutex_unlock(&q->mutex);
}

bool kin_parcel_queue_is_interrupted(kin_parcel_queue *q) {
    uv_mutex_lock(&q->mutex);
    bool interrupted = q->interrupted;
    uv_mutex_unlock(&q->mutex);
    return interrupted;
}

kin_parcel *kin_parcel_queue_take(kin_parcel_queue *q, int wait_ms) {
    kin_time now = kin_clock_now(), until = now + (wait_ms < 0 ? 0 : (uint64_t)wait_ms * 1000000);
    uv_mutex_lock(&q->mutex);
    while (!q->first && !q->interrupted && (wait_ms < 0 || now < until)) {
        if (wait_ms < 0)
            uv_cond_wait(&q->came, &q->mutex);
        else
            uv_cond_timedwait(&q->came, &q->mutex, until - now);
        now = kin_clock_now();
    }
    kin_parcel *parcel = q->interrupted ? NULL : q->first;
    if (parcel) {
        q->first = parcel->next;
        if (!q->first) q->end = &q->first;
    }
    uv_mutex_unlock(&q->mutex);
    return parcel;
}
