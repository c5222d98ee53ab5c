#include "cluster/ring_member.h"

#include <stdlib.h>

#include "base/log.h"
#include "pipeline/steps.h"

// ---- links

// The member takes part once its link to the next one and those of its group are open.
static void on_hop(void *user, kin_side side, uint32_t epoch, bool is_open, const char *reason) {
    kin_ring_member *m = user;
    if (side == KIN_SIDE_NEXT) m->is_next_open = is_open;
    if (side == KIN_SIDE_NEXT && is_open && !kin_group_links_is_complete(m->group_links)) return;
    m->o.hop(m->o.user, side, epoch, is_open, reason);
}

static void on_group(void *user, uint32_t epoch, bool is_complete, const char *reason) {
    kin_ring_member *m = user;
    if (!is_complete || m->is_next_open) m->o.hop(m->o.user, KIN_SIDE_NEXT, epoch, is_complete, reason);
}

// A sum failed: the epoch cannot continue.
static void on_sum_failed(void *arg) {
    kin_ring_member *m = arg;
    pthread_mutex_lock(&m->mutex);
    kin_err why = m->sum_error;
    uint32_t epoch = m->sum_error_epoch;
    pthread_mutex_unlock(&m->mutex);
    m->o.hop(m->o.user, KIN_SIDE_NEXT, epoch, false, why.text);
}

// kin_exchange_broken, in the computing thread.
static void sum_failed(void *user, uint32_t epoch, const char *reason) {
    kin_ring_member *m = user;
    pthread_mutex_lock(&m->mutex);
    kin_err_set(&m->sum_error, "%s", reason);
    m->sum_error_epoch = epoch;
    pthread_mutex_unlock(&m->mutex);
    kin_endpoint_call(m->endpoint, on_sum_failed, m);
}

void kin_ring_member_enter(kin_ring_member *m, const kin_ring_place *place, const kin_proto_group *group,
                           kin_activation_type type) {
    kin_neighbours_enter(m->neighbours, place);
    if (place->epoch == m->entered) return;
    m->is_next_open = false;
    m->entered = place->epoch;
    kin_group_links_enter(m->group_links, place->epoch, group, type);
}

bool kin_ring_member_accept(kin_ring_member *m, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    switch (open->role) {
    case KIN_PROTO_RING:
    case KIN_PROTO_BACK: return kin_neighbours_accept(m->neighbours, link, epoch, open);
    case KIN_PROTO_GROUP: kin_group_links_accept(m->group_links, link, epoch, open); return true;
    case KIN_PROTO_FETCH:
        kin_endpoint_send_accept(m->endpoint, link);
        kin_chunk_server_accept(m->server, link);
        return true;
    default: return false;
    }
}

// ---- pages of the KV cache

// kin_kv_peers, in the store's thread.
static void on_page_written(void *user, const kin_page_name *name, size_t n) {
    const kin_ring_member *m = user;
    if (m->o.page_written) m->o.page_written(m->o.user, name, n);
}

// Called by the computing thread.
static void on_pages_wanted(void *user, const kin_page_name *names, int n, size_t bytes, int timeout_ms) {
    const kin_ring_member *m = user;
    if (m->pages) kin_page_fetch_want(m->pages, names, n, bytes, timeout_ms);
}

void kin_ring_member_share_pages(kin_ring_member *m, const char *dir, uint64_t cap) {
    kin_page_fetch_options o = {.endpoint = m->endpoint, .dir = dir, .cap = cap, .is_busy = m->o.is_busy, .user = m->o.user};
    kin_err err;
    if (kin_chunk_server_give_pages(m->server, dir, &err) != 0 || kin_page_fetch_open(&m->pages, &o, &err) != 0)
        kin_log(KIN_LOG_WARN, "KV pages are not shared with other devices: %s", err.text);
}

// ---- weights for the next plan

// A message from the packing thread.
typedef struct packed {
    const kin_ring_member *member;
    uint32_t ticket;
} packed;

static void on_packed(void *arg) {
    packed *p = arg;
    p->member->o.packed(p->member->o.user, p->ticket);
    free(p);
}

static void packing_is_done(void *user, uint32_t ticket) {
    const kin_ring_member *m = user;
    packed *p = malloc(sizeof *p);
    kin_assert(p);
    *p = (packed){m, ticket};
    if (!kin_endpoint_call(m->endpoint, on_packed, p)) free(p);
}

static int pack(void *user, const kin_prepacking_job *job, const atomic_bool *stop, kin_packed **held, kin_err *err) {
    const kin_ring_member *m = user;
    return m->o.pack(m->o.user, job, stop, held, err);
}

// ---- opening and closing

int kin_ring_member_open(kin_ring_member *m, const kin_ring_member_options *o, kin_err *err) {
    *m = (kin_ring_member){.o = *o, .peers = {.written = on_page_written, .fetch = on_pages_wanted, .user = m}};
    const kin_exchange_options xo = {.broken = sum_failed, .user = m, .stop = o->stop, .n_signs = o->n_signs};
    pthread_mutex_init(&m->mutex, NULL);
    if (kin_exchange_open(&m->exchange, &xo, err) != 0 || kin_message_pool_open(&m->pool, KIN_STEPS_BUFFERS, err) != 0 ||
        kin_message_queue_open(&m->in, err) != 0 ||
        kin_endpoint_open(&m->endpoint, &o->endpoint, o->callbacks, o->user, err) != 0)
        return KIN_FAIL;
    kin_neighbours_options no = {.endpoint = m->endpoint, .pool = m->pool, .in = m->in, .trace = o->trace};
    if (kin_neighbours_open(&m->neighbours, &no, on_hop, m, err) != 0) return KIN_FAIL;
    if (kin_group_links_open(&m->group_links, m->endpoint, m->exchange, on_group, m, err) != 0) return KIN_FAIL;
    m->job = calloc(1, sizeof *m->job);
    if (!m->job) return kin_err_set(err, "out of memory");
    const kin_prepacking_options po = {.pack = pack, .done = packing_is_done, .user = m};
    return kin_prepacking_open(&m->prepacking, &po, err);
}

void kin_ring_member_end(kin_ring_member *m, const char *reason) {
    kin_neighbours_close(m->neighbours, reason);
    m->neighbours = NULL;
    kin_page_fetch_close(m->pages);
    m->pages = NULL;
    kin_group_links_close(m->group_links);
    m->group_links = NULL;
    kin_chunk_server_close(m->server);
    m->server = NULL;
}

void kin_ring_member_stop(kin_ring_member *m, kin_mailbox_fn end, void *arg) {
    kin_prepacking_stop(m->prepacking); // first: its thread reports through the endpoint
    kin_endpoint_close(m->endpoint, end, arg);
    m->endpoint = NULL;
    if (m->in) kin_message_queue_drain(m->in, m->pool);
}

void kin_ring_member_close(kin_ring_member *m) {
    kin_prepacking_close(m->prepacking);
    free(m->job);
    kin_exchange_close(m->exchange);
    kin_message_queue_close(m->in);
    kin_message_pool_close(m->pool);
    if (m->o.hop) pthread_mutex_destroy(&m->mutex);
    kin_key_wipe(&m->o.endpoint.key);
}
