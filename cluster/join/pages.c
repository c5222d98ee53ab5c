// KV pages of sequences on this device's disk (engine/kv/store.h) and on others'. The device reports the pages that it has
// written; the head says whose pages to copy. Pages that a new plan's layers lack are fetched from the devices that have them
// (fetch/page_fetch.h).
#include "cluster/join/pages.h"

#include <stdlib.h>
#include <string.h>

enum { BUSY_MS = 1000 }; // since the last step

// Takes as many names as fit a message. Returns their number.
static int pop_written(kin_join_pages *p, kin_proto_hash *names, size_t *bytes) {
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
static void report_written(void *arg) {
    kin_join *j = arg;
    kin_proto_hash names[KIN_PROTO_MAX_KEPT];
    size_t bytes;
    for (int n; (n = pop_written(&j->pages, names, &bytes)) > 0;) {
        kin_proto_message m = {.type = KIN_FRAME_KEPT};
        m.kept = (kin_proto_kept){
            .id = j->o.id, .page_bytes = (uint32_t)bytes, .n_names = (uint32_t)n, .names = (const uint8_t *)names};
        if (j->head.link) kin_endpoint_send_message(j->head.link, 0, &m);
    }
}

// Pages for which there is no room here get no copy.
void kin_join_on_page_written(void *user, const kin_page_name *name, size_t n) {
    kin_join *j = user;
    kin_join_pages *p = &j->pages;
    pthread_mutex_lock(&p->mutex);
    if (n != p->bytes) p->n_written = 0; // of another model
    p->bytes = n;
    bool is_first = p->n_written == 0;
    if (p->n_written < KIN_JOIN_PAGES_MAX) p->written[p->n_written++] = *name;
    pthread_mutex_unlock(&p->mutex);
    if (is_first) kin_endpoint_call(j->ring.endpoint, report_written, j);
}

void kin_join_init_pages(kin_join *j) {
    pthread_mutex_init(&j->pages.mutex, NULL);
}

bool kin_join_is_busy(void *user) {
    kin_join *j = user;
    return kin_clock_ms(atomic_load(&j->pages.computed_at), kin_clock_now()) < BUSY_MS;
}

void kin_join_open_pages(kin_join *j) {
    if (j->o.keeps_kv && j->o.cache_dir) kin_ring_member_share_pages(&j->ring, j->o.cache_dir, j->o.kv_cap);
}

// Sends a KEPT without names: this device offers to store copies of others' pages.
static void offer_to_keep(kin_join *j) {
    kin_proto_message m = {.type = KIN_FRAME_KEPT, .kept = {.id = j->o.id, .page_bytes = 1}};
    if (j->head.link) kin_endpoint_send_message(j->head.link, 0, &m);
}

void kin_join_register_page_peers(kin_join *j) {
    kin_proto_endpoint head = {.port = j->head.port};
    if (!j->ring.pages) return;
    kin_page_fetch_forget(j->ring.pages);
    kin_join_fill_endpoint(j, &head);
    kin_page_fetch_know(j->ring.pages, &j->head.id, &head);
    offer_to_keep(j);
}

void kin_join_handle_kept(kin_join *j, const kin_proto_kept *kept) {
    kin_proto_kept reached = *kept;
    if (!j->ring.pages) return;
    kin_join_fill_endpoint(j, &reached.endpoint);
    kin_page_fetch_know(j->ring.pages, &reached.id, &reached.endpoint);
    kin_page_fetch_copy(j->ring.pages, &reached);
}

void kin_join_fini_pages(kin_join *j) {
    pthread_mutex_destroy(&j->pages.mutex);
}
