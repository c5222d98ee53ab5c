#include "testkit/memory_sum.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

typedef struct member {
    kin_memory_sum *of;
    const float *x; // valid while the others read it
    size_t n;       // its size
    float *total;   // [cap]
    size_t cap;
    uint64_t bits, n_sums;
} member;

struct kin_memory_sum {
    int n_ranks;
    member members[KIN_SHARE_RANKS];
    pthread_mutex_t mutex; // over the fields below
    pthread_cond_t changed;
    int n_waiting;
    uint64_t n_met;
    bool is_broken;
};

int kin_memory_sum_open(kin_memory_sum **out, int n_ranks, kin_err *err) {
    kin_memory_sum *s = *out = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->n_ranks = n_ranks;
    for (int i = 0; i < n_ranks; i++) s->members[i].of = s;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    return 0;
}

void kin_memory_sum_close(kin_memory_sum *s) {
    if (!s) return;
    for (int i = 0; i < s->n_ranks; i++) free(s->members[i].total);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

// Waits for all ranks. False if they will not come.
static bool wait_for_ranks(kin_memory_sum *s) {
    pthread_mutex_lock(&s->mutex);
    uint64_t n_met = s->n_met;
    if (++s->n_waiting == s->n_ranks) {
        s->n_waiting = 0;
        s->n_met++;
        pthread_cond_broadcast(&s->changed);
    }
    while (s->n_met == n_met && !s->is_broken) pthread_cond_wait(&s->changed, &s->mutex);
    bool ok = !s->is_broken;
    pthread_mutex_unlock(&s->mutex);
    return ok;
}

static int add(void *user, float *x, int n_rows, int n_embd, kin_err *err) {
    member *m = user;
    kin_memory_sum *s = m->of;
    size_t n = (size_t)n_rows * (size_t)n_embd;
    if (n > m->cap) {
        free(m->total);
        m->total = malloc(n * sizeof *m->total);
        m->cap = n;
    }
    m->x = x;
    m->n = n;
    if (!m->total || !wait_for_ranks(s)) return kin_err_set(err, "the group is broken");
    for (int r = 0; r < s->n_ranks; r++) {
        if (s->members[r].n != n) return kin_err_set(err, "the group's sums have different sizes");
    }
    memcpy(m->total, s->members[0].x, n * sizeof *x);
    for (int r = 1; r < s->n_ranks; r++) {
        for (size_t i = 0; i < n; i++) m->total[i] += s->members[r].x[i];
    }
    m->bits = kin_hash64(m->total, n * sizeof *x, m->bits);
    m->n_sums++;
    if (!wait_for_ranks(s)) return kin_err_set(err, "the group is broken"); // all have read x
    memcpy(x, m->total, n * sizeof *x);
    return 0;
}

kin_sum kin_memory_sum_of(kin_memory_sum *s, int rank) {
    return (kin_sum){.add = add, .user = &s->members[rank]};
}

void kin_memory_sum_break(kin_memory_sum *s) {
    pthread_mutex_lock(&s->mutex);
    s->is_broken = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

uint64_t kin_memory_sum_bits(kin_memory_sum *s, int rank, uint64_t *n_sums) {
    *n_sums = s->members[rank].n_sums;
    return s->members[rank].bits;
}
