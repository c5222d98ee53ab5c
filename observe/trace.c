#include "observe/trace.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct kin_trace {
    atomic_bool on;
    pthread_mutex_t mutex;               // guards the following
    size_t first, next;                  // counted from 0
    kin_proto_event kept[KIN_TRACE_MAX]; // cyclic
};

int kin_trace_open(kin_trace **out, kin_err *err) {
    kin_trace *e = *out = calloc(1, sizeof *e);
    if (!e) return kin_err_set(err, "out of memory");
    pthread_mutex_init(&e->mutex, NULL);
    return 0;
}

void kin_trace_close(kin_trace *e) {
    if (!e) return;
    pthread_mutex_destroy(&e->mutex);
    free(e);
}

bool kin_trace_is_on(const kin_trace *e) {
    return e && atomic_load(&e->on);
}

void kin_trace_turn(kin_trace *e, bool on) {
    if (!e || atomic_load(&e->on) == on) return;
    pthread_mutex_lock(&e->mutex);
    atomic_store(&e->on, on);
    e->first = e->next;
    pthread_mutex_unlock(&e->mutex);
}

static void add_event(kin_trace *e, const kin_proto_event *one) {
    if (atomic_load(&e->on) && e->next - e->first < KIN_TRACE_MAX) e->kept[e->next++ % KIN_TRACE_MAX] = *one;
}

void kin_trace_add(kin_trace *e, kin_proto_event_kind kind, uint64_t step, int round, kin_time begin, kin_time end) {
    if (!kin_trace_is_on(e)) return;
    kin_assert(end >= begin);
    kin_proto_event one = {.kind = kind, .round = (uint16_t)round, .step = step, .begin = begin, .end = end};
    pthread_mutex_lock(&e->mutex);
    add_event(e, &one);
    pthread_mutex_unlock(&e->mutex);
}

void kin_trace_add_compute(kin_trace *e, uint64_t step, int round, kin_time begin, kin_time end, const kin_interval *pauses,
                           size_t n_pauses) {
    for (size_t i = 0; i < n_pauses; i++) {
        kin_interval p = pauses[i];
        if (p.begin < begin || p.end > end) continue; // of another step
        kin_trace_add(e, KIN_PROTO_EVENT_COMPUTE, step, round, begin, p.begin);
        kin_trace_add(e, KIN_PROTO_EVENT_WAIT, step, round, p.begin, p.end);
        begin = p.end;
    }
    kin_trace_add(e, KIN_PROTO_EVENT_COMPUTE, step, round, begin, end);
}

void kin_trace_add_disk(kin_trace *e, const kin_interval *intervals, size_t n) {
    for (size_t i = 0; i < n; i++) kin_trace_add(e, KIN_PROTO_EVENT_DISK, 0, 0, intervals[i].begin, intervals[i].end);
}

int kin_trace_pop(kin_trace *e, kin_proto_event *out, int n_max) {
    int n = 0;
    if (!e) return 0;
    pthread_mutex_lock(&e->mutex);
    for (; n < n_max && e->first < e->next; n++) out[n] = e->kept[e->first++ % KIN_TRACE_MAX];
    pthread_mutex_unlock(&e->mutex);
    return n;
}
