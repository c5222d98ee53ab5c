// Ring links (pipeline/neighbours.h) and hops through the head (pipeline/relay.h), between endpoints of one process on loopback.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "pipeline/neighbours.h"
#include "pipeline/relay.h"
#include "tests/place.h"

enum { EPOCH = 7, FRAME_MAX = 4 << 20, TIMEOUT_MS = 20000, N_BUFFERS = 8 };

static const kin_key key = {{7, 7, 7}};

typedef struct member {
    uint8_t id;
    kin_endpoint *endpoint;
    kin_message_pool *pool;
    kin_message_queue *in;
    kin_neighbours *neighbours;
    kin_relay *relay; // only in a head
    kin_ring_place place;
    pthread_mutex_t mutex;
    int n_told[KIN_N_SIDES];
    bool is_open[KIN_N_SIDES];
    char reason[KIN_N_SIDES][256];
    int n_begun;      // relayed hops
    uint64_t net_out; // bytes sent, at the last report
} member;

static void on_hop(void *user, kin_side side, uint32_t epoch, bool is_open, const char *reason) {
    member *m = user;
    pthread_mutex_lock(&m->mutex);
    assert_int_equal(epoch, EPOCH);
    m->n_told[side]++;
    m->is_open[side] = is_open;
    m->net_out = kin_neighbours_stats_now(m->neighbours).net_out;
    snprintf(m->reason[side], sizeof m->reason[side], "%s", reason);
    pthread_mutex_unlock(&m->mutex);
}

static void on_link(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    member *m = user;
    if (kin_neighbours_accept(m->neighbours, link, epoch, open)) return;
    assert_int_equal(epoch, EPOCH);
    if (m->relay)
        kin_relay_add(m->relay, m->endpoint, link, open);
    else
        kin_endpoint_refuse(link, "identity: this is not the device that was called");
}

static void on_begun(void *user, const kin_proto_id *from, const kin_proto_id *to) {
    member *m = user;
    pthread_mutex_lock(&m->mutex);
    assert_true(from->bytes[0] == 1 && to->bytes[0] == 2);
    m->n_begun++;
    pthread_mutex_unlock(&m->mutex);
}

static void nothing(void *arg) {
    (void)arg;
}

static void open_member(member *m, uint8_t id, bool is_head) {
    static const kin_endpoint_callbacks callbacks = {.opened = on_link};
    kin_err err;
    *m = (member){.id = id};
    pthread_mutex_init(&m->mutex, NULL);
    assert_int_equal(kin_message_pool_open(&m->pool, N_BUFFERS, &err), 0);
    assert_int_equal(kin_message_queue_open(&m->in, &err), 0);
    if (is_head) assert_int_equal(kin_relay_open(&m->relay, on_begun, m, &err), 0);
    kin_endpoint_options o = {.id = {{id}}, .name = "somebody", .version = "test", .key = key, .listen = "127.0.0.1"};
    assert_int_equal(kin_endpoint_open(&m->endpoint, &o, &callbacks, m, &err), 0);
    kin_neighbours_options no = {.endpoint = m->endpoint, .pool = m->pool, .in = m->in};
    assert_int_equal(kin_neighbours_open(&m->neighbours, &no, on_hop, m, &err), 0);
    assert_int_equal(kin_endpoint_start(m->endpoint, nothing, NULL, &err), 0);
}
#define open_member(...) FROM_TEST(open_member(__VA_ARGS__))

static void end_ring(void *arg) {
    member *m = arg;
    kin_neighbours_close(m->neighbours, "over");
    kin_relay_close(m->relay, "over");
}

static void close_member(member *m) {
    kin_endpoint_close(m->endpoint, end_ring, m);
    kin_message_queue_drain(m->in, m->pool);
    kin_message_queue_close(m->in);
    kin_message_pool_close(m->pool);
    pthread_mutex_destroy(&m->mutex);
}

static void enter_now(void *arg) {
    member *m = arg;
    kin_neighbours_enter(m->neighbours, &m->place);
    if (m->relay) kin_relay_enter(m->relay, m->place.epoch, m->place.frame_max);
}

static void enter(member *m, uint8_t next, uint8_t previous) {
    m->place = (kin_ring_place){.epoch = EPOCH, .frame_max = FRAME_MAX, .who = {{{next}}, {{previous}}}};
    kin_endpoint_call(m->endpoint, enter_now, m);
}

typedef struct call {
    member *m;
    kin_side side;
    kin_proto_endpoint to;
    kin_proto_id answers;
    bool by_head;
    atomic_bool is_done;
} call;

static void connect_now(void *arg) {
    call *c = arg;
    kin_neighbours_connect(c->m->neighbours, c->side, &c->to, c->by_head ? &c->answers : NULL);
    atomic_store(&c->is_done, true);
}

// Connects to the endpoint of `to`. by_head: `to` is the head, which relays the hop.
static void connects(member *m, kin_side side, const member *to, bool by_head) {
    static call c;
    c = (call){.m = m, .side = side, .to = {kin_endpoint_port(to->endpoint), 1, {"127.0.0.1"}}, .answers = {{to->id}}};
    c.by_head = by_head;
    kin_endpoint_call(m->endpoint, connect_now, &c);
    while (!atomic_load(&c.is_done)) usleep(1000);
}

// Waits for n reports about this side. Returns if it is open, and the last reason.
static bool told(member *m, kin_side side, int n, char reason[256]) {
    for (int waited_ms = 0; waited_ms < TIMEOUT_MS; waited_ms += 5) {
        pthread_mutex_lock(&m->mutex);
        bool is_told = m->n_told[side] >= n, is_open = m->is_open[side];
        if (reason) memcpy(reason, m->reason[side], sizeof m->reason[side]);
        pthread_mutex_unlock(&m->mutex);
        if (is_told) return is_open;
        usleep(5000);
    }
    fail_msg("nothing was told %d times of side %d", n, (int)side);
    return false;
}
#define told(...) FROM_TEST(told(__VA_ARGS__))

static void expect_counts(member *m, int n_next, int n_previous, int n_begun) {
    pthread_mutex_lock(&m->mutex);
    int got[] = {m->n_told[KIN_SIDE_NEXT], m->n_told[KIN_SIDE_PREVIOUS], m->n_begun};
    pthread_mutex_unlock(&m->mutex);
    assert_int_equal(got[0], n_next);
    assert_int_equal(got[1], n_previous);
    assert_int_equal(got[2], n_begun);
}
#define expect_counts(...) FROM_TEST(expect_counts(__VA_ARGS__))

static void sends(member *m, size_t n) {
    kin_message_buffer *p = kin_message_pool_get(m->pool, n);
    assert_non_null(p);
    memset(p->payload, 0x5a, n);
    p->frame = (kin_frame){KIN_FRAME_STEP, EPOCH, (uint32_t)n};
    kin_neighbours_send(m->neighbours, p);
}
#define sends(...) FROM_TEST(sends(__VA_ARGS__))

static void receive(member *m, size_t n) {
    kin_message_buffer *p = kin_message_queue_pop(m->in, TIMEOUT_MS);
    assert_non_null(p);
    assert_int_equal(p->frame.type, KIN_FRAME_STEP);
    assert_int_equal(p->frame.length, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(p->payload[i], 0x5a);
    kin_message_pool_give(m->pool, p);
}
#define receive(...) FROM_TEST(receive(__VA_ARGS__))

// ---- from either end

static void steps_pass_whoever_opened_the_link(void **state) {
    (void)state;
    for (int opened_by_receiver = 0; opened_by_receiver < 2; opened_by_receiver++) {
        member a, b;
        open_member(&a, 1, false);
        open_member(&b, 2, false);
        enter(&a, 2, 9);
        enter(&b, 9, 1);
        if (opened_by_receiver)
            connects(&b, KIN_SIDE_PREVIOUS, &a, false);
        else
            connects(&a, KIN_SIDE_NEXT, &b, false);
        assert_true(told(&a, KIN_SIDE_NEXT, 1, NULL));
        assert_true(told(&b, KIN_SIDE_PREVIOUS, 1, NULL));
        for (int i = 0; i < 20; i++) {
            sends(&a, i % 2 ? 40 : FRAME_MAX);
            receive(&b, i % 2 ? 40 : FRAME_MAX);
        }
        close_member(&b);
        assert_false(told(&a, KIN_SIDE_NEXT, 2, NULL));
        pthread_mutex_lock(&a.mutex);
        assert_true(a.net_out > UINT64_C(10) * FRAME_MAX); // includes the bytes of the link that has ended
        pthread_mutex_unlock(&a.mutex);
        close_member(&a);
    }
}

static void the_sender_keeps_the_link_that_it_has(void **state) {
    (void)state;
    member a, b;
    char reason[256];
    open_member(&a, 1, false);
    open_member(&b, 2, false);
    enter(&a, 2, 9);
    enter(&b, 9, 1);
    connects(&a, KIN_SIDE_NEXT, &b, false);
    assert_true(told(&a, KIN_SIDE_NEXT, 1, NULL));
    assert_true(told(&b, KIN_SIDE_PREVIOUS, 1, NULL));
    connects(&b, KIN_SIDE_PREVIOUS, &a, false);
    for (int i = 0; i < 100; i++) { // the second link is refused, which is not reported
        sends(&a, 100);
        receive(&b, 100);
    }
    assert_true(told(&a, KIN_SIDE_NEXT, 1, reason) && told(&b, KIN_SIDE_PREVIOUS, 1, reason));
    expect_counts(&a, 1, 0, 0);
    expect_counts(&b, 0, 1, 0);
    close_member(&a);
    close_member(&b);
}

// A failed connection attempt is repeated later, and meanwhile the next member may have opened the link.
static void a_sender_that_has_a_link_opens_no_other(void **state) {
    (void)state;
    member a, b;
    open_member(&a, 1, false);
    open_member(&b, 2, false);
    enter(&a, 2, 9);
    enter(&b, 9, 1);
    connects(&b, KIN_SIDE_PREVIOUS, &a, false);
    assert_true(told(&a, KIN_SIDE_NEXT, 1, NULL));
    assert_true(told(&b, KIN_SIDE_PREVIOUS, 1, NULL));
    connects(&a, KIN_SIDE_NEXT, &b, false);
    for (int i = 0; i < 20; i++) { // long enough for another link to replace this one, which would lose frames
        sends(&a, FRAME_MAX);
        receive(&b, FRAME_MAX);
    }
    expect_counts(&a, 1, 0, 0);
    close_member(&a);
    assert_false(told(&b, KIN_SIDE_PREVIOUS, 2, NULL));
    expect_counts(&b, 0, 2, 0);
    close_member(&b);
}

// ---- identities

static void a_ring_link_of_a_stranger_is_refused(void **state) {
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        member a, b;
        char reason[256];
        open_member(&a, 1, false);
        open_member(&b, 2, false);
        enter(&a, 2, 2);
        enter(&b, 3, 3); // b expects other members on both sides
        connects(&a, is_back ? KIN_SIDE_PREVIOUS : KIN_SIDE_NEXT, &b, false);
        assert_false(told(&a, is_back ? KIN_SIDE_PREVIOUS : KIN_SIDE_NEXT, 1, reason));
        assert_string_equal(reason, "identity: the caller is not a neighbour of this device");
        expect_counts(&b, 0, 0, 0);
        close_member(&a);
        close_member(&b);
    }
}

static void another_device_at_the_next_ones_address_is_not_sent_to(void **state) {
    (void)state;
    member a, b;
    char reason[256];
    open_member(&a, 1, false);
    open_member(&b, 2, false);
    enter(&a, 3, 9);
    enter(&b, 9, 1);
    connects(&a, KIN_SIDE_NEXT, &b, false);
    assert_false(told(&a, KIN_SIDE_NEXT, 1, reason));
    assert_string_equal(reason, "identity: this is not the device that was called");
    expect_counts(&b, 0, 0, 0);
    close_member(&a);
    close_member(&b);
}

// Two machines may use the same port, and one of them may be known as 127.0.0.1.
static void an_address_that_leads_back_to_oneself_is_no_neighbour(void **state) {
    (void)state;
    member a;
    char reason[256];
    open_member(&a, 1, false);
    enter(&a, 2, 2);
    for (int side = 0; side < KIN_N_SIDES; side++) {
        connects(&a, (kin_side)side, &a, false);
        assert_false(told(&a, (kin_side)side, 1, reason));
        assert_string_equal(reason, "identity: this is not the device that was called");
    }
    close_member(&a);
}

// A peer with the key that accepts every link and answers with another id than the expected one.
static void accept_open(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    member *m = user;
    (void)epoch, (void)open;
    static const kin_link_callbacks none = {0};
    kin_link_accept(link, &none, NULL);
    kin_endpoint_send_accept(m->endpoint, link);
}

static void an_answer_with_another_id_is_not_believed(void **state) {
    (void)state;
    static const kin_endpoint_callbacks callbacks = {.opened = accept_open};
    static const struct {
        uint8_t id;
        const char *reason;
    } liars[] = {{2, "another device, 'somebody', answers at its address"}, {1, "its address leads back to this device"}};
    for (int i = 0; i < 2; i++) {
        member a, liar = {.id = liars[i].id};
        kin_err err;
        char reason[256];
        open_member(&a, 1, false);
        enter(&a, 3, 9);
        kin_endpoint_options o = {.id = {{liar.id}}, .name = "somebody", .version = "test", .key = key, .listen = "127.0.0.1"};
        assert_int_equal(kin_endpoint_open(&liar.endpoint, &o, &callbacks, &liar, &err), 0);
        assert_int_equal(kin_endpoint_start(liar.endpoint, nothing, NULL, &err), 0);
        connects(&a, KIN_SIDE_NEXT, &liar, false);
        assert_false(told(&a, KIN_SIDE_NEXT, 1, reason));
        assert_string_equal(reason, liars[i].reason);
        close_member(&a);
        kin_endpoint_close(liar.endpoint, NULL, NULL);
    }
}

// ---- through the head

static void the_head_passes_on_what_two_cannot_send(void **state) {
    (void)state;
    for (int receiver_first = 0; receiver_first < 2; receiver_first++) {
        member head, a, b;
        open_member(&head, 100, true);
        open_member(&a, 1, false);
        open_member(&b, 2, false);
        enter(&head, 1, 2);
        enter(&a, 2, 100);
        enter(&b, 100, 1);
        if (receiver_first) connects(&b, KIN_SIDE_PREVIOUS, &head, true);
        connects(&a, KIN_SIDE_NEXT, &head, true);
        if (!receiver_first) connects(&b, KIN_SIDE_PREVIOUS, &head, true);
        assert_true(told(&a, KIN_SIDE_NEXT, 1, NULL));
        assert_true(told(&b, KIN_SIDE_PREVIOUS, 1, NULL));
        expect_counts(&head, 0, 0, 1);
        for (int i = 0; i < N_BUFFERS; i++) sends(&a, i % 2 ? 40 : FRAME_MAX);
        for (int i = 0; i < N_BUFFERS; i++) receive(&b, i % 2 ? 40 : FRAME_MAX);
        expect_counts(&head, 0, 0, 1);
        close_member(&b); // the other end is told
        assert_false(told(&a, KIN_SIDE_NEXT, 2, NULL));
        close_member(&a);
        close_member(&head);
    }
}

static void a_relayed_hop_ends_with_its_epoch(void **state) {
    (void)state;
    member head, a, b;
    char reason[256];
    open_member(&head, 100, true);
    open_member(&a, 1, false);
    open_member(&b, 2, false);
    enter(&head, 1, 2);
    enter(&a, 2, 100);
    enter(&b, 100, 1);
    connects(&a, KIN_SIDE_NEXT, &head, true);
    connects(&b, KIN_SIDE_PREVIOUS, &head, true);
    assert_true(told(&a, KIN_SIDE_NEXT, 1, NULL) && told(&b, KIN_SIDE_PREVIOUS, 1, NULL));
    head.place.epoch = EPOCH + 1;
    kin_endpoint_call(head.endpoint, enter_now, &head);
    assert_false(told(&a, KIN_SIDE_NEXT, 2, reason));
    assert_string_equal(reason, "the other side closed the link: the epoch is over");
    assert_false(told(&b, KIN_SIDE_PREVIOUS, 2, NULL));
    close_member(&a);
    close_member(&b);
    close_member(&head);
}

static void wait_for_leave(void *arg) {
    pthread_mutex_lock(arg);
    pthread_mutex_unlock(arg);
}

// Without a bound, frames that a slow or hostile member does not accept would fill the head's memory.
static void a_relayed_hop_has_a_bound(void **state) {
    (void)state;
    enum { FRAME = 64 << 10 };
    member head, a, b;
    char reason[256];
    open_member(&head, 100, true);
    open_member(&a, 1, false);
    open_member(&b, 2, false);
    enter(&head, 1, 2);
    head.place.frame_max = FRAME;
    kin_endpoint_call(head.endpoint, enter_now, &head);
    enter(&a, 2, 100);
    enter(&b, 100, 1);
    connects(&a, KIN_SIDE_NEXT, &head, true);
    connects(&b, KIN_SIDE_PREVIOUS, &head, true);
    assert_true(told(&a, KIN_SIDE_NEXT, 1, NULL) && told(&b, KIN_SIDE_PREVIOUS, 1, NULL));
    pthread_mutex_t leave = PTHREAD_MUTEX_INITIALIZER; // held while b's loop must not read
    pthread_mutex_lock(&leave);
    kin_endpoint_call(b.endpoint, wait_for_leave, &leave);
    for (bool is_over = false; !is_over;) {
        kin_message_buffer *p = kin_message_pool_get(a.pool, FRAME);
        if (p) {
            p->frame = (kin_frame){KIN_FRAME_STEP, EPOCH, FRAME};
            memset(p->payload, 0, FRAME);
            kin_neighbours_send(a.neighbours, p);
        } else {
            usleep(100);
        }
        pthread_mutex_lock(&a.mutex);
        is_over = a.n_told[KIN_SIDE_NEXT] == 2;
        pthread_mutex_unlock(&a.mutex);
    }
    pthread_mutex_unlock(&leave);
    assert_false(told(&a, KIN_SIDE_NEXT, 2, reason));
    assert_string_equal(reason, "the other side closed the link: the next member does not read its messages");
    close_member(&a);
    close_member(&b);
    close_member(&head);
}

static void a_device_passes_nothing_on(void **state) {
    (void)state;
    member a, b;
    char reason[256];
    open_member(&a, 1, false);
    open_member(&b, 2, false);
    enter(&a, 3, 9);
    enter(&b, 9, 1);
    connects(&a, KIN_SIDE_NEXT, &b, true);
    assert_false(told(&a, KIN_SIDE_NEXT, 1, reason));
    assert_string_equal(reason, "identity: this is not the device that was called");
    close_member(&a);
    close_member(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_pass_whoever_opened_the_link),
        cmocka_unit_test(the_sender_keeps_the_link_that_it_has),
        cmocka_unit_test(a_sender_that_has_a_link_opens_no_other),
        cmocka_unit_test(a_ring_link_of_a_stranger_is_refused),
        cmocka_unit_test(another_device_at_the_next_ones_address_is_not_sent_to),
        cmocka_unit_test(an_address_that_leads_back_to_oneself_is_no_neighbour),
        cmocka_unit_test(an_answer_with_another_id_is_not_believed),
        cmocka_unit_test(the_head_passes_on_what_two_cannot_send),
        cmocka_unit_test(a_relayed_hop_ends_with_its_epoch),
        cmocka_unit_test(a_relayed_hop_has_a_bound),
        cmocka_unit_test(a_device_passes_nothing_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
