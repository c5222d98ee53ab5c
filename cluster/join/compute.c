// The computing thread: opens instances, computes steps, and reports results to the loop's thread.
#include "cluster/join/compute.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cluster/join/prepare.h"
#include "pure/proto/label.h"

enum { PROGRESS_MS = 200 }; // between two reports of the same work

// The result of a preparation or a step, from the computing thread to the loop's.
typedef struct result {
    kin_join *join;
    uint32_t ticket, epoch;
    bool ok, of_step, got_wrong; // of_step: a step failed; got_wrong: because the input was invalid
    kin_proto_ready ready;
    int n_embd;
    char reason[KIN_PROTO_MAX_REASON + 1];
} result;

// ---- reports to the loop's thread

static void on_result(void *arg) {
    result *r = arg;
    kin_join *j = r->join;
    if (r->ok) {
        j->preparing.n_embd = r->n_embd;
        kin_join_handle_instance(j, r->ticket, &r->ready);
    } else if (r->of_step) {
        kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_COMPUTE_FAILED,
                                            .epoch = r->epoch,
                                            .stage = r->got_wrong ? "receiving" : "computing",
                                            .reason = r->reason});
    } else {
        kin_join_act(j, &(kin_member_event){
                            .kind = KIN_MEMBER_PREPARE_FAILED, .ticket = r->ticket, .stage = "loading", .reason = r->reason});
    }
    free(r);
}

static void on_progress(void *arg) {
    kin_join *j = arg;
    pthread_mutex_lock(&j->mutex);
    j->preparing.progress = j->computing_progress;
    pthread_mutex_unlock(&j->mutex);
    kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_PROGRESS, .ticket = j->preparing.ticket});
}

static void report(void *user, const char *what, uint64_t done, uint64_t total) {
    kin_join *j = user;
    atomic_fetch_add(&j->n_signs, 1);
    if (atomic_load(&j->is_fetching)) return;
    if (j->o.progress) j->o.progress(j->o.user, what, done, total, 0);
    pthread_mutex_lock(&j->mutex); // several threads pack
    kin_time now = kin_clock_now();
    bool due = j->computing.progress_what != what || kin_clock_ms(j->computing.progress_at, now) >= PROGRESS_MS;
    if (due) {
        j->computing.progress_what = what;
        j->computing.progress_at = now;
        j->computing_progress = (kin_proto_progress){.stage = KIN_PROTO_PACKING, .done = done, .total = total};
    }
    pthread_mutex_unlock(&j->mutex);
    if (due) kin_endpoint_call(j->ring.endpoint, on_progress, j);
}

// A failure while the user stops this device is not reported: the device leaves in a moment.
static void report_result(kin_join *j, const result *r) {
    if (!r->ok && atomic_load(j->o.stop)) return;
    result *copy = malloc(sizeof *copy);
    kin_assert(copy);
    *copy = *r;
    copy->join = j;
    if (!kin_endpoint_call(j->ring.endpoint, on_result, copy)) free(copy);
}

static void copy_path(kin_join *j, char path[KIN_JOIN_PATH]) {
    pthread_mutex_lock(&j->mutex);
    memcpy(path, j->model_path, KIN_JOIN_PATH);
    pthread_mutex_unlock(&j->mutex);
}

static void pass(void *user, kin_message_buffer *buffer) {
    kin_join *j = user;
    kin_neighbours_send(j->ring.neighbours, buffer);
}

void kin_join_close_instance(kin_join *j) {
    kin_shard_memory memory;
    char text[200];
    if (j->computing.instance && kin_engine_instance_get_memory(j->computing.instance, &memory)) {
        kin_shard_memory_format(&memory, text, sizeof text);
        kin_log(KIN_LOG_INFO, "memory: %s", text);
    }
    kin_engine_instance_close(j->computing.instance);
    j->computing.instance = NULL;
}

static void open_instance(kin_join *j, const kin_message_buffer *buffer) {
    result r = {.ticket = buffer->frame.epoch};
    kin_err err;
    char path[KIN_JOIN_PATH];
    kin_proto_plan *plan = malloc(sizeof *plan);
    kin_assert(plan);
    copy_path(j, path);
    kin_prepacking_pause(j->ring.prepacking);
    kin_join_close_instance(j);
    kin_metrics_reset_instance(j->metrics);
    j->computing.view = (kin_lazy_load_view){j->preparing.lazy_load, buffer->frame.epoch, false};
    j->computing.arrival = kin_lazy_load_arrival(&j->computing.view);
    kin_engine_instance_options o = kin_join_instance_options(j, path);
    o.arrival = o.in_parts ? &j->computing.arrival : NULL;
    o.progress = report;
    o.progress_user = j;
    r.ok = kin_proto_decode_plan(buffer->payload, buffer->frame.length, plan, &err) == 0 &&
           kin_engine_instance_open(&j->computing.instance, plan, &o, &err) == 0;
    if (r.ok && kin_engine_instance_passes_early(j->computing.instance))
        kin_worker_pass_early(kin_engine_instance_worker(j->computing.instance), pass, j);
    if (r.ok) {
        kin_shard_stats s = kin_engine_instance_stats(j->computing.instance);
        r.n_embd = kin_engine_instance_n_embd(j->computing.instance);
        r.ready = (kin_proto_ready){.kv_bytes = s.kv_bytes,
                                    .weights_bytes = s.weights.mapped_bytes + s.weights.cached_bytes + s.weights.packed_bytes +
                                                     s.weights.gpu_bytes,
                                    .resident_bytes = s.weights.resident_bytes,
                                    .compute_bytes = s.compute_bytes,
                                    .gpu_bytes = s.weights.gpu_bytes};
    } else {
        kin_label_set_sentence(r.reason, KIN_PROTO_MAX_REASON, err.text);
    }
    free(plan);
    report_result(j, &r);
}

static void compute(kin_join *j, kin_message_buffer *buffer) {
    uint32_t epoch = buffer->frame.epoch;
    kin_err err;
    if (!j->computing.instance) { // its epoch's instance did not open
        kin_message_pool_give(j->ring.pool, buffer);
        return;
    }
    kin_exchange_use(j->ring.exchange, epoch);
    kin_metrics_begin(j->metrics, buffer, j->computing.instance);
    atomic_fetch_add(&j->n_signs, 1);
    atomic_store(&j->is_computing, true);
    int rc = kin_engine_instance_handle(j->computing.instance, &buffer, &err);
    atomic_store(&j->is_computing, false);
    kin_metrics_end(j->metrics, j->computing.instance);
    atomic_store(&j->pages.computed_at, kin_clock_now());
    if (buffer) kin_neighbours_send(j->ring.neighbours, buffer);
    if (rc == 0 || kin_exchange_is_broken(j->ring.exchange)) return; // the head learns of the broken group by other means
    result r = {.epoch = epoch, .of_step = true, .got_wrong = kin_engine_instance_got_wrong(j->computing.instance)};
    kin_label_set_sentence(r.reason, KIN_PROTO_MAX_REASON, err.text);
    report_result(j, &r);
}

// An instance that cannot be cleared is closed: steps then find no instance, and the next plan opens a new one.
static void reset(kin_join *j) {
    kin_err err;
    if (!j->computing.instance || kin_engine_instance_reset(j->computing.instance, &err) == 0) return;
    kin_log(KIN_LOG_WARN, "cannot clear the KV cache: %s", err.text);
    kin_engine_instance_close(j->computing.instance);
    j->computing.instance = NULL;
}

static void handle(kin_join *j, kin_message_buffer *buffer) {
    switch (buffer->frame.type) {
    case KIN_FRAME_PLAN:
        open_instance(j, buffer);
        kin_message_pool_give(j->ring.pool, buffer);
        break;
    case KIN_FRAME_END:
        reset(j);
        kin_message_pool_give(j->ring.pool, buffer);
        break;
    case KIN_FRAME_STATUS_WANTED: // metrics are published after each message
        atomic_store(&j->is_publishing, false);
        kin_message_pool_give(j->ring.pool, buffer);
        break;
    default: compute(j, buffer); break;
    }
}

static bool is_over(kin_join *j, kin_err *err) {
    pthread_mutex_lock(&j->mutex);
    bool over = j->given_up;
    if (over) *err = j->why;
    if (over && j->o.has_other_key) *j->o.has_other_key = j->has_other_key;
    pthread_mutex_unlock(&j->mutex);
    return over;
}

int kin_join_compute(kin_join *j, kin_err *err) {
    while (!atomic_load(j->o.stop)) {
        kin_time begun = kin_clock_now();
        kin_metrics_waits(j->metrics, begun);
        kin_message_buffer *buffer = kin_message_queue_pop(j->ring.in, -1); // NULL: interrupted, by `stop` or because it gave up
        bool is_step = buffer && buffer->frame.type == KIN_FRAME_STEP;
        kin_metrics_waited(j->metrics, begun, buffer);
        if (buffer) handle(j, buffer);
        kin_metrics_publish(j->metrics, j->computing.instance, is_step);
        if (!buffer && is_over(j, err)) return KIN_FAIL;
    }
    return 0;
}
