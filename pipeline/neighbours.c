#include "pipeline/neighbours.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/dial.h"
#include "pipeline/steps.h"
#include "pure/proto/id.h"

enum {
    HANDSHAKE_MS = 2000, // for a ring link; then the other end tries, or the head relays
    ANSWER_MS = 6000,    // from connecting to the answer to OPEN
    FRAME_MAX_CONTROL = 64 << 10,
};

typedef struct hop {
    kin_neighbours *of;
    kin_side side;
    kin_link *link; // open and in use
    kin_dial *dial; // opened here, not answered yet
    unsigned n_tries;
} hop;

struct kin_neighbours {
    kin_neighbours_options o;
    kin_neighbours_report report;
    void *user;
    kin_ring_place place;
    hop hops[KIN_N_SIDES];
    uint64_t net_in, net_out; // of closed links
    uint32_t n_came;          // frames of this epoch, from the previous member

    pthread_mutex_t mutex; // guards the following: frames from other threads, in the order of sending
    kin_message_buffer *out_first, **out_end;
    uint32_t out_epoch, n_left; // epoch of the last frame, and the number of its frames
    bool is_flush_called;
};

static void report_hop(hop *h, bool is_open, const char *reason) {
    kin_neighbours *n = h->of;
    n->report(n->user, h->side, n->place.epoch, is_open, reason);
}

// ---- links in use

static void count_bytes(hop *h) {
    kin_link_stats stats = kin_link_stats_now(h->link);
    h->of->net_in += stats.bytes_in;
    h->of->net_out += stats.bytes_out;
}

static void drop_link(hop *h, const char *reason) {
    if (!h->link) return;
    count_bytes(h);
    kin_link_close(h->link, reason);
    h->link = NULL;
}

static void drop_dial(hop *h, const char *reason) {
    kin_dial_cancel(h->dial, reason);
    h->dial = NULL;
}

static void break_link(hop *h, const char *reason) {
    drop_link(h, reason);
    report_hop(h, false, reason);
}

static void queue_step(hop *h, const kin_frame *frame, const uint8_t *payload) {
    kin_neighbours *n = h->of;
    if (frame->epoch != n->place.epoch) return;
    kin_message_buffer *buffer = kin_message_pool_get(n->o.pool, frame->length);
    if (!buffer) {
        kin_log(KIN_LOG_WARN, "%s sent more steps than can be in flight", kin_link_name(h->link));
        break_link(h, "too many steps in flight");
        return;
    }
    buffer->frame = *frame;
    memcpy(buffer->payload, payload, frame->length);
    n->n_came++;
    kin_message_queue_put(n->o.in, buffer);
}

static void link_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    hop *h = user;
    (void)link;
    bool is_step = frame->type == KIN_FRAME_STEP || frame->type == KIN_FRAME_PAGES;
    if (h->side == KIN_SIDE_PREVIOUS && is_step)
        queue_step(h, frame, payload);
    else
        break_link(h, h->side == KIN_SIDE_NEXT ? "it does not answer like a ring member" : "a ring link carries only steps");
}

static void link_closed(void *user, kin_link *link, const char *reason) {
    hop *h = user;
    if (h->link != link) return;
    count_bytes(h);
    h->link = NULL;
    report_hop(h, false, reason);
}

// Uses a link that was accepted, by this or the other side.
static void use(hop *h, kin_link *link) {
    static const kin_link_callbacks callbacks = {.frame = link_frame, .closed = link_closed};
    drop_link(h, "replaced by a newer link");
    h->link = link;
    kin_link_accept(link, &callbacks, h);
    kin_link_set_frame_max(link, h->side == KIN_SIDE_PREVIOUS ? h->of->place.frame_max : FRAME_MAX_CONTROL);
    // All steps that can be in flight may wait here for a slow network: a prompt's chunks are sent at once. Their size is not
    // known before the model is here; they are this process's own frames, so their number is bounded anyway.
    if (h->side == KIN_SIDE_NEXT) kin_link_set_queue_max(link, SIZE_MAX / 2);
    report_hop(h, true, "");
}

// ---- links that we open

static void fail_dial(hop *h, const char *reason) {
    if (!h->link) report_hop(h, false, reason); // else the other end has got through
}

static void dial_accepted(void *user, kin_link *link, const kin_proto_accept *accept) {
    hop *h = user;
    (void)accept;
    h->dial = NULL;
    use(h, link);
}

static void dial_failed(void *user, const kin_dial_failure *failure) {
    hop *h = user;
    h->dial = NULL;
    fail_dial(h, failure->reason);
}

void kin_neighbours_connect(kin_neighbours *n, kin_side side, const kin_proto_endpoint *to, const kin_proto_id *answers) {
    static const kin_dial_callbacks callbacks = {.accepted = dial_accepted, .failed = dial_failed};
    hop *h = &n->hops[side];
    kin_err err;
    if (side == KIN_SIDE_NEXT && h->link) return; // a second link's answer would discard the steps that may be in flight on it
    drop_dial(h, NULL);
    kin_dial_options o = kin_dial_options_default(kin_endpoint_tls(n->o.endpoint));
    o.link.handshake_ms = HANDSHAKE_MS;
    o.limit_ms = ANSWER_MS;
    o.open = kin_endpoint_self(n->o.endpoint);
    o.open.role = side == KIN_SIDE_NEXT ? KIN_PROTO_RING : KIN_PROTO_BACK;
    o.open.peer = n->place.who[side];
    o.epoch = n->place.epoch;
    o.answers = answers ? *answers : n->place.who[side];
    if (to->n_addresses > 0) o.to = kin_dial_address(to->address[h->n_tries++ % (unsigned)to->n_addresses], to->port);
    if (kin_dial_start(&h->dial, kin_endpoint_loop(n->o.endpoint), &o, &callbacks, h, &err) != 0) fail_dial(h, err.text);
}

void kin_neighbours_end(kin_neighbours *n, kin_side side) {
    drop_dial(&n->hops[side], NULL);
    drop_link(&n->hops[side], NULL);
}

void kin_neighbours_set_silence(kin_neighbours *n, uint32_t ms) {
    if (n->hops[KIN_SIDE_NEXT].link) kin_link_set_silence(n->hops[KIN_SIDE_NEXT].link, ms);
}

// ---- links that others open

static hop *hop_of(kin_neighbours *n, const kin_proto_open *open) {
    return &n->hops[open->role == KIN_PROTO_RING ? KIN_SIDE_PREVIOUS : KIN_SIDE_NEXT];
}

// Returns NULL if the link may be accepted.
static const char *reason_to_refuse(const kin_neighbours *n, const hop *h, uint32_t epoch, const kin_proto_open *open) {
    if (n->place.epoch == 0 || epoch != n->place.epoch) return "busy: this device is not in that epoch";
    if (!kin_proto_id_equal(&open->id, &n->place.who[h->side])) return "identity: the caller is not a neighbour of this device";
    if (h->side == KIN_SIDE_NEXT && h->link) return "busy: it is connected already";
    return NULL;
}

bool kin_neighbours_accept(kin_neighbours *n, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    hop *h = hop_of(n, open);
    kin_proto_open self = kin_endpoint_self(n->o.endpoint);
    if (!kin_proto_id_equal(&open->peer, &self.id)) return false;
    const char *reason = reason_to_refuse(n, h, epoch, open);
    if (reason) {
        kin_endpoint_refuse(link, reason);
        return true;
    }
    kin_endpoint_send_accept(n->o.endpoint, link);
    // A sender has decided with this, and drops its own dial. A receiver keeps its dial until the sender has decided.
    if (h->side == KIN_SIDE_NEXT) drop_dial(h, NULL);
    use(h, link);
    return true;
}

// ---- steps

static void transmit(kin_neighbours *n, const kin_message_buffer *p) {
    hop *h = &n->hops[KIN_SIDE_NEXT];
    if (!h->link || p->frame.epoch != n->place.epoch) return;
    kin_frame_part part = {p->payload, p->frame.length};
    kin_link_sent sent = kin_link_send(h->link, p->frame.type, p->frame.epoch, 1, &part);
    if (sent == KIN_LINK_FULL) break_link(h, "it does not read its messages"); // a working epoch never has this much in flight
    uint64_t step;
    int round;
    if (kin_trace_is_on(n->o.trace) && kin_steps_peek(p, &step, &round))
        kin_trace_add(n->o.trace, KIN_PROTO_EVENT_SEND, step, round, p->sent_at, kin_clock_now());
}

static void flush(void *arg) {
    kin_neighbours *n = arg;
    pthread_mutex_lock(&n->mutex);
    kin_message_buffer *p = n->out_first, *next;
    n->out_first = NULL;
    n->out_end = &n->out_first;
    n->is_flush_called = false;
    pthread_mutex_unlock(&n->mutex);
    for (; p; p = next) {
        next = p->next;
        transmit(n, p);
        kin_message_pool_give(n->o.pool, p);
    }
}

void kin_neighbours_send(kin_neighbours *n, kin_message_buffer *buffer) {
    buffer->next = NULL;
    buffer->sent_at = kin_clock_now();
    pthread_mutex_lock(&n->mutex);
    *n->out_end = buffer;
    n->out_end = &buffer->next;
    if (buffer->frame.epoch != n->out_epoch) n->n_left = 0;
    n->out_epoch = buffer->frame.epoch;
    n->n_left++;
    bool calls = !n->is_flush_called;
    n->is_flush_called = true;
    pthread_mutex_unlock(&n->mutex);
    if (calls) kin_endpoint_call(n->o.endpoint, flush, n);
}

// ---- life

void kin_neighbours_enter(kin_neighbours *n, const kin_ring_place *place) {
    if (n->place.epoch != place->epoch) {
        for (int i = 0; i < KIN_N_SIDES; i++) {
            drop_link(&n->hops[i], "the epoch is over");
            drop_dial(&n->hops[i], NULL);
            n->hops[i].n_tries = 0;
        }
        n->n_came = 0;
    }
    n->place = *place;
    if (n->place.frame_max < FRAME_MAX_CONTROL) n->place.frame_max = FRAME_MAX_CONTROL;
    kin_link *previous = n->hops[KIN_SIDE_PREVIOUS].link;
    if (previous) kin_link_set_frame_max(previous, n->place.frame_max);
}

int kin_neighbours_open(kin_neighbours **out, const kin_neighbours_options *o, kin_neighbours_report report, void *user,
                        kin_err *err) {
    kin_neighbours *n = *out = calloc(1, sizeof *n);
    if (!n) return kin_err_set(err, "out of memory");
    n->o = *o;
    n->report = report;
    n->user = user;
    n->out_end = &n->out_first;
    pthread_mutex_init(&n->mutex, NULL);
    for (int i = 0; i < KIN_N_SIDES; i++) n->hops[i] = (hop){.of = n, .side = (kin_side)i};
    return 0;
}

void kin_neighbours_close(kin_neighbours *n, const char *reason) {
    if (!n) return;
    for (int i = 0; i < KIN_N_SIDES; i++) {
        drop_link(&n->hops[i], reason);
        drop_dial(&n->hops[i], reason);
    }
    flush(n); // without links: returns the buffers to the pool
    pthread_mutex_destroy(&n->mutex);
    free(n);
}

// Returns the frames of this epoch that other threads have sent; *has_more: some have not reached the link yet.
static uint32_t count_left(kin_neighbours *n, bool *has_more) {
    pthread_mutex_lock(&n->mutex);
    uint32_t n_left = n->out_epoch == n->place.epoch ? n->n_left : 0;
    *has_more = n->out_first != NULL;
    pthread_mutex_unlock(&n->mutex);
    return n_left;
}

kin_neighbours_stats kin_neighbours_stats_now(kin_neighbours *n) {
    kin_neighbours_stats stats = {.net_in = n->net_in, .net_out = n->net_out, .epoch = n->place.epoch, .n_came = n->n_came};
    bool has_more;
    stats.n_left = count_left(n, &has_more);
    stats.moving = has_more;
    for (int i = 0; i < KIN_N_SIDES; i++) {
        stats.has[i] = n->hops[i].link != NULL;
        if (!stats.has[i]) continue;
        kin_link_stats of = kin_link_stats_now(n->hops[i].link);
        stats.net_in += of.bytes_in;
        stats.net_out += of.bytes_out;
        if (i == KIN_SIDE_NEXT) stats.rtt_ns = of.rtt_ns;
        stats.moving += i == KIN_SIDE_NEXT ? of.queued + of.unacknowledged : of.partial;
    }
    return stats;
}
