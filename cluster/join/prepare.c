// The model file, or the parts of it that are fetched, and an engine instance over them.
//
// Fetching and opening overlap. The instance is opened as soon as the files' headers are there; it waits for weights where it
// needs them (fetch/lazy_load.h) and packs the first ones while the last are in flight. With several windows the device is ready
// when the instance is open, which has its first window by then; if the fetch fails later, the device fails. With one window it
// is ready when the fetch has completed, too, with all weights safely on the disk.
#include "cluster/join/prepare.h"

#include <stdio.h>

#include "base/log.h"
#include "cluster/join/fetch.h"
#include "cluster/join/pages.h"
#include "cluster/join/prefetch.h"

// Fails the preparation. Nothing of it may be in flight afterwards.
static void fail(kin_join *j, const char *stage, const char *reason) {
    atomic_store(&j->is_fetching, false);
    kin_join_act(j, &(kin_member_event){
                        .kind = KIN_MEMBER_PREPARE_FAILED, .ticket = j->preparing.ticket, .stage = stage, .reason = reason});
}

static void set_path(kin_join *j, const char *path) {
    pthread_mutex_lock(&j->mutex);
    snprintf(j->model_path, sizeof j->model_path, "%s", path);
    pthread_mutex_unlock(&j->mutex);
}

// Queues the plan for the computing thread, which opens the instance.
static void queue_plan(kin_join *j) {
    size_t n = kin_proto_size_plan(j->plan);
    kin_message_buffer *buffer = kin_message_pool_get(j->ring.pool, n);
    if (!buffer) { // all buffers hold steps of an epoch that ends just now
        fail(j, "loading", "too many tasks are in flight");
        return;
    }
    buffer->frame = (kin_frame){.type = KIN_FRAME_PLAN, .epoch = j->preparing.ticket, .length = (uint32_t)n};
    kin_proto_encode_plan(buffer->payload, n, j->plan);
    kin_message_queue_put(j->ring.in, buffer);
}

static void report_prepared(kin_join *j) {
    if (!j->preparing.is_instance_open || !(j->preparing.is_fetched || j->preparing.begins_early)) return;
    kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_PREPARED, .ticket = j->preparing.ticket});
}

void kin_join_handle_instance(kin_join *j, uint32_t ticket, const kin_proto_ready *ready) {
    if (ticket != j->preparing.ticket) return; // there is a newer one
    j->preparing.ready = *ready;
    j->preparing.is_instance_open = true;
    report_prepared(j);
}

// ---- the fetch for a plan

// The files can be opened as a model; the computing thread waits for the weights that it needs.
static void open_store(kin_join *j) {
    kin_store *store = kin_chunk_store_store(j->fetching.chunks);
    kin_lazy_load_begin(j->preparing.lazy_load, j->preparing.ticket, store);
    set_path(j, kin_store_path(store, 0));
    queue_plan(j);
}

// All weights of the plan being prepared are here.
static void be_fetched(kin_join *j) {
    j->preparing.is_fetched = true;
    atomic_store(&j->is_fetching, false);
    kin_lazy_load_is_whole(j->preparing.lazy_load);
    report_prepared(j);
}

static void plan_progress(kin_join *j, const kin_fetch_progress *p) {
    j->preparing.progress = p->sent;
    if (j->o.progress) j->o.progress(j->o.user, "fetching weights", p->sent.done, p->sent.total, p->sent.rate);
    kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_PROGRESS, .ticket = j->preparing.ticket});
}

static void plan_done(kin_join *j) {
    kin_join_note_layers(j, &j->preparing.windows.windows, &j->preparing.share);
    be_fetched(j);
}

static void plan_failed(kin_join *j, const char *reason) {
    fail(j, "fetching weights", reason);
}

void kin_join_open_prepare(kin_join *j) {
    static const kin_join_fetch_sink sink = {plan_progress, open_store, plan_done, plan_failed};
    j->fetching.for_plan = &sink;
}

// ---- plans

void kin_join_prepare(kin_join *j, uint32_t ticket) {
    kin_err err;
    kin_lazy_load_end(j->preparing.lazy_load, "a new plan has replaced it");
    kin_join_end_prefetch(j);
    kin_join_check_store(j);
    j->preparing.ticket = ticket;
    j->preparing.is_fetched = j->preparing.is_instance_open = false;
    atomic_store(&j->is_fetching, false);
    j->preparing.begins_early = j->plan->n_windows > 1;
    j->preparing.share = kin_engine_instance_share(j->plan);
    if (kin_engine_instance_windows(j->plan, KIN_PROTO_MAX_LAYERS, &j->preparing.windows, &err) != 0) {
        fail(j, "reading the plan", err.text);
    } else if (kin_join_has_own_file(j, j->plan)) {
        kin_fetch_cancel(j->fetching.fetch); // of another plan
        j->fetching.fetch = NULL;
        j->ahead.fetches = false;
        j->preparing.is_fetched = true;
        set_path(j, j->o.model_path);
        queue_plan(j);
    } else if (kin_join_has_layers(j, j->plan, &j->preparing.windows.windows, &j->preparing.share)) {
        kin_log(KIN_LOG_DEBUG, "all layers of the plan are available");
        open_store(j);
        be_fetched(j);
    } else {
        atomic_store(&j->is_fetching, true);
        kin_join_fetch(j, j->plan, &j->preparing.windows.windows, false);
    }
}

// Tells the computing thread to clear the KV cache of an earlier epoch.
void kin_join_reuse(kin_join *j, uint32_t epoch) {
    kin_message_buffer *buffer = kin_message_pool_get(j->ring.pool, 0);
    if (!buffer) { // all of them hold steps of an epoch that ends just now
        kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_COMPUTE_FAILED,
                                            .epoch = epoch,
                                            .stage = "clearing",
                                            .reason = "too many tasks are in flight"});
        return;
    }
    buffer->frame = (kin_frame){.type = KIN_FRAME_END};
    kin_message_queue_put(j->ring.in, buffer);
}

static bool goes_by_head(const kin_join *j, const kin_proto_endpoint *neighbour, const kin_proto_id *id) {
    return neighbour->n_addresses == 0 && !kin_proto_id_equal(id, &j->head.id);
}

void kin_join_handle_plan(kin_join *j, uint32_t epoch, const kin_proto_plan *plan) {
    *j->arriving = *plan;
    uint32_t epoch_before = kin_member_epoch(j->member);
    kin_proto_plan *before = j->plan;
    j->plan = j->arriving;
    j->arriving = before;
    kin_member_event event = {.kind = KIN_MEMBER_PLAN, .epoch = epoch, .work = kin_proto_plan_work(plan)};
    event.next_by_head = goes_by_head(j, &plan->next, &plan->next_id);
    event.previous_by_head = goes_by_head(j, &plan->previous, &plan->previous_id);
    kin_join_register_page_peers(j);
    kin_join_act(j, &event);
    if (kin_member_epoch(j->member) == epoch_before) { // of an epoch that is over, or a repeated one
        j->arriving = j->plan;
        j->plan = before;
    }
}
