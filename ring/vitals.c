#include "ring/vitals.h"

#include <pthread.h>
#include <stdlib.h>

#include "ring/pace.h"
#include "ring/steps.h"
#include "sys/memory.h"

enum { PUBLISH_NS = 100000000, N_INTERVALS = 64 };

struct kin_vitals {
    kin_events *events;

    // The computing thread.
    uint64_t wait_ns;
    kin_time waiting_since; // 0: it is not waiting
    kin_time published;
    bool in_step;
    uint64_t step;
    int round;
    uint32_t n_tokens;
    kin_time begun;
    kin_pace pace;
    uint64_t pace_step; // that the pace is of, and its rounds so far
    int pace_rounds;
    kin_interval stalls[KIN_BUSY_KEPT];

    pthread_mutex_t mutex; // over the following
    kin_worker_stats worker;
    kin_token_times token;
    kin_stream_stats stream;
    uint64_t anonymous_bytes; // of weights
    uint64_t published_wait_ns;
    bool is_computing;
};

int kin_vitals_open(kin_vitals **out, kin_err *err) {
    kin_vitals *v = *out = calloc(1, sizeof *v);
    if (!v) return kin_err_set(err, "out of memory");
    pthread_mutex_init(&v->mutex, NULL);
    if (kin_events_open(&v->events, err) == 0) return 0;
    kin_vitals_close(v);
    *out = NULL;
    return KIN_FAIL;
}

void kin_vitals_close(kin_vitals *v) {
    if (!v) return;
    kin_events_close(v->events);
    pthread_mutex_destroy(&v->mutex);
    free(v);
}

kin_events *kin_vitals_events(kin_vitals *v) {
    return v->events;
}

void kin_vitals_waited(kin_vitals *v, kin_time begun, const kin_parcel *parcel) {
    kin_time now = kin_clock_now();
    uint64_t step;
    int round;
    v->wait_ns += now - begun;
    if (!v->waiting_since) v->waiting_since = begun;
    if (!parcel) return;
    if (kin_steps_peek(parcel, &step, &round))
        kin_events_add(v->events, KIN_PROTO_EVENT_WAIT, step, round, v->waiting_since, now);
    v->waiting_since = 0;
}

// The rounds of a token come one after the other. Between those of a prompt's chunks come others', which counts for no pace.
static void pace_begin(kin_vitals *v, const kin_parcel *parcel, const kin_seat *seat) {
    kin_stream_stats stream = kin_seat_stats(seat).weights.stream;
    v->n_tokens = kin_steps_peek_tokens(parcel);
    if (v->round == 0) {
        kin_pace_begin(&v->pace, v->begun);
        v->pace_step = v->step;
        v->pace_rounds = 0;
    }
    kin_pace_enter(&v->pace, v->begun, &stream);
}

static void pace_end(kin_vitals *v, const kin_seat *seat, kin_time now) {
    kin_stream_stats stream = kin_seat_stats(seat).weights.stream;
    bool follows = v->step == v->pace_step && v->round == v->pace_rounds;
    kin_pace_leave(&v->pace, now, &stream);
    v->pace_rounds++;
    if (v->round != kin_seat_n_rounds(seat) - 1) return;
    kin_pace_end(&v->pace, now, &stream, v->n_tokens == 1 && follows);
}

void kin_vitals_begin(kin_vitals *v, const kin_parcel *parcel, const kin_seat *seat) {
    v->in_step = kin_steps_peek(parcel, &v->step, &v->round);
    v->begun = kin_clock_now();
    if (v->in_step) pace_begin(v, parcel, seat);
}

void kin_vitals_take_seat(kin_vitals *v) {
    v->pace = (kin_pace){0};
}

void kin_vitals_end(kin_vitals *v, kin_seat *seat) {
    if (!v->in_step) return;
    kin_time now = kin_clock_now();
    pace_end(v, seat, now);
    if (!kin_events_are_on(v->events)) return;
    size_t n = kin_seat_take_intervals(seat, KIN_STREAM_STALLS, v->stalls, KIN_BUSY_KEPT);
    kin_events_add_compute(v->events, v->step, v->round, v->begun, now, v->stalls, n);
}

static void record_disk(kin_vitals *v, kin_seat *seat) {
    kin_interval intervals[N_INTERVALS];
    size_t n;
    do {
        n = kin_seat_take_intervals(seat, KIN_STREAM_READS, intervals, N_INTERVALS);
        kin_events_add_disk(v->events, intervals, n);
    } while (n == N_INTERVALS);
}

void kin_vitals_publish(kin_vitals *v, kin_seat *seat, bool is_computing) {
    kin_time now = kin_clock_now();
    if (seat && kin_events_are_on(v->events)) record_disk(v, seat);
    if (now - v->published < PUBLISH_NS) return;
    v->published = now;
    kin_worker_stats worker = {0};
    kin_shard_stats shard = {0};
    if (seat) {
        worker = kin_worker_get_stats(kin_seat_worker(seat));
        shard = kin_seat_stats(seat);
    }
    kin_token_times token = kin_pace_median(&v->pace);
    pthread_mutex_lock(&v->mutex);
    v->worker = worker;
    v->token = token;
    v->stream = shard.weights.stream;
    v->anonymous_bytes = shard.weights.anonymous_bytes;
    v->published_wait_ns = v->wait_ns;
    v->is_computing = is_computing;
    pthread_mutex_unlock(&v->mutex);
}

kin_proto_status kin_vitals_status(kin_vitals *v, bool *is_computing) {
    pthread_mutex_lock(&v->mutex);
    kin_proto_status s = {
        .steps = v->worker.n_steps,
        .tokens = v->worker.n_tokens,
        .compute_ns = v->worker.compute_ns,
        .wait_ns = v->published_wait_ns,
        .disk_ns = v->stream.busy_ns,
        .streamed_bytes = v->stream.read_bytes,
        .resident_bytes = v->stream.resident_bytes + v->anonymous_bytes,
        .token_compute_ns = v->token.compute_ns,
        .token_stall_ns = v->token.stall_ns,
        .token_disk_ns = v->token.disk_ns,
        .token_disk_bytes = v->token.disk_bytes,
    };
    *is_computing = v->is_computing;
    pthread_mutex_unlock(&v->mutex);
    s.memory_free = kin_memory_read().available;
    return s;
}
