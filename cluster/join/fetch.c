#include "cluster/join/fetch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

// ---- layers on this device

bool kin_join_is_same_share(const kin_share *a, const kin_share *b) {
    return memcmp(a, b, sizeof *a) == 0; // integers of one size, without padding
}

bool kin_join_has_layers(const kin_join *j, const kin_proto_plan *plan, const kin_windows *windows, const kin_share *share) {
    const kin_layer_set *here = &j->fetching.here;
    bool sliced = !kin_share_is_whole(share) && kin_join_is_same_share(share, &here->share);
    if (!j->fetching.chunks || memcmp(&j->fetching.model, &plan->model, sizeof j->fetching.model) != 0 || windows->n == 0)
        return false;
    for (int i = 0; i < windows->n; i++) {
        for (int il = windows->at[i].layer_begin; il < windows->at[i].layer_end; il++) {
            if (!here->has[il] && !(sliced && here->has_share[il])) return false;
        }
    }
    return true;
}

void kin_join_note_layers(kin_join *j, const kin_windows *windows, const kin_share *share) {
    kin_layer_set *here = &j->fetching.here;
    bool *has = kin_share_is_whole(share) ? here->has : here->has_share;
    if (!kin_share_is_whole(share) && !kin_join_is_same_share(share, &here->share)) {
        here->share = *share;
        memset(here->has_share, 0, sizeof here->has_share);
    }
    for (int i = 0; i < windows->n; i++) {
        for (int il = windows->at[i].layer_begin; il < windows->at[i].layer_end; il++) has[il] = true;
    }
}

// The file may have been removed or changed since it was hashed.
bool kin_join_has_own_file(const kin_join *j, const kin_proto_plan *plan) {
    return j->o.model_path && access(j->o.model_path, R_OK) == 0 && kin_join_knows_own_file(j) &&
           memcmp(&j->o.model_hash, &plan->model, sizeof plan->model) == 0;
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

static const kin_join_fetch_sink *sink_of(const kin_join *j) {
    return j->ahead.fetches ? j->fetching.for_later : j->fetching.for_plan;
}

static void fetch_progress(void *user, const kin_fetch_progress *p) {
    sink_of(user)->progress(user, p);
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

static void fetch_headers(void *user) {
    if (sink_of(user)->headers) sink_of(user)->headers(user);
}

static void fetch_kept(void *user) {
    kin_join *j = user;
    kin_lazy_load_arrived(j->preparing.lazy_load);
}

static void fetch_done(void *user) {
    sink_of(user)->done(user);
}

static void fetch_failed(void *user, const char *reason) {
    kin_join *j = user;
    kin_fetch_cancel(j->fetching.fetch);
    j->fetching.fetch = NULL;
    if (!j->ahead.fetches) kin_lazy_load_end(j->preparing.lazy_load, reason);
    sink_of(j)->failed(j, reason);
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
        sink_of(j)->failed(j, err.text);
    }
}
