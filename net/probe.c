#include "net/probe.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/dial.h"
#include "net/echo_responder.h"

enum {
    REST_MS = 10,       // between two round trips
    LARGE_BYTES = 1000, // as in KIN_LINK_MTU
    SWALLOWED_MS = 1000 // an answer was outstanding for this long when the link ended
};

struct kin_probe {
    uv_timer_t limit, rest;
    int n_timers; // timers not closed yet
    uint32_t limit_ms, hidden_bytes;
    kin_probe_done done;
    void *user;
    kin_dial *dial; // NULL: answered
    kin_link *link; // NULL: not open yet

    kin_probing probing;
    bool is_resting;
    uint64_t token;
    kin_time sent;
    uint32_t n_expected; // bytes of the answer
    bool has_large;      // a large answer has arrived
};

// ---- the end

static void on_timer_closed(uv_handle_t *timer) {
    kin_probe *p = timer->data;
    if (--p->n_timers == 0) free(p);
}

void kin_probe_cancel(kin_probe *p) {
    if (!p) return;
    kin_dial_cancel(p->dial, "measured");
    p->dial = NULL;
    kin_link_close(p->link, "measured");
    p->link = NULL;
    uv_close((uv_handle_t *)&p->limit, on_timer_closed);
    uv_close((uv_handle_t *)&p->rest, on_timer_closed);
}

static void finish(kin_probe *p, const char *reason) {
    kin_probe_done done = p->done;
    void *user = p->user;
    kin_probe_result result = p->probing.result;
    kin_probe_cancel(p);
    done(user, reason ? NULL : &result, reason);
}

static void on_limit(uv_timer_t *timer) {
    kin_probe *p = timer->data;
    finish(p, "the link is too slow to be measured in time"); // a dial without an answer has ended earlier
}

// ---- messages

static void send_next(kin_probe *p) {
    kin_probing_message m = kin_probing_next(&p->probing);
    p->is_resting = false;
    p->n_expected = m.answer_bytes;
    p->sent = kin_clock_now();
    kin_echo_responder_send(p->link, ++p->token, m.answer_bytes, m.n_bytes);
}

static void on_rest(uv_timer_t *timer) {
    send_next(timer->data);
}

static void go_on(kin_probe *p) {
    p->is_resting = kin_probing_next(&p->probing).rests;
    if (p->is_resting)
        uv_timer_start(&p->rest, on_rest, REST_MS, 0);
    else
        send_next(p);
}

static int check_echo(kin_probe *p, const kin_frame *frame, const uint8_t *payload, kin_err *err) {
    kin_proto_echo m;
    if (frame->type != KIN_FRAME_ECHO)
        return kin_err_set(err, "it sent %s, but a probe link accepts only ECHO", kin_frame_name(frame->type));
    if (p->is_resting) return kin_err_set(err, "it sent an answer without a request");
    if (kin_proto_decode_echo(payload, frame->length, &m, err) != 0) return KIN_FAIL;
    p->has_large = p->has_large || m.n_bytes > LARGE_BYTES;
    if (m.token == p->token && m.n_bytes == p->n_expected && m.answer_bytes == 0) return 0;
    return kin_err_set(err, "the answer does not match the ECHO that was sent");
}

static void on_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    kin_probe *p = user;
    kin_time now = kin_clock_now();
    kin_err err;
    (void)link;
    if (check_echo(p, frame, payload, &err) != 0)
        finish(p, err.text);
    else if (kin_probing_add(&p->probing, (double)(now - p->sent) * 1e-9, now))
        finish(p, NULL);
    else
        go_on(p);
}

// True if the first large answer did not arrive. The peer knows the reason but cannot tell, because its message would not arrive
// either.
static bool is_swallowed(const kin_probe *p) {
    return p->n_expected > LARGE_BYTES && !p->has_large && !p->is_resting &&
           kin_clock_ms(p->sent, kin_clock_now()) > SWALLOWED_MS;
}

static void on_closed(void *user, kin_link *link, const char *reason) {
    kin_probe *p = user;
    (void)link;
    p->link = NULL;
    finish(p, is_swallowed(p) ? KIN_LINK_MTU : reason);
}

// ---- opening

static void on_accepted(void *user, kin_link *link, const kin_proto_accept *accept) {
    static const kin_link_callbacks callbacks = {.frame = on_frame, .closed = on_closed};
    kin_probe *p = user;
    (void)accept;
    p->dial = NULL;
    p->link = link;
    kin_link_accept(link, &callbacks, p);
    kin_link_set_frame_max(link, kin_frame_cap(KIN_FRAME_ECHO));
    kin_probing_init(&p->probing, p->hidden_bytes, kin_clock_now());
    go_on(p);
}

static void on_failed(void *user, const kin_dial_failure *failure) {
    kin_probe *p = user;
    p->dial = NULL;
    finish(p, failure->reason);
}

static int dial(kin_probe *p, uv_loop_t *loop, const kin_probe_options *o, kin_err *err) {
    static const kin_dial_callbacks callbacks = {.accepted = on_accepted, .failed = on_failed};
    kin_dial_options d = kin_dial_options_default(o->tls);
    unsigned connect_ms = p->limit_ms < KIN_PROBE_CONNECT_MS ? p->limit_ms : KIN_PROBE_CONNECT_MS;
    d.to = o->to;
    d.open = o->self;
    d.open.role = KIN_PROTO_PROBE;
    if (o->who) d.answers = *o->who;
    if (o->to.n_addresses > 0) d.link.handshake_ms = connect_ms / (unsigned)o->to.n_addresses;
    d.limit_ms = p->limit_ms;
    return kin_dial_start(&p->dial, loop, &d, &callbacks, p, err);
}

int kin_probe_start(kin_probe **out, uv_loop_t *loop, const kin_probe_options *o, kin_probe_done done, void *user, kin_err *err) {
    *out = NULL;
    kin_probe *p = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "out of memory");
    p->limit_ms = o->limit_ms ? o->limit_ms : KIN_PROBE_LIMIT_MS;
    p->hidden_bytes = o->hidden_bytes;
    p->done = done;
    p->user = user;
    if (dial(p, loop, o, err) != 0) {
        free(p);
        return KIN_FAIL;
    }
    uv_timer_init(loop, &p->limit);
    uv_timer_init(loop, &p->rest);
    p->limit.data = p->rest.data = p;
    p->n_timers = 2;
    uv_timer_start(&p->limit, on_limit, p->limit_ms, 0);
    *out = p;
    return 0;
}
