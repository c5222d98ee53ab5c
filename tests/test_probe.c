// Measuring the path to another member (net/probe.h), answering probes (net/echo_responder.h), and queues of probes
// (cluster/probe_queue.h).
#include "tests/link_context.h"
#ifdef __linux__
#include "tests/narrow_path.h"
#endif

#include <math.h>

#include "cluster/probe_queue.h"
#include "net/echo_responder.h"
#include "net/probe.h"
#include "pure/proto/versions.h"
#include "tests/place.h"

// ---- the probed peer

typedef enum manner {
    GOOD,
    MUTE,        // never answers OPEN
    REFUSING,    // reports that it is busy
    HANGING_UP,  // after OPEN
    UNEXPECTED,  // answers OPEN with an unrelated frame
    MALFORMED,   // with a malformed ACCEPT
    OTHER_TOKEN, // answers ECHO with another token
    TOO_SHORT,
    ASKING,   // its answer asks for an answer
    NONSENSE, // answers ECHO with another frame
    TOO_LONG, // answers ECHO with a frame beyond its cap
    STOPPING, // answers a few times, then stops
    LATE,     // answers after a time that grows with the bytes
    FAR,      // the same, from far away
} manner;

enum { N_BEFORE_STOP = 5, LATE_US = 3000, THERE_BYTES_MS = 16000, BACK_BYTES_MS = 2000, FAR_US = 25000 };

static const kin_proto_id peer_id = {{5}}, own_id = {{6}};

typedef struct peer {
    manner manner;
    kin_echo_responder *echo;
    uv_timer_t timer;
    end *late; // the end that gets the late answer
    kin_proto_echo answer;
    kin_time due;
    int n_echoes;
    uint32_t largest; // most bytes that were sent, or asked for
} peer;

static peer the_peer;

static void send_message(end *e, const kin_proto_message *m) {
    uint8_t frame[2048];
    size_t n = kin_proto_encode(NULL, 0, 0, m);
    assert_true(n <= sizeof frame);
    kin_proto_encode(frame, sizeof frame, 0, m);
    kin_link_send(e->link, m->type, 0, 1, &(kin_frame_part){frame + KIN_FRAME_HEADER, n - KIN_FRAME_HEADER});
}

static void hang_up(end *e) {
    kin_link_close(e->link, "no time");
    e->link = NULL;
}

static void answer_open(end *e) {
    kin_proto_message accept = {.type = KIN_FRAME_ACCEPT, .accept = {.id = peer_id, .versions = KIN_PROTO_VERSIONS}};
    kin_proto_message refuse = {.type = KIN_FRAME_REFUSE, .refuse = {"busy: other devices are measuring"}};
    switch (the_peer.manner) {
    case MUTE: return;
    case REFUSING: send_message(e, &refuse); return;
    case HANGING_UP: hang_up(e); return;
    case UNEXPECTED: send_message(e, &(kin_proto_message){.type = KIN_FRAME_STATUS_WANTED}); return;
    case MALFORMED: send_bytes(e, KIN_FRAME_ACCEPT, "?", 1); return;
    default: break;
    }
    send_message(e, &accept);
    kin_link_set_frame_max(e->link, kin_frame_cap(KIN_FRAME_ECHO));
    if (the_peer.manner != GOOD) return;
    assert_true(kin_echo_responder_add(the_peer.echo, e->link));
    e->link = NULL; // it belongs to the responder now
}

static void answer_late(uv_timer_t *timer) {
    peer *p = timer->data;
    if (kin_clock_now() < p->due) { // a loop's time lags behind
        uv_timer_start(timer, answer_late, 1, 0);
        return;
    }
    if (p->late->link) kin_echo_responder_send(p->late->link, p->answer.token, 0, p->answer.answer_bytes);
}

static void wait_for_it(peer *p, end *e, const kin_proto_echo *m) {
    uint64_t us = LATE_US + 1000ull * m->n_bytes / THERE_BYTES_MS + 1000ull * m->answer_bytes / BACK_BYTES_MS;
    if (p->manner == FAR) us += FAR_US;
    p->late = e;
    p->answer = *m;
    p->due = kin_clock_now() + us * 1000;
    uv_timer_start(&p->timer, answer_late, us / 1000, 0);
}

static void answer_echo(end *e) {
    peer *p = &the_peer;
    kin_proto_echo m;
    kin_err err;
    if (kin_proto_decode_echo(e->bytes, e->n_bytes, &m, &err) != 0) fail_msg("%s", err.text);
    p->n_echoes++;
    if (m.n_bytes > p->largest) p->largest = m.n_bytes;
    if (m.answer_bytes > p->largest) p->largest = m.answer_bytes;
    switch (p->manner) {
    case OTHER_TOKEN: kin_echo_responder_send(e->link, m.token + 1, 0, m.answer_bytes); break;
    case TOO_SHORT: kin_echo_responder_send(e->link, m.token, 0, m.answer_bytes ? m.answer_bytes - 1 : 1); break;
    case ASKING: kin_echo_responder_send(e->link, m.token, 1, m.answer_bytes); break;
    case NONSENSE: send_message(e, &(kin_proto_message){.type = KIN_FRAME_STATUS_WANTED}); break;
    case TOO_LONG: {
        static uint8_t bytes[KIN_FRAME_CAP_LARGE + 64];
        send_bytes(e, KIN_FRAME_STEP, bytes, sizeof bytes);
        break;
    }
    case STOPPING:
        if (p->n_echoes <= N_BEFORE_STOP) kin_echo_responder_send(e->link, m.token, 0, m.answer_bytes);
        break;
    case LATE:
    case FAR: wait_for_it(p, e, &m); break;
    default: fail_msg("nobody answers");
    }
}

static void peer_frame(end *e) {
    if (e->last.type == KIN_FRAME_OPEN) {
        kin_proto_open open;
        assert_int_equal(kin_proto_decode_open(e->bytes, e->n_bytes, &open, NULL), 0);
        assert_int_equal(open.role, KIN_PROTO_PROBE);
        answer_open(e);
    } else if (e->last.type == KIN_FRAME_ECHO) {
        answer_echo(e);
    }
}

// Gives new ends the peer's manner.
static void serve(context *w) {
    for (int i = 0; i < w->n_ends; i++) {
        end *e = &w->ends[i];
        if (e->on_frame) continue;
        e->on_frame = peer_frame;
        if (e->link && e->n_frames > 0) peer_frame(e);
    }
}
#define serve(...) FROM_TEST(serve(__VA_ARGS__))

static void open_peer(context *w, manner manner) {
    kin_err err;
    the_peer = (peer){.manner = manner};
    assert_int_equal(kin_echo_responder_open(&the_peer.echo, &err), 0);
    uv_timer_init(&w->loop, &the_peer.timer);
    the_peer.timer.data = &the_peer;
}
#define open_peer(...) FROM_TEST(open_peer(__VA_ARGS__))

static void timer_closed(uv_handle_t *timer) {
    timer->data = NULL;
}

static void close_peer(context *w) {
    kin_echo_responder_close(the_peer.echo, "enough");
    uv_close((uv_handle_t *)&the_peer.timer, timer_closed);
    while (the_peer.timer.data) turn(w);
}

// ---- the probing side

typedef struct outcome {
    bool is_over, ok;
    kin_probe_result result;
    char reason[256];
} outcome;

static void on_done(void *user, const kin_probe_result *result, const char *reason) {
    outcome *o = user;
    assert_false(o->is_over);
    o->is_over = true;
    o->ok = result != NULL;
    if (result) o->result = *result;
    assert_true(o->ok == !reason);
    snprintf(o->reason, sizeof o->reason, "%s", reason ? reason : "");
}

static kin_probe_options options_of(context *w, uint32_t hidden_bytes) {
    return (kin_probe_options){.tls = w->tls,
                               .self = {.id = own_id, .name = "anna", .version = "test"},
                               .to = {w->port, 1, {"127.0.0.1"}},
                               .who = &peer_id,
                               .hidden_bytes = hidden_bytes,
                               .limit_ms = TIMEOUT_MS};
}

static outcome probe_with(context *w, const kin_probe_options *o) {
    outcome out = {0};
    kin_probe *p;
    kin_err err;
    if (kin_probe_start(&p, &w->loop, o, on_done, &out, &err) != 0) fail_msg("%s", err.text);
    while (!out.is_over) {
        turn(w);
        serve(w);
    }
    return out;
}
#define probe_with(...) FROM_TEST(probe_with(__VA_ARGS__))

static void expect_failure_within(context *w, uint32_t limit_ms, manner manner, const char *sentence) {
    open_peer(w, manner);
    kin_probe_options o = options_of(w, 4096);
    o.limit_ms = limit_ms;
    outcome out = probe_with(w, &o);
    if (out.ok || !strstr(out.reason, sentence)) fail_msg("expected: %s\ngot:      %s", sentence, out.reason);
    close_peer(w);
}
#define expect_failure_within(...) FROM_TEST(expect_failure_within(__VA_ARGS__))

static void expect_failure(context *w, manner manner, const char *sentence) {
    expect_failure_within(w, TIMEOUT_MS, manner, sentence);
}
#define expect_failure(...) FROM_TEST(expect_failure(__VA_ARGS__))

static bool is_positive(double x) {
    return isfinite(x) && x > 0;
}

// ---- tests

static void a_measured_path_has_a_round_trip_and_two_rates(void **state) {
    context *w = *state;
    static const uint32_t sizes[] = {1, 16384, KIN_FRAME_ECHO_BYTES};
    for (int i = 0; i < 3; i++) {
        open_peer(w, GOOD);
        kin_probe_options o = options_of(w, sizes[i]);
        outcome out = probe_with(w, &o);
        if (!out.ok) fail_msg("%s", out.reason);
        assert_true(is_positive(out.result.rtt_s) && out.result.rtt_s < 1);
        assert_true(is_positive(out.result.to_bytes_s) && is_positive(out.result.from_bytes_s));
        close_peer(w);
    }
}

static void each_direction_has_its_own_rate(void **state) {
    context *w = *state;
    open_peer(w, LATE);
    kin_probe_options o = options_of(w, 16384);
    outcome out = probe_with(w, &o);
    if (!out.ok) fail_msg("%s", out.reason);
    assert_true(out.result.rtt_s >= LATE_US * 1e-6); // its wait before each answer
    assert_true(is_positive(out.result.to_bytes_s));
    assert_true(out.result.from_bytes_s < out.result.to_bytes_s); // eight times as long per byte
    assert_true(out.result.from_bytes_s < 4e3 * BACK_BYTES_MS);
    close_peer(w);
}

static void on_a_long_path_messages_open_the_window(void **state) {
    enum { HIDDEN = 8192 };
    context *w = *state;
    open_peer(w, FAR);
    kin_probe_options o = options_of(w, HIDDEN);
    outcome out = probe_with(w, &o);
    if (!out.ok) fail_msg("%s", out.reason);
    assert_true(out.result.rtt_s >= FAR_US * 1e-6);
    assert_true(is_positive(out.result.to_bytes_s) && is_positive(out.result.from_bytes_s));
    assert_true(the_peer.largest > 256 << 10); // the limit for a near peer
    close_peer(w);
}

static void a_peer_that_answers_wrongly_is_not_measured(void **state) {
    context *w = *state;
    expect_failure(w, REFUSING, "busy: other devices are measuring");
    expect_failure(w, HANGING_UP, "no time");
    expect_failure(w, UNEXPECTED, "it sent STATUS_WANTED before ACCEPT");
    expect_failure(w, MALFORMED, "ACCEPT: ends");
    expect_failure(w, OTHER_TOKEN, "the answer does not match the ECHO that was sent");
    expect_failure(w, TOO_SHORT, "the answer does not match the ECHO that was sent");
    expect_failure(w, ASKING, "the answer does not match the ECHO that was sent");
    expect_failure(w, NONSENSE, "it sent STATUS_WANTED, but a probe link accepts only ECHO");
    expect_failure(w, TOO_LONG, "exceeds");
}

static void a_probe_always_ends(void **state) {
    context *w = *state;
    expect_failure_within(w, 2000, MUTE, "it does not answer OPEN");
    expect_failure_within(w, 2000, STOPPING, "the link is too slow to be measured in time");
}

#ifdef __linux__
// Reopens the listener with the default options.
static void listen_anew(context *w) {
    kin_err err;
    kin_listener_close(w->listener);
    w->o = kin_listener_options_default(w->tls);
    assert_int_equal(kin_listener_open(&w->listener, &w->loop, NULL, 0, &w->o, on_accepted, w, &err), 0);
    w->port = kin_listener_port(w->listener);
}
#define listen_anew(...) FROM_TEST(listen_anew(__VA_ARGS__))

static void a_path_that_loses_large_messages_is_noticed(void **state) {
    context *w = *state;
    listen_anew(w);
    for (int is_back = 0; is_back < 2; is_back++) {
        outcome out = {0};
        kin_probe *p;
        kin_err err;
        open_peer(w, GOOD);
        kin_probe_options o = options_of(w, 16384);
        assert_int_equal(kin_probe_start(&p, &w->loop, &o, on_done, &out, &err), 0);
        while (!out.is_over) {
            narrow_path(w->port, 1000, !is_back, is_back);
            turn(w);
            serve(w);
        }
        assert_string_equal(out.reason, KIN_LINK_MTU);
        close_peer(w);
        listen_anew(w);
    }
}
#endif

static void another_device_at_that_address_is_not_measured(void **state) {
    context *w = *state;
    open_peer(w, GOOD);
    kin_probe_options o = options_of(w, 4096);
    o.who = &own_id;
    outcome out = probe_with(w, &o);
    assert_string_equal(out.reason, "another device, '', answers at its address");
    close_peer(w);
}

static void addresses_are_tried_in_turn(void **state) {
    context *w = *state;
    open_peer(w, GOOD);
    kin_probe_options o = options_of(w, 4096);
    o.to = (kin_proto_endpoint){w->port, 2, {"nowhere.invalid", "127.0.0.1"}};
    outcome out = probe_with(w, &o);
    if (!out.ok) fail_msg("%s", out.reason);
    o.to = (kin_proto_endpoint){1, 1, {"127.0.0.1"}}; // no listener there
    out = probe_with(w, &o);
    assert_false(out.ok);
    assert_non_null(strstr(out.reason, "cannot connect"));
    close_peer(w);
}

static void without_an_address_there_is_no_probe(void **state) {
    context *w = *state;
    kin_probe_options o = options_of(w, 4096);
    kin_probe *p;
    kin_err err;
    o.to.n_addresses = 0;
    assert_int_equal(kin_probe_start(&p, &w->loop, &o, on_done, NULL, &err), KIN_FAIL);
    assert_null(p);
    assert_string_equal(err.text, "its address is unknown");
}

static void a_cancelled_probe_says_nothing(void **state) {
    context *w = *state;
    outcome out = {0};
    kin_probe *p;
    kin_err err;
    kin_probe_options o = options_of(w, 4096);
    open_peer(w, LATE);
    assert_int_equal(kin_probe_start(&p, &w->loop, &o, on_done, &out, &err), 0);
    while (the_peer.n_echoes < 2) {
        turn(w);
        serve(w);
    }
    kin_probe_cancel(p);
    kin_probe_cancel(NULL);
    run_for(w, 50);
    assert_false(out.is_over);
    close_peer(w);
}

// ---- peers that ask for too much

static end *connect_to_echo(context *w, end *client) {
    end *server = connect_pair(w, client);
    kin_link_set_frame_max(client->link, kin_frame_cap(KIN_FRAME_ECHO));
    if (!kin_echo_responder_is_full(the_peer.echo)) {
        assert_true(kin_echo_responder_add(the_peer.echo, server->link));
        server->link = NULL;
    }
    return server;
}
#define connect_to_echo(...) FROM_TEST(connect_to_echo(__VA_ARGS__))

static void an_echo_answers_with_the_token_and_as_many_bytes_as_asked(void **state) {
    context *w = *state;
    end client;
    kin_proto_echo m;
    open_peer(w, GOOD);
    connect_to_echo(w, &client);
    static const uint32_t answers[] = {0, 1, 65536, 65537, KIN_FRAME_ECHO_BYTES};
    for (int i = 0; i < 5; i++) {
        kin_echo_responder_send(client.link, 1000 + (uint64_t)i, answers[i], answers[4 - i]);
        RUN_UNTIL(w, client.n_frames == i + 1);
        assert_int_equal(client.last.type, KIN_FRAME_ECHO);
        assert_int_equal(kin_proto_decode_echo(client.bytes, client.n_bytes, &m, NULL), 0);
        assert_true(m.token == 1000 + (uint64_t)i && m.n_bytes == answers[i] && m.answer_bytes == 0);
    }
    close_end(w, &client);
    close_peer(w);
}

static void few_are_answered_at_a_time(void **state) {
    context *w = *state;
    end clients[KIN_ECHO_RESPONDER_LINKS + 1];
    open_peer(w, GOOD);
    for (int i = 0; i < KIN_ECHO_RESPONDER_LINKS; i++) {
        assert_false(kin_echo_responder_is_full(the_peer.echo));
        connect_to_echo(w, &clients[i]);
    }
    assert_true(kin_echo_responder_is_full(the_peer.echo));
    end *server = connect_to_echo(w, &clients[KIN_ECHO_RESPONDER_LINKS]);
    assert_false(kin_echo_responder_add(the_peer.echo, server->link));
    assert_non_null(server->link); // still the caller's
    close_end(w, &clients[0]);
    RUN_UNTIL(w, !kin_echo_responder_is_full(the_peer.echo));
    kin_echo_responder_tick(the_peer.echo, kin_clock_now()); // none is old
    run_for(w, 20);
    for (int i = 1; i < KIN_ECHO_RESPONDER_LINKS; i++) assert_true(clients[i].is_open);
    kin_echo_responder_tick(the_peer.echo, kin_clock_now() + (kin_time)KIN_ECHO_RESPONDER_LIFE_MS * 1000000);
    for (int i = 1; i < KIN_ECHO_RESPONDER_LINKS; i++) {
        RUN_UNTIL(w, !clients[i].is_open);
        assert_non_null(strstr(clients[i].reason, "the probe took too long"));
        free(clients[i].bytes);
    }
    close_end(w, &clients[KIN_ECHO_RESPONDER_LINKS]);
    close_peer(w);
}

static void expect_dropped(context *w, end *client, const char *sentence) {
    RUN_UNTIL(w, !client->link);
    if (!strstr(client->reason, sentence)) fail_msg("expected: %s\ngot:      %s", sentence, client->reason);
    free(client->bytes);
    assert_false(kin_echo_responder_is_full(the_peer.echo));
}
#define expect_dropped(...) FROM_TEST(expect_dropped(__VA_ARGS__))

static void a_peer_that_asks_for_too_much_is_disconnected(void **state) {
    context *w = *state;
    end client;
    open_peer(w, GOOD);
    connect_to_echo(w, &client);
    kin_time begun = kin_clock_now();
    for (int n = 0; client.link; n = client.n_frames) {
        kin_echo_responder_send(client.link, 1, KIN_FRAME_ECHO_BYTES, 0);
        while (client.link && client.n_frames == n && kin_clock_ms(begun, kin_clock_now()) < TIMEOUT_MS) turn(w);
    }
    assert_int_equal(client.n_frames, KIN_ECHO_RESPONDER_BYTES_MAX / (KIN_FRAME_ECHO_BYTES + 24));
    expect_dropped(w, &client, "more bytes than a measurement needs");

    connect_to_echo(w, &client);
    send_bytes(&client, KIN_FRAME_STATUS, "x", 1);
    expect_dropped(w, &client, "STATUS, but a probe link accepts only ECHO");

    connect_to_echo(w, &client);
    send_bytes(&client, KIN_FRAME_ECHO, "short", 5);
    expect_dropped(w, &client, "ECHO: ends");
    close_peer(w);
}

static void a_peer_that_does_not_read_answers_is_disconnected(void **state) {
    context *w = *state;
    end *server;
    uint8_t frame[KIN_FRAME_HEADER + 12];
    kin_proto_message m = {.type = KIN_FRAME_ECHO, .echo = {.token = 1, .answer_bytes = KIN_FRAME_ECHO_BYTES}};
    w->o.link.queue_max = 2 << 20;
    open_peer(w, GOOD);
    kin_listener_close(w->listener);
    kin_err err;
    assert_int_equal(kin_listener_open(&w->listener, &w->loop, NULL, 0, &w->o, on_accepted, w, &err), 0);
    w->port = kin_listener_port(w->listener);
    stranger s = connect_insider(w, &server);
    assert_true(kin_echo_responder_add(the_peer.echo, server->link));
    server->link = NULL;
    kin_proto_encode(frame, sizeof frame, 0, &m);
    for (int i = 0; i < 30; i++) send_encrypted(&s, frame, sizeof frame);
    RUN_UNTIL(w, n_lines("does not read the answers") == 1);
    close_peer(w);
    leave(&s);
}

// ---- a probe queue

enum { MAX_ANSWERS = KIN_PROTO_MAX_MEASURES + 8 };

typedef struct answers {
    kin_proto_measured at[MAX_ANSWERS];
    int n;
} answers;

static void on_measured(void *user, const kin_proto_measured *measured) {
    answers *a = user;
    assert_true(a->n < MAX_ANSWERS);
    a->at[a->n++] = *measured;
}

static kin_probe_queue *open_meter(context *w, answers *a) {
    kin_probe_queue *g;
    kin_err err;
    kin_probe_queue_options o = {.tls = w->tls, .self = {.id = own_id, .name = "anna", .version = "test"}};
    assert_int_equal(kin_probe_queue_open(&g, &w->loop, &o, on_measured, a, &err), 0);
    return g;
}
#define open_meter(...) FROM_TEST(open_meter(__VA_ARGS__))

static void serve_until(context *w, const answers *a, int n) {
    kin_time begun = kin_clock_now();
    while (a->n < n) {
        turn(w);
        serve(w);
        if (kin_clock_ms(begun, kin_clock_now()) > TIMEOUT_MS) fail_msg("%d answers of %d; log:\n%s", a->n, n, log_text);
    }
}
#define serve_until(...) FROM_TEST(serve_until(__VA_ARGS__))

static void every_request_gets_one_answer_in_order(void **state) {
    context *w = *state;
    static answers a;
    a.n = 0;
    open_peer(w, GOOD);
    kin_probe_queue *g = open_meter(w, &a);
    kin_proto_measure good = {peer_id, 16384, {w->port, 1, {"127.0.0.1"}}};
    kin_proto_measure nobody = {{{9}}, 16384, {1, 1, {"127.0.0.1"}}};
    kin_probe_queue_ask(g, &good);
    kin_probe_queue_ask(g, &nobody);
    kin_probe_queue_ask(g, &good);
    assert_int_equal(a.n, 0);
    serve_until(w, &a, 3);
    for (int i = 0; i < 3; i += 2) {
        assert_memory_equal(&a.at[i].id, &peer_id, sizeof peer_id);
        assert_string_equal(a.at[i].reason, "");
        assert_true(is_positive(a.at[i].rtt_s) && is_positive(a.at[i].to_bytes_s) && is_positive(a.at[i].from_bytes_s));
    }
    assert_memory_equal(&a.at[1].id, &nobody.id, sizeof nobody.id);
    assert_non_null(strstr(a.at[1].reason, "cannot connect"));
    assert_true(a.at[1].rtt_s == 0 && a.at[1].to_bytes_s == 0 && a.at[1].from_bytes_s == 0);
    kin_probe_queue_close(g);
    close_peer(w);
}

static void a_busy_peer_is_asked_again(void **state) {
    context *w = *state;
    static answers a;
    a.n = 0;
    open_peer(w, REFUSING);
    kin_probe_queue *g = open_meter(w, &a);
    kin_probe_queue_ask(g, &(kin_proto_measure){peer_id, 16384, {w->port, 1, {"127.0.0.1"}}});
    while (w->n_ends < 2) {
        turn(w);
        serve(w);
    }
    the_peer.manner = GOOD;
    serve_until(w, &a, 1);
    assert_string_equal(a.at[0].reason, "");
    kin_probe_queue_close(g);
    close_peer(w);
}

static void too_many_requests_are_answered_at_once(void **state) {
    context *w = *state;
    static answers a;
    a.n = 0;
    open_peer(w, MUTE);
    kin_probe_queue *g = open_meter(w, &a);
    kin_proto_measure m = {peer_id, 16384, {w->port, 1, {"127.0.0.1"}}};
    for (int i = 0; i < KIN_PROTO_MAX_MEASURES; i++) kin_probe_queue_ask(g, &m);
    assert_int_equal(a.n, 0);
    m.id.bytes[0] = 77;
    kin_probe_queue_ask(g, &m);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.at[0].id.bytes[0], 77);
    assert_string_equal(a.at[0].reason, "too many link measurements are pending");
    run_for(w, 50); // one is in flight
    kin_probe_queue_clear(g);
    run_for(w, 50);
    assert_int_equal(a.n, 1); // the others were dropped
    the_peer.manner = GOOD;
    m.id = peer_id;
    kin_probe_queue_ask(g, &m);
    serve_until(w, &a, 2);
    assert_string_equal(a.at[1].reason, "");
    kin_probe_queue_close(g);
    kin_probe_queue_close(NULL);
    close_peer(w);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_measured_path_has_a_round_trip_and_two_rates),
        TEST(each_direction_has_its_own_rate),
        TEST(on_a_long_path_messages_open_the_window),
        TEST(a_peer_that_answers_wrongly_is_not_measured),
        TEST(a_probe_always_ends),
#ifdef __linux__
        TEST(a_path_that_loses_large_messages_is_noticed),
#endif
        TEST(another_device_at_that_address_is_not_measured),
        TEST(addresses_are_tried_in_turn),
        TEST(without_an_address_there_is_no_probe),
        TEST(a_cancelled_probe_says_nothing),
        TEST(an_echo_answers_with_the_token_and_as_many_bytes_as_asked),
        TEST(few_are_answered_at_a_time),
        TEST(a_peer_that_asks_for_too_much_is_disconnected),
        TEST(a_peer_that_does_not_read_answers_is_disconnected),
        TEST(every_request_gets_one_answer_in_order),
        TEST(a_busy_peer_is_asked_again),
        TEST(too_many_requests_are_answered_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
