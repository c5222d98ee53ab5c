#include "pipeline/relay.h"

#include <stdlib.h>

#include "pipeline/steps.h"
#include "pure/proto/id.h"
#include "pure/proto/membership.h"

enum {
    MAX_HOPS = KIN_MEMBERSHIP_DEVICES,
    SENDER = 0,
    RECEIVER = 1,
    FRAME_MAX_LEAST = 64 << 10, // for requests for pages, and TLS overhead of small frames
};

typedef struct hop {
    kin_relay *of;
    bool is_used;
    kin_proto_id ids[2];
    kin_link *links[2]; // NULL: not connected yet
} hop;

struct kin_relay {
    kin_relay_begun begun;
    void *user;
    uint32_t epoch, frame_max;
    hop hops[MAX_HOPS];
};

int kin_relay_open(kin_relay **out, kin_relay_begun begun, void *user, kin_err *err) {
    kin_relay *r = *out = calloc(1, sizeof *r);
    if (!r) return kin_err_set(err, "out of memory");
    r->begun = begun;
    r->user = user;
    return 0;
}

static void end_hop(hop *h, const char *reason) {
    for (int i = 0; i < 2; i++) kin_link_close(h->links[i], reason);
    *h = (hop){0};
}

static void end_all(kin_relay *r, const char *reason) {
    for (int i = 0; i < MAX_HOPS; i++) {
        if (r->hops[i].is_used) end_hop(&r->hops[i], reason);
    }
}

void kin_relay_close(kin_relay *r, const char *reason) {
    if (!r) return;
    end_all(r, reason);
    free(r);
}

void kin_relay_enter(kin_relay *r, uint32_t epoch, uint32_t frame_max) {
    if (r->epoch != epoch) end_all(r, "the epoch is over");
    r->epoch = epoch;
    r->frame_max = frame_max > FRAME_MAX_LEAST ? frame_max : FRAME_MAX_LEAST;
}

uint64_t kin_relay_moving(const kin_relay *r) {
    uint64_t n = 0;
    for (int i = 0; i < MAX_HOPS; i++) {
        for (int end = 0; end < 2; end++) {
            if (!r->hops[i].links[end]) continue;
            kin_link_stats stats = kin_link_stats_now(r->hops[i].links[end]);
            n += end == RECEIVER ? stats.queued + stats.unacknowledged : stats.partial;
        }
    }
    return n;
}

static void link_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    hop *h = user;
    bool is_step = frame->type == KIN_FRAME_STEP || frame->type == KIN_FRAME_PAGES;
    if (link != h->links[SENDER] || !h->links[RECEIVER] || !is_step) {
        end_hop(h, "a ring link carries only steps");
    } else if (frame->epoch == h->of->epoch) {
        kin_frame_part part = {payload, frame->length};
        kin_link_sent sent = kin_link_send(h->links[RECEIVER], frame->type, frame->epoch, 1, &part);
        if (sent == KIN_LINK_FULL) end_hop(h, "the next member does not read its messages");
    }
}

static void link_closed(void *user, kin_link *link, const char *reason) {
    hop *h = user;
    for (int i = 0; i < 2; i++) {
        if (h->links[i] == link) h->links[i] = NULL;
    }
    end_hop(h, reason);
}

static hop *find_hop(kin_relay *r, const kin_proto_id ids[2]) {
    hop *empty = NULL;
    for (int i = 0; i < MAX_HOPS; i++) {
        hop *h = &r->hops[i];
        if (!h->is_used)
            empty = empty ? empty : h;
        else if (kin_proto_id_equal(&h->ids[SENDER], &ids[SENDER]) && kin_proto_id_equal(&h->ids[RECEIVER], &ids[RECEIVER]))
            return h;
    }
    if (empty) *empty = (hop){.of = r, .is_used = true, .ids = {ids[SENDER], ids[RECEIVER]}};
    return empty;
}

void kin_relay_add(kin_relay *r, kin_endpoint *endpoint, kin_link *link, const kin_proto_open *open) {
    static const kin_link_callbacks callbacks = {.frame = link_frame, .closed = link_closed};
    int end_of = open->role == KIN_PROTO_RING ? SENDER : RECEIVER;
    const kin_proto_id ids[2] = {end_of == SENDER ? open->id : open->peer, end_of == SENDER ? open->peer : open->id};
    hop *h = find_hop(r, ids);
    if (h && h->links[end_of]) { // the device has noticed a break before the head did
        end_hop(h, "the device has reconnected");
        h = find_hop(r, ids);
    }
    if (!h) {
        kin_endpoint_refuse(link, "busy: the head relays for too many devices");
        return;
    }
    h->links[end_of] = link;
    kin_link_accept(link, &callbacks, h);
    if (end_of == SENDER) kin_link_set_frame_max(link, r->frame_max);
    if (end_of == RECEIVER) kin_link_set_queue_max(link, (size_t)KIN_STEPS_BUFFERS * r->frame_max);
    if (!h->links[!end_of]) return;
    r->begun(r->user, &h->ids[SENDER], &h->ids[RECEIVER]); // before either end can receive anything
    kin_endpoint_send_accept(endpoint, h->links[RECEIVER]);
    kin_endpoint_send_accept(endpoint, h->links[SENDER]);
}
