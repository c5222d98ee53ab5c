#include "cluster/connections.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "net/endpoint.h"

// A device's control link.
typedef struct peer {
    kin_connections *connections;
    kin_link *link; // NULL: unused
    uint32_t number;
    bool has_facts;
    int n_asked;                 // STATUS_WANTED without an answer
    bool is_unresponsive;        // a message that must arrive found no room
    kin_proto_endpoint endpoint; // as the device reports it
    uint8_t *have;               // its last HAVE, as sent to others
    size_t n_have;
    uint64_t missed;      // bit i: the last HAVE of peers[i] found no room on this link
    kin_proto_hash model; // of the HAVE above
    kin_proto_id id;
    kin_status_sample sample;
} peer;

_Static_assert(KIN_CONNECTIONS_MAX <= 64, "peer.missed has a bit for each");

struct kin_connections {
    kin_connections_callbacks callbacks;
    void *user;
    peer peers[KIN_CONNECTIONS_MAX];
    uint32_t next_number;
    kin_proto_message message; // the incoming one
};

int kin_connections_open(kin_connections **out, const kin_connections_callbacks *callbacks, void *user, kin_err *err) {
    kin_connections *c = *out = calloc(1, sizeof *c);
    if (!c) return kin_err_set(err, "out of memory");
    c->callbacks = *callbacks;
    c->user = user;
    return 0;
}

// If it does not fit now, a tick sends the sender's last HAVE: a device that has the whole model sends no later one.
static void send_have(peer *to, const peer *from, const uint8_t *bytes, size_t n) {
    const uint64_t bit = UINT64_C(1) << (from - from->connections->peers);
    kin_frame_part part = {bytes, n};
    if (kin_link_send(to->link, KIN_FRAME_HAVE, 0, 1, &part) == KIN_LINK_FULL)
        to->missed |= bit;
    else
        to->missed &= ~bit;
}

static void send_missed(peer *to) {
    const kin_connections *c = to->connections;
    for (int i = 0; i < KIN_CONNECTIONS_MAX && to->missed; i++) {
        const peer *from = &c->peers[i];
        if (!(to->missed >> i & 1)) continue;
        if (from->link && from->have)
            send_have(to, from, from->have, from->n_have);
        else
            to->missed &= ~(UINT64_C(1) << i);
    }
}

static void forward_have(const peer *from, const uint8_t *bytes, size_t n) {
    kin_connections *c = from->connections;
    for (int i = 0; i < KIN_CONNECTIONS_MAX; i++) {
        if (c->peers[i].link && &c->peers[i] != from) send_have(&c->peers[i], from, bytes, n);
    }
}

static void send_gone(const peer *p) {
    static const uint8_t nothing;
    uint8_t bytes[256];
    kin_proto_have gone = {.model = p->model, .id = p->id, .n_chunks = 1, .bitmap = &nothing};
    size_t n = kin_proto_size_have(&gone);
    kin_assert(n <= sizeof bytes);
    kin_proto_encode_have(bytes, n, &gone);
    forward_have(p, bytes, n);
}

static void forget(peer *p) {
    p->link = NULL;
    if (p->have) send_gone(p);
    free(p->have);
    p->have = NULL;
}

static void drop(peer *p, const char *reason) {
    kin_link_close(p->link, reason);
    forget(p);
}

void kin_connections_close(kin_connections *c, const char *reason) {
    if (!c) return;
    for (int i = 0; i < KIN_CONNECTIONS_MAX; i++) {
        if (c->peers[i].link) drop(&c->peers[i], reason);
    }
    free(c);
}

static peer *find_peer(const kin_connections *c, uint32_t number) {
    for (int i = 0; i < KIN_CONNECTIONS_MAX; i++) {
        if (c->peers[i].link && c->peers[i].number == number) return (peer *)&c->peers[i];
    }
    return NULL;
}

kin_link *kin_connections_link(const kin_connections *c, uint32_t number) {
    const peer *p = find_peer(c, number);
    return p ? p->link : NULL;
}

void kin_connections_drop(kin_connections *c, uint32_t number, const char *reason) {
    peer *p = find_peer(c, number);
    if (p) drop(p, reason);
}

bool kin_connections_endpoint(const kin_connections *c, uint32_t number, kin_proto_endpoint *out) {
    const peer *p = find_peer(c, number);
    if (!p || !p->has_facts) return false;
    *out = p->endpoint;
    // The address that the head sees is the last resort: other devices may have another name for that link, or another path.
    const char *seen = kin_link_address(p->link);
    bool is_there = false;
    for (int i = 0; i < out->n_addresses; i++) is_there = is_there || strcmp(out->address[i], seen) == 0;
    if (!is_there && out->n_addresses < KIN_PROTO_MAX_ADDRESSES)
        snprintf(out->address[out->n_addresses++], sizeof out->address[0], "%s", seen);
    return true;
}

// ---- messages to devices

bool kin_connections_send(kin_connections *c, uint32_t number, uint32_t epoch, const kin_proto_message *m) {
    peer *p = find_peer(c, number);
    kin_link_sent sent = p ? kin_endpoint_send_message(p->link, epoch, m) : KIN_LINK_SHUT;
    if (sent == KIN_LINK_FULL) p->is_unresponsive = true;
    return sent == KIN_LINK_SENT || sent == KIN_LINK_QUEUED;
}

static void throw_out(peer *p, const char *reason) {
    kin_connections *c = p->connections;
    uint32_t number = p->number;
    kin_log(KIN_LOG_WARN, "%s: %s", kin_link_name(p->link), reason);
    drop(p, reason);
    c->callbacks.lost(c->user, number, reason);
}

void kin_connections_tick(kin_connections *c) {
    for (int i = 0; i < KIN_CONNECTIONS_MAX; i++) {
        peer *p = &c->peers[i];
        if (p->link && p->is_unresponsive) throw_out(p, "it does not read its messages");
        if (p->link) send_missed(p);
    }
}

// ---- messages from devices

static void keep_status(peer *p, const kin_proto_status *status) {
    p->sample.has_before = p->sample.has_now;
    p->sample.before = p->sample.now;
    p->sample.has_now = true;
    p->sample.now = *status;
    if (p->n_asked > 0) p->n_asked--;
    p->sample.is_fresh = p->n_asked == 0;
}

// Only PROFILE may come before DEVICE.
static bool comes_in_order(const peer *p, kin_frame_type type) {
    return p->has_facts || type == KIN_FRAME_PROFILE || type == KIN_FRAME_DEVICE;
}

static void handle_message(peer *p, uint32_t epoch, kin_proto_message *m) {
    const kin_connections *c = p->connections;
    if (!comes_in_order(p, m->type)) {
        throw_out(p, "it sent a message before its profile");
        return;
    }
    switch ((int)m->type) {
    case KIN_FRAME_STATUS: keep_status(p, &m->status); return;
    case KIN_FRAME_DEVICE:
        p->endpoint = m->device.endpoint;
        p->has_facts = true;
        break;
    case KIN_FRAME_READY: p->sample.ready = m->ready; break;
    }
    c->callbacks.message(c->user, p->number, epoch, m);
}

static void peer_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    peer *p = user;
    (void)link;
    kin_err err;
    kin_proto_message *m = &p->connections->message;
    if (kin_proto_decode(frame->type, payload, frame->length, m, &err) == 0)
        handle_message(p, frame->epoch, m);
    else
        throw_out(p, err.text);
}

static void peer_closed(void *user, kin_link *link, const char *reason) {
    peer *p = user;
    (void)link;
    uint32_t number = p->number;
    forget(p);
    p->connections->callbacks.lost(p->connections->user, number, reason);
}

uint32_t kin_connections_add(kin_connections *c, kin_link *link) {
    static const kin_link_callbacks callbacks = {.frame = peer_frame, .closed = peer_closed};
    peer *p = NULL;
    for (int i = 0; i < KIN_CONNECTIONS_MAX && !p; i++) p = c->peers[i].link ? NULL : &c->peers[i];
    if (!p) {
        kin_link_close(link, "busy: too many connections");
        return 0;
    }
    *p = (peer){.connections = c, .link = link, .number = ++c->next_number};
    kin_link_accept(link, &callbacks, p);
    kin_link_set_frame_max(link, KIN_FRAME_CAP_LARGE);
    return p->number;
}

// ---- parts of the model

void kin_connections_relay(kin_connections *c, uint32_t number, const kin_proto_have *have) {
    peer *from = find_peer(c, number);
    size_t n = kin_proto_size_have(have);
    uint8_t *bytes = from ? malloc(n) : NULL;
    if (from && !bytes) kin_log(KIN_LOG_WARN, "no memory to tell others what %s has of the model", kin_link_name(from->link));
    if (!bytes) return;
    kin_proto_encode_have(bytes, n, have);
    free(from->have);
    from->have = bytes;
    from->n_have = n;
    from->model = have->model;
    from->id = have->id;
    forward_have(from, bytes, n);
}

void kin_connections_send_haves(kin_connections *c, uint32_t number) {
    peer *to = find_peer(c, number);
    for (int i = 0; i < KIN_CONNECTIONS_MAX && to; i++) {
        const peer *p = &c->peers[i];
        if (p->link && p != to && p->have) send_have(to, p, p->have, p->n_have);
    }
}

// ---- status

void kin_connections_ask(kin_connections *c) {
    for (int i = 0; i < KIN_CONNECTIONS_MAX; i++) {
        peer *p = &c->peers[i];
        if (!p->link || !p->has_facts) continue;
        kin_link_sent sent = kin_link_send(p->link, KIN_FRAME_STATUS_WANTED, 0, 0, NULL);
        if (sent == KIN_LINK_SENT || sent == KIN_LINK_QUEUED) p->n_asked++;
        p->sample.is_fresh = false;
    }
}

bool kin_connections_has_answered(const kin_connections *c) {
    for (int i = 0; i < KIN_CONNECTIONS_MAX; i++) {
        if (c->peers[i].link && c->peers[i].n_asked > 0) return false;
    }
    return true;
}

void kin_connections_ask_no_more(kin_connections *c) {
    for (int i = 0; i < KIN_CONNECTIONS_MAX; i++) c->peers[i].n_asked = 0;
}

kin_status_sample kin_connections_sample_of(const kin_connections *c, uint32_t number) {
    const peer *p = find_peer(c, number);
    if (!p) return (kin_status_sample){0};
    kin_status_sample sample = p->sample;
    sample.rtt_ns = kin_link_stats_now(p->link).rtt_ns;
    return sample;
}
