// A dial (net/dial.h): every way in which OPEN is answered, or not.
#include "net/dial.h"
#include "pure/proto/versions.h"
#include "tests/link_context.h"
#include "tests/place.h"

enum { SHORT_MS = 1000 }; // enough for a handshake, even on a busy machine

static const kin_proto_id own_id = {{6}}, peer_id = {{5}}, other_id = {{9}};

// How the listener's side answers OPEN.
typedef enum manner { ACCEPTING, REFUSING, MUTE, UNEXPECTED, MALFORMED_ACCEPT, MALFORMED_REFUSE, HANGING_UP } manner;

static manner the_manner;
static kin_proto_id the_id;  // the id in its answer
static kin_proto_open heard; // the last OPEN
static uint32_t heard_epoch;

static void send_message(end *e, const kin_proto_message *m) {
    uint8_t frame[2048];
    size_t n = kin_proto_encode(frame, sizeof frame, 0, m);
    kin_link_send(e->link, m->type, 0, 1, &(kin_frame_part){frame + KIN_FRAME_HEADER, n - KIN_FRAME_HEADER});
}

static void answer_open(end *e) {
    kin_proto_message accept = {.type = KIN_FRAME_ACCEPT,
                                .accept = {.id = the_id, .versions = KIN_PROTO_VERSIONS, .name = "bob"}};
    kin_proto_message refuse = {.type = KIN_FRAME_REFUSE, .refuse = {"busy: no place"}};
    if (e->last.type != KIN_FRAME_OPEN) return;
    assert_int_equal(kin_proto_decode_open(e->bytes, e->n_bytes, &heard, NULL), 0);
    heard_epoch = e->last.epoch;
    switch (the_manner) {
    case ACCEPTING: send_message(e, &accept); break;
    case REFUSING: send_message(e, &refuse); break;
    case MUTE: break;
    case UNEXPECTED: send_message(e, &(kin_proto_message){.type = KIN_FRAME_STATUS_WANTED}); break;
    case MALFORMED_ACCEPT: send_bytes(e, KIN_FRAME_ACCEPT, "?", 1); break;
    case MALFORMED_REFUSE: send_bytes(e, KIN_FRAME_REFUSE, "?", 1); break;
    case HANGING_UP:
        kin_link_close(e->link, "no time");
        e->link = NULL;
        break;
    }
}

static void serve(context *w) {
    for (int i = 0; i < w->n_ends; i++) {
        end *e = &w->ends[i];
        if (e->on_frame) continue;
        e->on_frame = answer_open;
        if (e->link && e->n_frames > 0) answer_open(e);
    }
}
#define serve(...) FROM_TEST(serve(__VA_ARGS__))

// ---- the dialling side

typedef struct outcome {
    int n; // calls of the callback; never more than one
    bool ok;
    kin_dial_end end;
    char reason[512], at[64];
    kin_proto_accept accept;
    end link;
} outcome;

static void accepted(void *user, kin_link *link, const kin_proto_accept *accept) {
    outcome *o = user;
    o->n++;
    o->ok = true;
    o->accept = *accept;
    o->link.link = link;
    kin_link_accept(link, &callbacks, &o->link);
}

static void failed(void *user, const kin_dial_failure *failure) {
    outcome *o = user;
    o->n++;
    o->end = failure->end;
    snprintf(o->reason, sizeof o->reason, "%s", failure->reason);
    snprintf(o->at, sizeof o->at, "%s", failure->at);
}

static const kin_dial_callbacks told = {accepted, failed};

static kin_dial_options options_of(context *w) {
    kin_dial_options o = kin_dial_options_default(w->tls);
    o.link.transport = w->o.link.transport;
    o.link.handshake_ms = HANDSHAKE_MS;
    o.to = kin_dial_address("127.0.0.1", w->port);
    o.open = (kin_proto_open){.role = KIN_PROTO_FETCH, .id = own_id, .name = "anna", .version = "test"};
    o.epoch = 3;
    o.answers = peer_id;
    o.limit_ms = TIMEOUT_MS;
    return o;
}

static kin_dial *start(context *w, const kin_dial_options *o, outcome *out) {
    kin_dial *d;
    kin_err err;
    *out = (outcome){.link.w = w};
    if (kin_dial_start(&d, &w->loop, o, &told, out, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(out->n, 0); // never called from within kin_dial_start
    return d;
}
#define start(...) FROM_TEST(start(__VA_ARGS__))

static outcome dial(context *w, const kin_dial_options *o, manner manner, const kin_proto_id *id) {
    static outcome out;
    the_manner = manner;
    the_id = *id;
    start(w, o, &out);
    RUN_UNTIL(w, (serve(w), out.n > 0));
    run_for(w, 20);
    assert_int_equal(out.n, 1);
    return out;
}
#define dial(...) FROM_TEST(dial(__VA_ARGS__))

static void expect_failure(context *w, const kin_dial_options *o, manner manner, const kin_proto_id *id, kin_dial_end end,
                           const char *sentence) {
    outcome out = dial(w, o, manner, id);
    assert_false(out.ok);
    if (!strstr(out.reason, sentence)) fail_msg("expected: %s\ngot:      %s", sentence, out.reason);
    assert_int_equal(out.end, end);
}
#define expect_failure(...) FROM_TEST(expect_failure(__VA_ARGS__))

// ---- claims

static void an_accepted_link_is_the_owners(void **state) {
    context *w = *state;
    outcome out;
    kin_dial_options o = options_of(w);
    the_manner = ACCEPTING;
    the_id = peer_id;
    start(w, &o, &out);
    RUN_UNTIL(w, (serve(w), out.n > 0));
    assert_true(out.ok);
    assert_string_equal(out.accept.name, "bob");
    assert_int_equal(heard.role, KIN_PROTO_FETCH);
    assert_memory_equal(&heard.id, &own_id, sizeof own_id);
    assert_memory_equal(&heard.peer, &peer_id, sizeof peer_id);
    assert_string_equal(heard.name, "anna");
    assert_int_equal(heard_epoch, 3);
    run_for(w, 2 * SILENCE_MS); // longer than the dial's timers, which must be gone
    expect_frame(w, &w->ends[0], &out.link, "something");
    close_end(w, &out.link);
    assert_int_equal(out.n, 1);
}

static void any_peer_may_answer_if_none_is_named(void **state) {
    context *w = *state;
    kin_dial_options o = options_of(w);
    o.answers = (kin_proto_id){{0}};
    outcome out = dial(w, &o, ACCEPTING, &other_id);
    assert_true(out.ok);
    assert_memory_equal(&out.accept.id, &other_id, sizeof other_id);
    assert_memory_equal(&heard.peer, &o.answers, sizeof heard.peer);
    kin_link_close(out.link.link, NULL);
    expect_failure(w, &o, ACCEPTING, &own_id, KIN_DIAL_WRONG, "its address leads back to this device");
}

static void a_peer_that_is_named_is_said_though_another_one_answers(void **state) {
    context *w = *state;
    kin_dial_options o = options_of(w);
    o.open.peer = other_id; // through the head's relay
    outcome out = dial(w, &o, ACCEPTING, &peer_id);
    assert_true(out.ok);
    assert_memory_equal(&heard.peer, &other_id, sizeof other_id);
    kin_link_close(out.link.link, NULL);
}

static void an_answer_with_another_id_is_not_believed(void **state) {
    context *w = *state;
    kin_dial_options o = options_of(w);
    expect_failure(w, &o, ACCEPTING, &other_id, KIN_DIAL_WRONG, "another device, 'bob', answers at its address");
    expect_failure(w, &o, ACCEPTING, &own_id, KIN_DIAL_WRONG, "its address leads back to this device");
    RUN_UNTIL(w, strstr(w->ends[0].reason, "another device")); // the other side learns the reason
}

static void what_is_no_answer_is_said(void **state) {
    context *w = *state;
    kin_dial_options o = options_of(w);
    expect_failure(w, &o, REFUSING, &peer_id, KIN_DIAL_REFUSED, "busy: no place");
    expect_failure(w, &o, UNEXPECTED, &peer_id, KIN_DIAL_WRONG, "it sent STATUS_WANTED before ACCEPT");
    expect_failure(w, &o, MALFORMED_ACCEPT, &peer_id, KIN_DIAL_WRONG, "ACCEPT: ends");
    expect_failure(w, &o, MALFORMED_REFUSE, &peer_id, KIN_DIAL_WRONG, "REFUSE: ends");
    expect_failure(w, &o, HANGING_UP, &peer_id, KIN_DIAL_LOST, "no time");
}

static void a_dial_always_ends(void **state) {
    context *w = *state;
    kin_dial_options o = options_of(w);
    o.limit_ms = SHORT_MS;
    expect_failure(w, &o, MUTE, &peer_id, KIN_DIAL_LOST, "it does not answer OPEN");
    o.to.port = 1; // nothing listens there
    expect_failure(w, &o, MUTE, &peer_id, KIN_DIAL_LOST, "cannot connect");
}

// Opens a listener that completes TCP connections and never answers.
static int open_deaf(uint16_t *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *port = ntohs(a.sin_port);
    return fd;
}
#define open_deaf(...) FROM_TEST(open_deaf(__VA_ARGS__))

static void a_peer_that_is_not_kin_is_left(void **state) {
    context *w = *state;
    outcome out;
    kin_dial_options o = options_of(w);
    int fd = open_deaf(&o.to.port);
    o.limit_ms = SHORT_MS;
    expect_failure(w, &o, MUTE, &peer_id, KIN_DIAL_LOST, "no answer in time"); // the handshake's own limit is longer
    o.limit_ms = TIMEOUT_MS;
    start(w, &o, &out);
    int left = accept(fd, NULL, NULL), other = accept(fd, NULL, NULL);
    assert_int_equal(send(other, "HTTP/1.1 200 OK\r\n\r\n", 19, MSG_NOSIGNAL), 19);
    RUN_UNTIL(w, out.n > 0);
    assert_int_equal(out.end, KIN_DIAL_STRANGER);
    start(w, &o, &out);
    close(accept(fd, NULL, NULL));
    RUN_UNTIL(w, out.n > 0);
    assert_int_equal(out.end, KIN_DIAL_LOST); // the peer may be a head that is starting or stopping
    close(left);
    close(other);
    close(fd);
}

static void another_key_is_told_apart(void **state) {
    context *w = *state;
    kin_dial_options o = options_of(w);
    o.link.tls = w->other_tls;
    expect_failure(w, &o, ACCEPTING, &peer_id, KIN_DIAL_OTHER_KEY, "the other side has another key");
}

static void addresses_are_tried_until_the_right_one_answers(void **state) {
    context *w = *state;
    kin_dial_options o = options_of(w);
    o.to = (kin_proto_endpoint){w->port, 2, {"nowhere.invalid", "127.0.0.1"}};
    outcome out = dial(w, &o, ACCEPTING, &peer_id);
    assert_true(out.ok);
    kin_link_close(out.link.link, NULL);
    int n = w->n_ends;
    o.to = (kin_proto_endpoint){w->port, 2, {"127.0.0.1", "127.0.0.1"}};
    expect_failure(w, &o, ACCEPTING, &other_id, KIN_DIAL_WRONG, "another device");
    assert_int_equal(w->n_ends, n + 2);
    expect_failure(w, &o, REFUSING, &peer_id, KIN_DIAL_REFUSED, "busy: no place"); // a refusal counts for all addresses
    assert_int_equal(w->n_ends, n + 3);
    o.to.n_addresses = 0;
    kin_dial *d;
    kin_err err;
    assert_int_equal(kin_dial_start(&d, &w->loop, &o, &told, NULL, &err), KIN_FAIL);
    assert_null(d);
    assert_string_equal(err.text, "its address is unknown");
}

static void a_cancelled_dial_says_nothing(void **state) {
    context *w = *state;
    outcome out;
    kin_dial_options o = options_of(w);
    the_manner = MUTE;
    kin_dial_cancel(NULL, NULL);
    kin_dial_cancel(start(w, &o, &out), NULL); // before it does anything
    kin_proto_endpoint good = o.to;
    o.to = kin_dial_address("nowhere.invalid", 1);
    kin_dial_cancel(start(w, &o, &out), NULL); // during name resolution
    o.to = good;
    kin_dial *d = start(w, &o, &out);
    turn(w); // usually during the handshake
    kin_dial_cancel(d, NULL);
    heard = (kin_proto_open){0};
    d = start(w, &o, &out);
    RUN_UNTIL(w, (serve(w), heard.name[0]));
    kin_dial_cancel(d, "enough"); // after OPEN
    RUN_UNTIL(w, strstr(w->ends[w->n_ends - 1].reason, "enough"));
    the_manner = ACCEPTING; // the answer is in flight
    heard = (kin_proto_open){0};
    d = start(w, &o, &out);
    RUN_UNTIL(w, (serve(w), heard.name[0]));
    kin_dial_cancel(d, NULL);
    run_for(w, 50);
    assert_int_equal(out.n, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair_context, close_context)
#define TCP_TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)
    const struct CMUnitTest tests[] = {
        TEST(an_accepted_link_is_the_owners),
        TEST(any_peer_may_answer_if_none_is_named),
        TEST(a_peer_that_is_named_is_said_though_another_one_answers),
        TEST(an_answer_with_another_id_is_not_believed),
        TEST(what_is_no_answer_is_said),
        TEST(a_dial_always_ends),
        TCP_TEST(a_dial_always_ends),
        TCP_TEST(a_peer_that_is_not_kin_is_left),
        TCP_TEST(another_key_is_told_apart),
        TEST(addresses_are_tried_until_the_right_one_answers),
        TCP_TEST(addresses_are_tried_until_the_right_one_answers),
        TEST(a_cancelled_dial_says_nothing),
        TCP_TEST(a_cancelled_dial_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
