#include "net/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/median.h"
#include "net/echo_responder.h"
#include "pure/proto/id.h"

enum {
    N_WARM = 2,
    N_TRIPS = 9,
    N_TRIPS_LEAST = 3, // on a long way
    TRIPS_MS = 200,
    REST_MS = 10, // between two round trips
    N_FAR = 3,    // messages on a long way
    N_PAIRS = 9,  // of a small and a large message
    PAIRS_MS = 100,
    LARGE_BYTES = 256 << 10,
    SMALL_BYTES = LARGE_BYTES / 4, // a hidden state counts as no larger
    GROWTH = 4,
};

#define LONG_S 0.02  // a message that takes so long shows the rate well enough
#define CLOCK_S 1e-4 // less is noise

typedef enum probe_phase { OPENING, WARMING, TRIPS, GROWING, PAIRS } probe_phase;

struct kin_probe {
    uv_timer_t limit, rest;
    int n_timers; // not closed yet
    uv_loop_t *loop;
    kin_probe_options o;
    kin_proto_id who;
    kin_probe_done done;
    void *user;
    kin_link *link;
    int i_address; // the next one to be tried

    probe_phase phase;
    kin_time begun; // the phase
    int n;          // answers in it
    bool is_back;   // the direction whose rate is measured
    bool is_resting;
    uint64_t token;
    kin_time sent;
    uint32_t n_expected;                     // bytes of the answer
    uint32_t small, large;                   // bytes
    double trips[N_TRIPS], took[2][N_PAIRS]; // of small, of large messages
    kin_probe_result result;
};

// ---- the end

static void on_timer_closed(uv_handle_t *timer) {
    kin_probe *p = timer->data;
    if (--p->n_timers == 0) free(p);
}

void kin_probe_cancel(kin_probe *p) {
    if (!p) return;
    kin_link_close(p->link, "measured");
    p->link = NULL;
    uv_close((uv_handle_t *)&p->limit, on_timer_closed);
    uv_close((uv_handle_t *)&p->rest, on_timer_closed);
}

static void finish(kin_probe *p, const char *reason) {
    kin_probe_done done = p->done;
    void *user = p->user;
    kin_probe_result result = p->result;
    kin_probe_cancel(p);
    done(user, reason ? NULL : &result, reason);
}

static void on_limit(uv_timer_t *timer) {
    kin_probe *p = timer->data;
    finish(p, p->phase == OPENING ? "no answer in time" : "the way is too slow to be measured in time");
}

// ---- messages

static void send_echo(kin_probe *p, uint32_t n_bytes) {
    p->n_expected = p->is_back ? n_bytes : 0;
    p->sent = kin_clock_now();
    kin_echo_responder_say(p->link, ++p->token, p->n_expected, p->is_back ? 0 : n_bytes);
}

static void send_next(kin_probe *p) {
    switch (p->phase) {
    case OPENING:
    case WARMING:
    case TRIPS: send_echo(p, 0); break;
    case GROWING: send_echo(p, p->large); break;
    case PAIRS: send_echo(p, p->n % 2 ? p->large : p->small); break;
    }
}

static void on_rest(uv_timer_t *timer) {
    kin_probe *p = timer->data;
    p->is_resting = false;
    send_next(p);
}

// A ring's messages are rare, and find both ends, and what is between them, asleep. So do round trips.
static void go_on(kin_probe *p) {
    p->is_resting = p->phase == TRIPS;
    if (p->is_resting)
        uv_timer_start(&p->rest, on_rest, REST_MS, 0);
    else
        send_next(p);
}

static void enter(kin_probe *p, probe_phase phase) {
    p->phase = phase;
    p->begun = kin_clock_now();
    p->n = 0;
    if (phase == GROWING) p->large = p->small;
}

static bool is_long(const kin_probe *p, int ms) {
    return kin_clock_ms(p->begun, kin_clock_now()) > ms;
}

// The rate of one direction is known. True: of both.
static bool take_rate(kin_probe *p, double bytes_s) {
    *(p->is_back ? &p->result.from_bytes_s : &p->result.to_bytes_s) = bytes_s;
    if (p->is_back) return true;
    p->is_back = true;
    enter(p, GROWING);
    return false;
}

static double rate_of_pairs(kin_probe *p) {
    double small_s = kin_median(p->took[0], p->n / 2), large_s = kin_median(p->took[1], p->n / 2);
    // Faster than the clock's noise shows: at least so fast.
    return large_s > small_s ? (p->large - p->small) / (large_s - small_s) : p->large / large_s;
}

// On a long way TCP sends a large message in several flights as long as its window has not opened, and a ring's has: a hidden
// state goes at once, and must do.
static bool take_far(kin_probe *p, double s) {
    p->took[0][p->n++] = s;
    return p->n == N_FAR && take_rate(p, p->small / fmax(kin_median(p->took[0], N_FAR) - p->result.rtt_s, CLOCK_S));
}

// A message of the size at hand took so long. The first one is a small one.
static bool take_growth(kin_probe *p, double s) {
    if (p->result.rtt_s > LONG_S) return take_far(p, s);
    bool is_slow = s > 2 * p->result.rtt_s + LONG_S, is_first = p->large == p->small;
    if (is_first) p->took[0][0] = s;
    if (is_slow && is_first) return take_rate(p, p->small / (s - p->result.rtt_s));
    if (is_slow && s > p->result.rtt_s + PAIRS_MS * 1e-3) { // once must do
        p->took[1][0] = s;
        p->n = 2;
        return take_rate(p, rate_of_pairs(p));
    }
    if (is_slow || p->large == LARGE_BYTES)
        enter(p, PAIRS);
    else
        p->large = p->large > LARGE_BYTES / GROWTH ? LARGE_BYTES : p->large * GROWTH;
    return false;
}

// An answer came after so many seconds. True: all is known.
static bool take_time(kin_probe *p, double s) {
    switch (p->phase) {
    case OPENING: break;
    case WARMING:
        if (++p->n == N_WARM) enter(p, TRIPS);
        break;
    case TRIPS:
        p->trips[p->n++] = s;
        if (p->n < N_TRIPS && (p->n < N_TRIPS_LEAST || !is_long(p, TRIPS_MS))) break;
        p->result.rtt_s = kin_median(p->trips, p->n);
        enter(p, GROWING);
        break;
    case GROWING: return take_growth(p, s);
    case PAIRS:
        p->took[p->n % 2][p->n / 2] = s;
        p->n++;
        if (p->n % 2 == 0 && (p->n == 2 * N_PAIRS || is_long(p, PAIRS_MS))) return take_rate(p, rate_of_pairs(p));
        break;
    }
    return false;
}

static int take_hello(kin_probe *p, const kin_frame *frame, const uint8_t *payload, kin_err *err) {
    kin_proto_accept accept;
    kin_proto_refuse refuse;
    if (frame->type == KIN_FRAME_REFUSE) {
        if (kin_proto_decode_refuse(payload, frame->length, &refuse, err) != 0) return KIN_FAIL;
        return kin_err_set(err, "%.500s", refuse.reason);
    }
    if (frame->type != KIN_FRAME_ACCEPT) return kin_err_set(err, "%s came before ACCEPT", kin_frame_name(frame->type));
    if (kin_proto_decode_accept(payload, frame->length, &accept, err) != 0) return KIN_FAIL;
    if (p->o.who && !kin_proto_id_equal(&accept.id, &p->who)) return kin_err_set(err, "somebody else answers at that address");
    kin_link_set_frame_max(p->link, kin_frame_cap(KIN_FRAME_ECHO));
    enter(p, WARMING);
    return 0;
}

static int take_echo(kin_probe *p, const kin_frame *frame, const uint8_t *payload, kin_err *err) {
    kin_proto_echo m;
    if (frame->type != KIN_FRAME_ECHO) return kin_err_set(err, "%s came where only ECHO belongs", kin_frame_name(frame->type));
    if (p->is_resting) return kin_err_set(err, "an answer came that nobody asked for");
    if (kin_proto_decode_echo(payload, frame->length, &m, err) != 0) return KIN_FAIL;
    if (m.token == p->token && m.n_bytes == p->n_expected && m.answer_bytes == 0) return 0;
    return kin_err_set(err, "the answer does not fit the ECHO that was sent");
}

static int connect_next(kin_probe *p, kin_err *err);

// Another address may be the right one.
static void go_elsewhere(kin_probe *p, const char *reason) {
    kin_err err;
    kin_link_close(p->link, reason);
    p->link = NULL;
    if (p->phase != OPENING || p->i_address == p->o.to.n_addresses || connect_next(p, &err) != 0) finish(p, reason);
}

static void on_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    kin_probe *p = user;
    kin_time now = kin_clock_now();
    kin_err err;
    (void)link;
    bool is_hello = p->phase == OPENING;
    if ((is_hello ? take_hello(p, frame, payload, &err) : take_echo(p, frame, payload, &err)) != 0)
        frame->type == KIN_FRAME_REFUSE ? finish(p, err.text) : go_elsewhere(p, err.text);
    else if (!is_hello && take_time(p, (double)(now - p->sent) * 1e-9))
        finish(p, NULL);
    else
        go_on(p);
}

// ---- the link

static void on_opened(void *user, kin_link *link) {
    kin_probe *p = user;
    uint8_t bytes[KIN_LINK_FRAME_MAX_FIRST];
    size_t n = kin_proto_encode_open(bytes, sizeof bytes, &p->o.self);
    kin_link_send(link, KIN_FRAME_OPEN, 0, 1, &(kin_link_part){bytes, n});
}

static void on_closed(void *user, kin_link *link, const char *reason) {
    kin_probe *p = user;
    (void)link;
    p->link = NULL;
    go_elsewhere(p, reason);
}

static int connect_next(kin_probe *p, kin_err *err) {
    static const kin_link_callbacks callbacks = {.opened = on_opened, .frame = on_frame, .closed = on_closed};
    kin_link_options o = kin_link_options_default(p->o.tls);
    unsigned connect_ms = p->o.limit_ms < KIN_PROBE_CONNECT_MS ? p->o.limit_ms : KIN_PROBE_CONNECT_MS;
    o.handshake_ms = connect_ms / (unsigned)p->o.to.n_addresses;
    const char *address = p->o.to.address[p->i_address++];
    return kin_link_connect(&p->link, p->loop, address, p->o.to.port, &o, &callbacks, p, err);
}

int kin_probe_start(kin_probe **out, uv_loop_t *loop, const kin_probe_options *o, kin_probe_done done, void *user, kin_err *err) {
    *out = NULL;
    if (o->to.n_addresses == 0) return kin_err_set(err, "its address is not known");
    kin_probe *p = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "out of memory");
    p->loop = loop;
    p->o = *o;
    p->o.self.role = KIN_PROTO_PROBE;
    if (!p->o.limit_ms) p->o.limit_ms = KIN_PROBE_LIMIT_MS;
    if (o->who) {
        p->who = *o->who;
        p->o.who = &p->who;
    }
    p->small = o->hidden_bytes < SMALL_BYTES ? o->hidden_bytes : SMALL_BYTES;
    p->done = done;
    p->user = user;
    if (connect_next(p, err) != 0) {
        free(p);
        return KIN_FAIL;
    }
    uv_timer_init(loop, &p->limit);
    uv_timer_init(loop, &p->rest);
    p->limit.data = p->rest.data = p;
    p->n_timers = 2;
    uv_timer_start(&p->limit, on_limit, p->o.limit_ms, 0);
    *out = p;
    return 0;
}
