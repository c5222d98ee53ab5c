#include "pipeline/metrics.h"

#include <pthread.h>
#include <stdlib.h>

#include "pipeline/step_timing.h"
#include "pipeline/steps.h"
#include "sys/memory.h"

enum { PUBLISH_NS = 100000000, RECENT_NS = 300000000, N_INTERVALS = 64 };

struct kin_metrics {
    kin_trace *trace;

    // The computing thread.
    kin_time waiting_since; // start of the first wait since a step came; 0: not waiting
    kin_time published;
    bool in_step;
    uint64_t step;
    int round;
    uint32_t n_tokens;
    uint64_t n_dropped; // dropped steps so far
    kin_time begun;
    kin_step_timing timing;
    uint64_t timing_step; // the step being timed, and its rounds so far
    int timing_rounds;
    kin_interval stalls[KIN_BUSY_KEPT];

    pthread_mutex_t mutex; // guards the following
    kin_worker_stats worker;
    kin_token_times token;
    kin_stream_stats stream;
    uint64_t resident_bytes; // weights in memory
    uint64_t wait_ns;
    kin_time idle_since;  // 0: not waiting now
    kin_time computed_at; // end of the last step
};

int kin_metrics_open(kin_metrics **out, kin_err *err) {
    kin_metrics *v = *out = calloc(1, sizeof *v);
    if (!v) return kin_err_set(err, "out of memory");
    pthread_mutex_init(&v->mutex, NULL);
    if (kin_trace_open(&v->trace, err) == 0) return 0;
    kin_metrics_close(v);
    *out = NULL;
    return KIN_FAIL;
}

void kin_metrics_close(kin_metrics *v) {
    if (!v) return;
    kin_trace_close(v->trace);
    pthread_mutex_destroy(&v->mutex);
    free(v);
}

kin_trace *kin_metrics_trace(kin_metrics *v) {
    return v->trace;
}

void kin_metrics_waits(kin_metrics *v, kin_time begun) {
    pthread_mutex_lock(&v->mutex);
    v->idle_since = begun;
    pthread_mutex_unlock(&v->mutex);
}

void kin_metrics_waited(kin_metrics *v, kin_time begun, const kin_message_buffer *buffer) {
    kin_time now = kin_clock_now();
    uint64_t step;
    int round;
    pthread_mutex_lock(&v->mutex);
    v->wait_ns += now - begun;
    v->idle_since = 0;
    pthread_mutex_unlock(&v->mutex);
    if (!v->waiting_since) v->waiting_since = begun;
    if (!buffer) return;
    if (kin_steps_peek(buffer, &step, &round)) kin_trace_add(v->trace, KIN_PROTO_EVENT_WAIT, step, round, v->waiting_since, now);
    v->waiting_since = 0;
}

// Times the rounds of a token, which follow each other. A prompt's chunks interleave their rounds; such steps are not timed.
static void timing_begin(kin_metrics *v, const kin_message_buffer *buffer, const kin_engine_instance *instance) {
    kin_stream_stats stream = kin_engine_instance_stats(instance).weights.stream;
    v->n_tokens = kin_steps_peek_tokens(buffer);
    v->n_dropped = kin_engine_instance_worker_stats(instance).n_dropped;
    if (v->round == 0) {
        kin_step_timing_begin(&v->timing, v->begun);
        v->timing_step = v->step;
        v->timing_rounds = 0;
    }
    kin_step_timing_enter(&v->timing, v->begun, &stream);
}

static void timing_end(kin_metrics *v, const kin_engine_instance *instance, kin_time now) {
    kin_stream_stats stream = kin_engine_instance_stats(instance).weights.stream;
    bool follows = v->step == v->timing_step && v->round == v->timing_rounds;
    bool dropped = kin_engine_instance_worker_stats(instance).n_dropped > v->n_dropped;
    kin_step_timing_leave(&v->timing, now, &stream);
    v->timing_rounds++;
    if (v->round != kin_engine_instance_n_rounds(instance) - 1) return;
    kin_step_timing_end(&v->timing, now, &stream, v->n_tokens == 1 && follows && !dropped);
}

void kin_metrics_begin(kin_metrics *v, const kin_message_buffer *buffer, const kin_engine_instance *instance) {
    v->in_step = kin_steps_peek(buffer, &v->step, &v->round);
    v->begun = kin_clock_now();
    if (v->in_step) timing_begin(v, buffer, instance);
}

void kin_metrics_reset_instance(kin_metrics *v) {
    v->timing = (kin_step_timing){0};
}

void kin_metrics_end(kin_metrics *v, kin_engine_instance *instance) {
    if (!v->in_step) return;
    kin_time now = kin_clock_now();
    timing_end(v, instance, now);
    if (!kin_trace_is_on(v->trace)) return;
    size_t n = kin_engine_instance_pop_intervals(instance, KIN_STREAM_STALLS, v->stalls, KIN_BUSY_KEPT);
    kin_trace_add_compute(v->trace, v->step, v->round, v->begun, now, v->stalls, n);
}

static void record_disk(kin_metrics *v, kin_engine_instance *instance) {
    kin_interval intervals[N_INTERVALS];
    size_t n;
    do {
        n = kin_engine_instance_pop_intervals(instance, KIN_STREAM_READS, intervals, N_INTERVALS);
        kin_trace_add_disk(v->trace, intervals, n);
    } while (n == N_INTERVALS);
}

// Publishes what is expensive to collect, ten times a second.
static void publish_memory(kin_metrics *v, const kin_engine_instance *instance, kin_time now) {
    if (now - v->published < PUBLISH_NS) return;
    v->published = now;
    kin_shard_stats shard = {0};
    if (instance) shard = kin_engine_instance_stats(instance);
    kin_token_times token = kin_step_timing_median(&v->timing);
    pthread_mutex_lock(&v->mutex);
    v->token = token;
    v->stream = shard.weights.stream;
    v->resident_bytes = shard.weights.resident_bytes;
    pthread_mutex_unlock(&v->mutex);
}

void kin_metrics_publish(kin_metrics *v, kin_engine_instance *instance, bool has_computed) {
    kin_worker_stats worker = {0};
    if (instance) worker = kin_engine_instance_worker_stats(instance);
    if (instance && kin_trace_is_on(v->trace)) record_disk(v, instance);
    pthread_mutex_lock(&v->mutex);
    v->worker = worker;
    if (has_computed) v->computed_at = kin_clock_now();
    pthread_mutex_unlock(&v->mutex);
    publish_memory(v, instance, kin_clock_now());
}

kin_proto_status kin_metrics_status(kin_metrics *v, bool *is_computing) {
    pthread_mutex_lock(&v->mutex);
    kin_proto_status s = {
        .steps = v->worker.n_steps,
        .tokens = v->worker.n_tokens,
        .compute_ns = v->worker.compute_ns,
        .wait_ns = v->wait_ns + (v->idle_since ? kin_clock_now() - v->idle_since : 0),
        .disk_ns = v->stream.busy_ns,
        .streamed_bytes = v->stream.read_bytes,
        .resident_bytes = v->resident_bytes,
        .token_compute_ns = v->token.compute_ns,
        .token_stall_ns = v->token.stall_ns,
        .token_disk_ns = v->token.disk_ns,
        .token_disk_bytes = v->token.disk_bytes,
    };
    *is_computing = !v->idle_since || (v->computed_at && kin_clock_now() - v->computed_at < RECENT_NS);
    pthread_mutex_unlock(&v->mutex);
    s.memory_free = kin_memory_read().available;
    return s;
}
