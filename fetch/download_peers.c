#include "fetch/download_peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/rng.h"
#include "fetch/download.h"
#include "model/manifest.h"
#include "pure/proto/id.h"
#include "pure/proto/label.h"

enum { RETRY_MS_MIN = 250, RETRY_MS_MAX = 5000, HEAD = 0 };

typedef struct peer {
    kin_download_peers *peers;
    kin_proto_id id;
    kin_proto_endpoint endpoint;
    int i_address;  // next address to try
    uint8_t *offer; // [(n_chunks + 7) / 8], NULL: nothing
    uint32_t n_chunks;
    kin_download *source; // NULL: no link
    bool is_banned;
    kin_time retry_at;
    uint32_t retry_ms; // wait after the next failure
    char reason[256];
} peer;

struct kin_download_peers {
    uv_loop_t *loop;
    kin_download_peers_options o;
    kin_download_peers_callbacks callbacks;
    void *user;
    kin_rng rng;
    peer *list[KIN_DOWNLOAD_PEERS_MAX]; // allocated separately, because links point to them
    int n;
    bool is_gentle, is_closed;
};

static int number_of(const peer *p) {
    for (int i = 0; i < p->peers->n; i++) {
        if (p->peers->list[i] == p) return i;
    }
    return -1;
}

// ---- links

// Waits are randomized to between half and all of retry_ms.
static void wait_after_failure(peer *p, const char *reason) {
    uint64_t wait_ms = p->retry_ms / 2 + kin_rng_u64(&p->peers->rng) % (p->retry_ms / 2 + 1);
    p->retry_at = kin_clock_now() + wait_ms * 1000000;
    p->retry_ms = p->retry_ms * 2 < RETRY_MS_MAX ? p->retry_ms * 2 : RETRY_MS_MAX;
    if (p->endpoint.n_addresses > 0) p->i_address = (p->i_address + 1) % p->endpoint.n_addresses;
    snprintf(p->reason, sizeof p->reason, "%s", reason);
}

static void on_download_accepted(void *user) {
    peer *p = user;
    p->peers->callbacks.opened(p->peers->user, number_of(p));
}

static void forward_hashes(void *user, const kin_proto_hashes *hashes) {
    peer *p = user;
    p->peers->callbacks.hashes(p->peers->user, number_of(p), hashes);
}

static void forward_heard(void *user, uint32_t n_bytes) {
    peer *p = user;
    p->retry_ms = RETRY_MS_MIN;
    p->peers->callbacks.heard(p->peers->user, number_of(p), n_bytes);
}

// Adds the peer to the part's senders, if it sent any of it.
static kin_chunk_part sign(const peer *p, const kin_chunk_part *part) {
    kin_chunk_part signed_part = *part;
    if (part->n_here > part->n_before) signed_part.senders |= UINT64_C(1) << number_of(p);
    return signed_part;
}

static void on_chunk(void *user, const kin_chunk_part *whole) {
    peer *p = user;
    kin_chunk_part chunk = sign(p, whole);
    p->peers->callbacks.chunk(p->peers->user, number_of(p), &chunk);
}

static void on_part(void *user, const kin_chunk_part *part) {
    peer *p = user;
    kin_chunk_part kept = sign(p, part);
    if (p->is_banned || p->peers->is_closed)
        free(kept.bytes);
    else
        p->peers->callbacks.part(p->peers->user, &kept);
}

static void forward_lacks(void *user, uint32_t i_chunk) {
    peer *p = user;
    p->peers->callbacks.lacks(p->peers->user, number_of(p), i_chunk);
}

static void on_download_closed(void *user, const char *reason) {
    peer *p = user;
    p->source = NULL;
    wait_after_failure(p, reason);
    p->peers->callbacks.lost(p->peers->user, number_of(p), reason);
}

static void open_link(peer *p) {
    static const kin_download_callbacks callbacks = {on_download_accepted, forward_hashes,    forward_heard, on_chunk, on_part,
                                                     forward_lacks,        on_download_closed};
    const kin_download_peers *all = p->peers;
    kin_err err;
    kin_dial_options o = kin_dial_options_default(all->o.link.tls);
    o.link = all->o.link;
    o.to = kin_dial_address(p->endpoint.address[p->i_address], p->endpoint.port);
    o.open = all->o.self;
    o.answers = p->id;
    if (kin_download_open(&p->source, all->loop, &o, &callbacks, p, &err) == 0)
        kin_download_set_rate_limited(p->source, all->is_gentle);
    else
        wait_after_failure(p, err.text);
}

// ---- the list

static peer *add_peer(kin_download_peers *all, const kin_proto_id *id) {
    peer *p = all->n < KIN_DOWNLOAD_PEERS_MAX ? calloc(1, sizeof *p) : NULL;
    if (!p) return NULL;
    p->peers = all;
    p->id = *id;
    p->retry_ms = RETRY_MS_MIN;
    all->list[all->n++] = p;
    return p;
}

int kin_download_peers_open(kin_download_peers **out, uv_loop_t *loop, const kin_download_peers_options *options,
                            const kin_download_peers_callbacks *callbacks, void *user, kin_err *err) {
    kin_download_peers *all = *out = calloc(1, sizeof *all);
    peer *head = NULL;
    if (all) {
        *all = (kin_download_peers){.loop = loop, .o = *options, .callbacks = *callbacks, .user = user};
        kin_rng_seed(&all->rng, kin_get_u64(options->self.id.bytes));
        head = add_peer(all, &options->head_id);
    }
    if (!head) {
        free(all);
        *out = NULL;
        return kin_err_set(err, "out of memory");
    }
    head->endpoint.port = options->head_port;
    head->endpoint.n_addresses = 1;
    kin_label_set(head->endpoint.address[0], KIN_PROTO_MAX_STR, options->head_address);
    all->o.head_address = NULL;
    return 0;
}

void kin_download_peers_close(kin_download_peers *all) {
    if (!all) return;
    all->is_closed = true;
    kin_download_peers_rest(all);
    for (int i = 0; i < all->n; i++) {
        free(all->list[i]->offer);
        free(all->list[i]);
    }
    free(all);
}

int kin_download_peers_find(const kin_download_peers *all, const kin_proto_id *id) {
    for (int i = 1; i < all->n; i++) {
        if (kin_proto_id_equal(&all->list[i]->id, id)) return i;
    }
    return -1;
}

int kin_download_peers_n(const kin_download_peers *all) {
    return all->n;
}

int kin_download_peers_know(kin_download_peers *all, const kin_proto_have *have) {
    bool is_of_use = have->n_chunks <= KIN_MANIFEST_CHUNKS_MAX && have->endpoint.n_addresses > 0;
    if (!is_of_use || kin_proto_id_equal(&have->id, &all->o.self.id) || kin_proto_id_equal(&have->id, &all->list[HEAD]->id)) {
        return -1;
    }
    size_t n = ((size_t)have->n_chunks + 7) / 8;
    uint8_t *offer = malloc(n);
    int i = kin_download_peers_find(all, &have->id);
    if (offer && i < 0 && add_peer(all, &have->id)) i = all->n - 1;
    if (!offer || i < 0) {
        free(offer);
        return -1;
    }
    peer *p = all->list[i];
    memcpy(offer, have->bitmap, n);
    free(p->offer);
    p->offer = offer;
    p->n_chunks = have->n_chunks;
    p->endpoint = have->endpoint;
    p->i_address %= p->endpoint.n_addresses;
    return i;
}

const uint8_t *kin_download_peers_offer(const kin_download_peers *all, int i, uint32_t n_chunks) {
    return all->list[i]->n_chunks == n_chunks ? all->list[i]->offer : NULL;
}

// ---- opening

static bool has_some(const peer *p, const uint8_t *missing, uint32_t n_chunks) {
    if (!p->offer || p->n_chunks != n_chunks) return false;
    for (size_t i = 0; i < ((size_t)n_chunks + 7) / 8; i++) {
        if (p->offer[i] & missing[i]) return true;
    }
    return false;
}

static bool is_needed(const peer *p, const uint8_t *missing, uint32_t n_chunks) {
    return p == p->peers->list[HEAD] || (missing && has_some(p, missing, n_chunks));
}

void kin_download_peers_tick(kin_download_peers *all, const uint8_t *missing, uint32_t n_chunks) {
    kin_time now = kin_clock_now();
    int n_links = 0;
    for (int i = 1; i < all->n; i++) n_links += all->list[i]->source != NULL;
    for (int i = 0; i < all->n; i++) {
        peer *p = all->list[i];
        if (p->source || p->is_banned || now < p->retry_at || (i != HEAD && n_links >= all->o.n_links)) continue;
        if (!is_needed(p, missing, n_chunks)) continue;
        open_link(p);
        n_links += i != HEAD && p->source;
    }
}

// ---- an open peer

bool kin_download_peers_is_open(const kin_download_peers *all, int i) {
    return all->list[i]->source && kin_download_is_accepted(all->list[i]->source);
}

bool kin_download_peers_ask_hashes(kin_download_peers *all, int i, const kin_proto_hash *model) {
    return all->list[i]->source && kin_download_ask_hashes(all->list[i]->source, model);
}

bool kin_download_peers_ask(kin_download_peers *all, int i, const kin_proto_hash *model, const kin_chunk_part *part, uint32_t n) {
    return all->list[i]->source && kin_download_ask(all->list[i]->source, model, part, n);
}

int kin_download_peers_n_asked_all(const kin_download_peers *all) {
    int n = 0;
    for (int i = 0; i < all->n; i++) n += kin_download_peers_n_asked(all, i);
    return n;
}

void kin_download_peers_listen(kin_download_peers *all) {
    for (int i = 0; i < all->n; i++) {
        if (all->list[i]->source) kin_download_listen(all->list[i]->source);
    }
}

void kin_download_peers_set_rate_limited(kin_download_peers *all, bool is_gentle) {
    all->is_gentle = is_gentle;
    for (int i = 0; i < all->n; i++) {
        if (all->list[i]->source) kin_download_set_rate_limited(all->list[i]->source, is_gentle);
    }
}

void kin_download_peers_tick_rates(kin_download_peers *all) {
    for (int i = 0; i < all->n; i++) {
        if (all->list[i]->source) kin_download_tick(all->list[i]->source);
    }
}

int kin_download_peers_n_asked(const kin_download_peers *all, int i) {
    return all->list[i]->source ? kin_download_n_asked(all->list[i]->source) : 0;
}

uint32_t kin_download_peers_asked(const kin_download_peers *all, int i, int k) {
    return kin_download_asked(all->list[i]->source, k);
}

// ---- ending links

static void close_link(peer *p, const char *reason) {
    kin_download_close(p->source, reason);
    p->source = NULL;
}

void kin_download_peers_drop(kin_download_peers *all, int i, const char *reason) {
    close_link(all->list[i], reason);
    wait_after_failure(all->list[i], reason);
}

void kin_download_peers_ban(kin_download_peers *all, int i, const char *reason) {
    all->list[i]->is_banned = true;
    close_link(all->list[i], reason);
    snprintf(all->list[i]->reason, sizeof all->list[i]->reason, "%s", reason);
}

void kin_download_peers_leave(kin_download_peers *all, int i) {
    peer *p = all->list[i];
    close_link(p, NULL);
    free(p->offer);
    p->offer = NULL;
    p->n_chunks = 0;
    p->retry_at = 0;
    p->retry_ms = RETRY_MS_MIN;
}

void kin_download_peers_rest(kin_download_peers *all) {
    for (int i = 0; i < all->n; i++) close_link(all->list[i], NULL);
}

// ---- inspection

int kin_download_peers_n_open(const kin_download_peers *all) {
    int n = 0;
    for (int i = 0; i < all->n; i++) n += kin_download_peers_is_open(all, i);
    return n;
}

int kin_download_peers_n_banned(const kin_download_peers *all) {
    int n = 0;
    for (int i = 0; i < all->n; i++) n += all->list[i]->is_banned;
    return n;
}

const char *kin_download_peers_reason(const kin_download_peers *all, int i) {
    return all->list[i]->reason;
}
