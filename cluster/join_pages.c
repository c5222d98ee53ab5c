// KV pages of sequences on this device's disk (engine/kv_store.h) and on others'. The device reports the pages that it has
// written; the head says whose pages to copy. Pages that a new plan's layers lack are fetched from the devices that have them
// (fetch/page_fetch.h).
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cluster/join_impl.h"

enum { BUSY_MS = 1000 }; // since the last step

// Takes as many names as fit a message. Returns their number.
static int take_written(kin_join_pages *p, kin_proto_hash *names, size_t *bytes) {
    pthread_mutex_lock(&p->mutex);
    int n = p->n_written < KIN_PROTO_MAX_KEPT ? p->n_written : KIN_PROTO_MAX_KEPT;
    for (int i = 0; i < n; i++) names[i] = kin_page_fetch_hash(&p->written[i]);
    p->n_written -= n;
    memmove(p->written, p->written + n, (size_t)p->n_written * sizeof *p->written);
    *bytes = p->bytes;
    pthread_mutex_unlock(&p->mutex);
    return n;
}

// kin_mailbox_fn: reports written pages to the head. Pages that cannot be reported now get no copy.
static void tell_written(void *arg) {
    kin_join *j = arg;
    kin_proto_hash names[KIN_PROTO_MAX_KEPT];
    size_t bytes;
    for (int n; (n = take_written(&j->pages, names, &bytes)) > 0;) {
        kin_proto_message m = {.type = KIN_FRAME_KEPT};
        m.kept = (kin_proto_kept){
            .id = j->o.id, .page_bytes = (uint32_t)bytes, .n_names = (uint32_t)n, .names = (const uint8_t *)names};
        if (j->control) kin_endpoint_send_message(j->control, 0, &m);
    }
}

// kin_kv_peers, in the store's thread. Pages for which there is no room here get no copy.
static void on_page_written(void *user, const kin_page_name *name, size_t n) {
    kin_join *j = user;
    kin_join_pages *p = &j->pages;
    pthread_mutex_lock(&p->mutex);
    if (n != p->bytes) p->n_written = 0; // of another model
    p->bytes = n;
    bool is_first = p->n_written == 0;
    if (p->n_written < KIN_JOIN_PAGES_MAX) p->written[p->n_written++] = *name;
    pthread_mutex_unlock(&p->mutex);
    if (is_first) kin_endpoint_call(j->endpoint, tell_written, j);
}

// Called by the computing thread.
static void on_pages_wanted(void *user, const kin_page_name *names, int n, size_t bytes, int timeout_ms) {
    kin_join *j = user;
    if (j->pages.fetch) kin_page_fetch_want(j->pages.fetch, names, n, bytes, timeout_ms);
}

void kin_join_init_pages(kin_join *j) {
    pthread_mutex_init(&j->pages.mutex, NULL);
    j->pages.peers = (kin_kv_peers){.written = on_page_written, .fetch = on_pages_wanted, .user = j};
}

static bool is_busy(void *user) {
    kin_join *j = user;
    return kin_clock_ms(atomic_load(&j->pages.computed_at), kin_clock_now()) < BUSY_MS;
}

// Without shared pages, sequences are recomputed.
void kin_join_open_pages(kin_join *j) {
    kin_err err;
    kin_page_fetch_options o = {
        .endpoint = j->endpoint, .dir = j->o.cache_dir, .cap = j->o.kv_cap, .is_busy = is_busy, .user = j};
    if (!j->o.keeps_kv || !j->o.cache_dir) return;
    if (kin_chunk_server_give_pages(j->server, j->o.cache_dir, &err) != 0 || kin_page_fetch_open(&j->pages.fetch, &o, &err) != 0)
        kin_log(KIN_LOG_WARN, "KV pages are not shared with other devices: %s", err.text);
}

// Sends a KEPT without names: this device offers to store copies of others' pages.
static void offer_to_keep(kin_join *j) {
    kin_proto_message m = {.type = KIN_FRAME_KEPT, .kept = {.id = j->o.id, .page_bytes = 1}};
    if (j->control) kin_endpoint_send_message(j->control, 0, &m);
}

void kin_join_meet_pages(kin_join *j) {
    kin_proto_endpoint head = {.port = j->head_port};
    if (!j->pages.fetch) return;
    kin_page_fetch_forget(j->pages.fetch);
    kin_join_fill_endpoint(j, &head);
    kin_page_fetch_know(j->pages.fetch, &j->head_id, &head);
    offer_to_keep(j);
}

void kin_join_take_kept(kin_join *j, const kin_proto_kept *kept) {
    kin_proto_kept reached = *kept;
    if (!j->pages.fetch) return;
    kin_join_fill_endpoint(j, &reached.endpoint);
    kin_page_fetch_know(j->pages.fetch, &reached.id, &reached.endpoint);
    kin_page_fetch_copy(j->pages.fetch, &reached);
}

void kin_join_end_pages(kin_join *j) {
    kin_page_fetch_close(j->pages.fetch);
    j->pages.fetch = NULL;
}

void kin_join_fini_pages(kin_join *j) {
    pthread_mutex_destroy(&j->pages.mutex);
}
