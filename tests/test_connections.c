// A head's messages on its devices' control links, over real links in one loop.
#include "cluster/connections.h"
#include "net/endpoint.h"
#include "pure/proto/message.h"
#include "tests/link_context.h"
#include "tests/place.h"

enum { N_MEMBERS = 3, LONG = KIN_PROTO_MAX_REASON };

// Static in each test: its callbacks run until the context is closed, also after a failed assertion.
typedef struct party {
    context *w;
    kin_connections *connections;
    end device[N_MEMBERS];
    uint32_t number[N_MEMBERS];
    uint32_t lost; // the last one that was lost
    char why[128];
} party;

static void on_message(void *user, uint32_t number, uint32_t epoch, kin_proto_message *m) {
    (void)user, (void)number, (void)epoch, (void)m;
}

static void on_lost(void *user, uint32_t number, const char *reason) {
    party *p = user;
    p->lost = number;
    snprintf(p->why, sizeof p->why, "%s", reason);
}

static void open_party(party *p, context *w) {
    static const kin_connections_callbacks of_crew = {.message = on_message, .lost = on_lost};
    kin_err err;
    *p = (party){.w = w};
    assert_int_equal(kin_connections_open(&p->connections, &of_crew, p, &err), 0);
    for (int i = 0; i < N_MEMBERS; i++) {
        end *head = connect_pair(w, &p->device[i]);
        p->number[i] = kin_connections_add(p->connections, head->link);
        head->link = NULL; // now owned by the connections
        assert_int_not_equal(p->number[i], 0);
        kin_link_set_frame_max(p->device[i].link, KIN_FRAME_CAP_LARGE);
    }
}
#define open_party(...) FROM_TEST(open_party(__VA_ARGS__))

static void close_party(party *p) {
    kin_connections_close(p->connections, "over");
    for (int i = 0; i < N_MEMBERS; i++) close_end(p->w, &p->device[i]);
}

// All devices get an END; the first does not read it.
static void a_peer_that_does_not_read_required_messages_loses_its_link(void **state) {
    context *w = *state;
    w->o.link.queue_max = 1 << 16;
    static party p;
    kin_proto_message m = {.type = KIN_FRAME_END};
    memset(m.end.reason, 'x', LONG);
    kin_listener_close(w->listener);
    kin_err err;
    assert_int_equal(kin_listener_open(&w->listener, &w->loop, NULL, 0, &w->o, on_accepted, w, &err), 0);
    w->port = kin_listener_port(w->listener);
    open_party(&p, w);
    kin_connections_tick(p.connections);
    assert_int_equal(p.lost, 0);
    int n = 0;
    while (kin_connections_send(p.connections, p.number[0], 1, &m))
        assert_true(++n < 1000000); // the loop stands still, so nothing is read
    assert_true(kin_connections_send(p.connections, p.number[1], 1, &m));
    assert_int_equal(p.lost, 0); // the loss is reported later, not during the send
    kin_connections_tick(p.connections);
    assert_int_equal(p.lost, p.number[0]);
    assert_string_equal(p.why, "it does not read its messages");
    assert_null(kin_connections_link(p.connections, p.number[0]));
    assert_false(kin_connections_send(p.connections, p.number[0], 1, &m));
    p.lost = 0;
    kin_connections_tick(p.connections);
    assert_int_equal(p.lost, 0);
    assert_non_null(kin_connections_link(p.connections, p.number[1]));
    RUN_UNTIL(w, p.device[1].n_frames == 1 && !p.device[0].link);
    assert_int_equal(n_lines("it does not read its messages"), 1);
    close_party(&p);
}

static kin_proto_have heard(const end *e) {
    static kin_proto_have have;
    kin_err err;
    assert_int_equal(e->last.type, KIN_FRAME_HAVE);
    assert_int_equal(kin_proto_decode_have(e->bytes, e->n_bytes, &have, &err), 0);
    return have;
}
#define heard(...) FROM_TEST(heard(__VA_ARGS__))

static void a_device_is_where_it_says_and_at_last_where_it_is_seen(void **state) {
    context *w = *state;
    static party p;
    kin_proto_endpoint to;
    kin_proto_message m = {.type = KIN_FRAME_DEVICE, .device = {.n_threads = 1, .endpoint = {77, 1, {"10.0.0.9"}}}};
    open_party(&p, w);
    assert_false(kin_connections_endpoint(p.connections, p.number[0], &to)); // it has not sent its facts yet
    kin_endpoint_send_message(p.device[0].link, 0, &m);
    RUN_UNTIL(w, kin_connections_endpoint(p.connections, p.number[0], &to));
    assert_int_equal(to.port, 77);
    assert_int_equal(to.n_addresses, 2);
    assert_string_equal(to.address[0], "10.0.0.9");
    assert_string_equal(to.address[1], "127.0.0.1");
    m.device.endpoint.n_addresses = 0;
    kin_endpoint_send_message(p.device[1].link, 0, &m);
    RUN_UNTIL(w, kin_connections_endpoint(p.connections, p.number[1], &to));
    assert_int_equal(to.n_addresses, 1);
    assert_string_equal(to.address[0], "127.0.0.1");
    close_party(&p);
}

static void an_answer_to_an_earlier_question_is_none_to_a_later_one(void **state) {
    context *w = *state;
    static party p;
    kin_proto_endpoint to;
    kin_proto_message facts = {.type = KIN_FRAME_DEVICE, .device = {.n_threads = 1, .endpoint = {77, 1, {"10.0.0.9"}}}};
    kin_proto_message status = {.type = KIN_FRAME_STATUS};
    open_party(&p, w);
    kin_endpoint_send_message(p.device[0].link, 0, &facts);
    RUN_UNTIL(w, kin_connections_endpoint(p.connections, p.number[0], &to));
    kin_connections_ask(p.connections);
    kin_connections_ask(p.connections);
    RUN_UNTIL(w, p.device[0].n_frames == 2);
    assert_false(kin_connections_has_answered(p.connections));
    for (uint64_t i = 1; i <= 2; i++) {
        status.status.tokens = i;
        kin_endpoint_send_message(p.device[0].link, 0, &status);
        RUN_UNTIL(w, kin_connections_sample_of(p.connections, p.number[0]).now.tokens == i);
        assert_int_equal(kin_connections_has_answered(p.connections), i == 2);
        assert_int_equal(kin_connections_sample_of(p.connections, p.number[0]).is_fresh, i == 2);
    }
    kin_connections_ask(p.connections);
    kin_connections_ask_no_more(p.connections);
    assert_true(kin_connections_has_answered(p.connections));
    close_party(&p);
}

static void a_device_that_goes_is_reported_as_gone(void **state) {
    context *w = *state;
    static party p;
    open_party(&p, w);
    static const uint8_t bits[2] = {5, 1};
    kin_proto_have have = {.model = {{4}}, .id = {{9}}, .endpoint = {77, 1, {"10.0.0.9"}}, .n_chunks = 9, .bitmap = bits};
    kin_connections_relay(p.connections, p.number[0], &have);
    RUN_UNTIL(w, p.device[1].n_frames == 1 && p.device[2].n_frames == 1);
    assert_int_equal(heard(&p.device[1]).endpoint.n_addresses, 1);
    assert_int_equal(p.device[0].n_frames, 0);
    kin_connections_drop(p.connections, p.number[1], "enough"); // no message: this device never announced chunks
    kin_link_close(p.device[0].link, NULL);
    p.device[0].link = NULL;
    RUN_UNTIL(w, p.device[2].n_frames == 2);
    assert_int_equal(p.lost, p.number[0]);
    kin_proto_have gone = heard(&p.device[2]);
    assert_int_equal(gone.endpoint.n_addresses, 0);
    assert_memory_equal(&gone.id, &have.id, sizeof have.id);
    assert_memory_equal(&gone.model, &have.model, sizeof have.model);
    kin_connections_send_haves(p.connections, p.number[2]); // everything is reported already
    run_for(w, 30);
    assert_int_equal(p.device[2].n_frames, 2);
    close_party(&p);
}

// A device that has the whole model offers it once.
static void an_offer_that_finds_no_room_is_sent_later(void **state) {
    context *w = *state;
    static party p;
    open_party(&p, w);
    static const uint8_t bits[2 * LONG]; // longer than an END, so that there is no room for it
    kin_proto_message m = {.type = KIN_FRAME_END};
    memset(m.end.reason, 'x', LONG);
    kin_proto_have have = {
        .model = {{4}}, .id = {{9}}, .endpoint = {77, 1, {"10.0.0.9"}}, .n_chunks = 8 * sizeof bits, .bitmap = bits};
    kin_link *link = kin_connections_link(p.connections, p.number[0]);
    kin_link_set_queue_max(link, 1 << 16);
    for (kin_link_sent sent = KIN_LINK_SENT; sent != KIN_LINK_FULL;) { // nothing is read meanwhile
        sent = kin_endpoint_send_message(link, 1, &m);
        assert_int_not_equal(sent, KIN_LINK_SHUT);
    }
    kin_connections_relay(p.connections, p.number[1], &have);
    kin_connections_tick(p.connections);
    RUN_UNTIL(w, p.device[2].n_frames == 1 && kin_link_stats_now(link).queued == 0);
    assert_int_not_equal(p.device[0].last.type, KIN_FRAME_HAVE);
    kin_connections_tick(p.connections);
    RUN_UNTIL(w, p.device[0].last.type == KIN_FRAME_HAVE);
    kin_proto_have late = heard(&p.device[0]);
    assert_memory_equal(&late.id, &have.id, sizeof have.id);
    const int n = p.device[0].n_frames;
    kin_connections_tick(p.connections);
    run_for(w, 30);
    assert_int_equal(p.device[0].n_frames, n);
    assert_int_equal(p.device[2].n_frames, 1);
    close_party(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_peer_that_does_not_read_required_messages_loses_its_link, open_pair_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(a_device_is_where_it_says_and_at_last_where_it_is_seen, open_pair_context, close_context),
        cmocka_unit_test_setup_teardown(an_answer_to_an_earlier_question_is_none_to_a_later_one, open_pair_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(an_offer_that_finds_no_room_is_sent_later, open_pair_context, close_context),
        cmocka_unit_test_setup_teardown(a_device_that_goes_is_reported_as_gone, open_pair_context, close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
