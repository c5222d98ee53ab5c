#include "net/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/median.h"
#include "net/dial.h"
#include "net/echo_responder.h"

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

typedef enum probe_phase { WARMING, TRIPS, GROWING, PAIRS } probe_phase;

struct kin_probe {
    uv_timer_t limit, rest;
    int n_timers; // not closed yet
    uint32_t limit_ms;
    kin_probe_done done;
    void *user;
    kin_dial *dial; // NULL: it is answered
    kin_link *link; // NULL: not yet

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
    kin_probe_result result = p->result;
    kin_probe_cancel(p);
    done(user, reason ? NULL : &result, reason);
}

static void on_limit(uv_timer_t *timer) {
    kin_probe *p = timer->data;
    finish(p, "the way is too slow to be measured in time"); // a dial without an answer has ended before
}

// ---- messages

static void send_echo(kin_probe *p, uint32_t n_bytes) {
    p->n_expected = p->is_back ? n_bytes : 0;
    p->sent = kin_clock_now();
    kin_echo_responder_say(p->link, ++p->token, p->n_expected, p->is_back ? 0 : n_bytes);
}

static void send_next(kin_probe *p) {
    switch (p->phase) {
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

static int take_echo(kin_probe *p, const kin_frame *frame, const uint8_t *payload, kin_err *err) {
    kin_proto_echo m;
    if (frame->type != KIN_FRAME_ECHO) return kin_err_set(err, "%s came where only ECHO belongs", kin_frame_name(frame->type));
    if (p->is_resting) return kin_err_set(err, "an answer came that nobody asked for");
    if (kin_proto_decode_echo(payload, frame->length, &m, err) != 0) return KIN_FAIL;
    if (m.token == p->token && m.n_bytes == p->n_expected && m.answer_bytes == 0) return 0;
    return kin_err_set(err, "the answer does not fit the ECHO that was sent");
}

static void on_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    kin_probe *p = user;
    kin_time now = kin_clock_now();
    kin_err err;
    (void)link;
    if (take_echo(p, frame, payload, &err) != 0)
        finish(p, err.text);
    else if (take_time(p, (double)(now - p->sent) * 1e-9))
        finish(p, NULL);
    else
        go_on(p);
}

static void on_closed(void *user, kin_link *link, const char *reason) {
    kin_probe *p = user;
    (void)link;
    p->link = NULL;
    finish(p, reason);
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
    enter(p, WARMING);
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
    p->small = o->hidden_bytes < SMALL_BYTES ? o->hidden_bytes : SMALL_BYTES;
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
