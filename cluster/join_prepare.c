// From a plan to a device that is ready for it: the model file, or the parts of it that are fetched, and an engine instance over
// them.
//
// Fetching and opening overlap. The instance is opened as soon as the files' headers are there; it waits for weights where it
// needs them (fetch/lazy_load.h) and packs the first ones while the last are in flight. With several windows the device is ready
// when the instance is open, which has its first window by then; if the fetch fails later, the device fails. With one window it
// is ready when the fetch has completed, too, with all weights safely on the disk.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cluster/join_impl.h"

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

// ---- the fetch

void kin_join_check_store(kin_join *j) {
    if (!j->fetching.chunks || kin_store_is_in_place(kin_chunk_store_store(j->fetching.chunks))) return;
    kin_log(KIN_LOG_WARN, "%s was removed, replaced or truncated: fetching this device's part of the model again",
            kin_store_path(kin_chunk_store_store(j->fetching.chunks), 0));
    kin_fetch_cancel(j->fetching.fetch);
    j->fetching.fetch = NULL;
    j->ahead.fetches = false;
    kin_chunk_server_set_store(j->ring.server, NULL);
    kin_chunk_store_release(j->fetching.chunks);
    j->fetching.chunks = NULL;
    memset(&j->fetching.here, 0, sizeof j->fetching.here);
}

static void fetch_opened(void *user, kin_chunk_store *chunks) {
    kin_join *j = user;
    kin_chunk_store_release(j->fetching.chunks);
    j->fetching.chunks = kin_chunk_store_hold(chunks);
    kin_chunk_server_set_store(j->ring.server, chunks);
}

static void fetch_progress(void *user, const kin_fetch_progress *p) {
    kin_join *j = user;
    if (j->ahead.fetches) {
        kin_join_prefetch_progress(j, &p->sent);
        return;
    }
    j->preparing.progress = p->sent;
    if (j->o.progress) j->o.progress(j->o.user, "fetching weights", p->sent.done, p->sent.total, p->sent.rate);
    kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_PROGRESS, .ticket = j->preparing.ticket});
}

static void fetch_have(void *user, const kin_proto_have *have) {
    kin_join *j = user;
    size_t n = kin_proto_size_have(have);
    uint8_t *payload = j->head.link ? malloc(n) : NULL;
    j->fetching.owes_have = j->head.link != NULL;
    if (!payload) return;
    kin_proto_encode_have(payload, n, have);
    kin_frame_part part = {payload, n};
    j->fetching.owes_have = kin_link_send(j->head.link, KIN_FRAME_HAVE, 0, 1, &part) == KIN_LINK_FULL;
    free(payload);
}

void kin_join_send_have(kin_join *j) {
    j->fetching.owes_have = j->fetching.chunks != NULL;
    if (!j->fetching.chunks) return;
    kin_store *store = kin_chunk_store_store(j->fetching.chunks);
    const kin_manifest *m = kin_store_manifest(store);
    uint8_t *bitmap = calloc(((size_t)m->n_chunks + 7) / 8, 1);
    if (!bitmap) return;
    kin_store_bitmap(store, bitmap);
    kin_proto_have have = {.id = j->o.id, .n_chunks = m->n_chunks, .bitmap = bitmap};
    memcpy(have.model.bytes, m->hash, sizeof have.model.bytes);
    fetch_have(j, &have);
    free(bitmap);
}

void kin_join_handle_have(kin_join *j, const kin_proto_have *have) {
    kin_proto_have reached = *have;
    if (!j->fetching.fetch) return;
    if (have->endpoint.n_addresses == 0) {
        kin_fetch_gone(j->fetching.fetch, &have->id);
        return;
    }
    kin_join_fill_endpoint(j, &reached.endpoint);
    kin_fetch_have(j->fetching.fetch, &reached);
}

// The files can be opened as a model; the computing thread waits for the weights that it needs.
static void open_store(kin_join *j) {
    kin_store *store = kin_chunk_store_store(j->fetching.chunks);
    kin_lazy_load_begin(j->preparing.lazy_load, j->preparing.ticket, store);
    set_path(j, kin_store_path(store, 0));
    queue_plan(j);
}

static void fetch_headers(void *user) {
    kin_join *j = user;
    if (!j->ahead.fetches) open_store(j);
}

static void fetch_kept(void *user) {
    kin_join *j = user;
    kin_lazy_load_arrived(j->preparing.lazy_load);
}

// All weights of the plan being prepared are here.
static void be_fetched(kin_join *j) {
    j->preparing.is_fetched = true;
    atomic_store(&j->is_fetching, false);
    kin_lazy_load_is_whole(j->preparing.lazy_load);
    report_prepared(j);
}

static void fetch_done(void *user) {
    kin_join *j = user;
    if (j->ahead.fetches) {
        kin_join_prefetch_fetched(j);
        return;
    }
    kin_join_note_layers(j, &j->preparing.windows.windows, &j->preparing.share);
    be_fetched(j);
}

static void fetch_failed(void *user, const char *reason) {
    kin_join *j = user;
    kin_fetch_cancel(j->fetching.fetch);
    j->fetching.fetch = NULL;
    if (j->ahead.fetches) {
        kin_join_prefetch_failed(j, reason);
        return;
    }
    kin_lazy_load_end(j->preparing.lazy_load, reason);
    fail(j, "fetching weights", reason);
}

static void fail_fetch(kin_join *j, const char *reason) {
    if (j->ahead.fetches)
        kin_join_prefetch_failed(j, reason);
    else
        fail(j, "fetching weights", reason);
}

void kin_join_fetch(kin_join *j, const kin_proto_plan *plan, const kin_windows *windows, bool ahead) {
    static const kin_fetch_callbacks callbacks = {.opened = fetch_opened,
                                                  .progress = fetch_progress,
                                                  .have_changed = fetch_have,
                                                  .headers_here = fetch_headers,
                                                  .kept = fetch_kept,
                                                  .done = fetch_done,
                                                  .failed = fetch_failed};
    kin_err err;
    bool same_head = kin_proto_id_equal(&j->fetching.from, &j->head.id) && strcmp(j->fetching.address, j->head.address) == 0 &&
                     j->fetching.port == j->head.port;
    bool same_model = memcmp(&j->fetching.model, &plan->model, sizeof j->fetching.model) == 0;
    const kin_share share = kin_engine_instance_share(plan);
    j->ahead.fetches = ahead;
    if (j->fetching.fetch && same_head && same_model) {
        kin_fetch_set_windows(j->fetching.fetch, windows);
        kin_fetch_set_share(j->fetching.fetch, &share);
        return;
    }
    if (!same_model) memset(&j->fetching.here, 0, sizeof j->fetching.here);
    kin_fetch_cancel(j->fetching.fetch);
    j->fetching.from = j->head.id;
    j->fetching.port = j->head.port;
    memcpy(j->fetching.address, j->head.address, sizeof j->fetching.address);
    kin_fetch_options o = kin_fetch_options_default(kin_endpoint_tls(j->ring.endpoint));
    o.id = j->o.id;
    o.name = j->o.name;
    o.version = j->o.version;
    o.cache_dir = j->o.cache_dir;
    o.cache_cap = j->o.cache_cap;
    o.model = j->fetching.model = plan->model;
    o.n_files = plan->n_files;
    o.file_sizes = plan->file_size;
    o.head_address = j->head.address;
    o.head_port = j->head.port;
    o.head_id = j->head.id;
    o.windows = windows;
    o.chunks = j->fetching.chunks; // perhaps still open
    if (kin_fetch_start(&j->fetching.fetch, kin_endpoint_loop(j->ring.endpoint), &o, &callbacks, j, &err) == 0) {
        kin_fetch_set_share(j->fetching.fetch, &share);
    } else {
        j->fetching.fetch = NULL;
        fail_fetch(j, err.text);
    }
}

// The file may have been removed or changed since it was hashed.
bool kin_join_has_own_file(const kin_join *j, const kin_proto_plan *plan) {
    return j->o.model_path && access(j->o.model_path, R_OK) == 0 && kin_join_knows_own_file(j) &&
           memcmp(&j->o.model_hash, &plan->model, sizeof plan->model) == 0;
}

bool kin_join_knows_own_file(const kin_join *j) {
    kin_err err;
    if (!j->o.model || kin_gguf_check_names(j->o.model, &err) == 0) return true;
    kin_log(KIN_LOG_WARN, "%s; until this device is restarted, its layers are fetched from other devices", err.text);
    return false;
}

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
