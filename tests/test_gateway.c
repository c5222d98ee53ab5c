// A device that relays links of others to the head (net/gateway.h): three endpoints of one process, on loopback.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/dial.h"
#include "net/gateway.h"
#include "net/tls_socket.h"
#include "pure/proto/refusal.h"
#include "tests/place.h"

enum { FRAME_MAX = 1 << 20, TIMEOUT_MS = 20000, N_CALLS = KIN_GATEWAY_LINKS + 1 };

static const kin_key key = {{7, 7, 7}};

static kin_endpoint *head, *between, *far;
static kin_gateway *gateway;
static uint16_t port_head; // the head's port that the gateway knows; 0: no head

// ---- the head, which echoes every frame

static void echo(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    (void)user;
    kin_link_send(link, frame->type, frame->epoch, 1, &(kin_frame_part){payload, frame->length});
}

static void serve(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    static const kin_link_callbacks callbacks = {.frame = echo};
    (void)user, (void)epoch, (void)open;
    kin_link_set_frame_max(link, FRAME_MAX);
    kin_link_accept(link, &callbacks, NULL);
    kin_endpoint_send_accept(head, link);
}

// ---- the device that relays

static void pass_on(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    (void)user;
    if (!kin_gateway_accept(gateway, link, epoch, open)) kin_endpoint_refuse(link, "no head: there is none");
}

static void tick_gateway(void *user) {
    (void)user;
    if (gateway) kin_gateway_tick(gateway);
}

static atomic_int n_set;

static void set_head(void *arg) {
    (void)arg;
    kin_gateway_set_head(gateway, port_head ? "127.0.0.1" : NULL, port_head);
    atomic_fetch_add(&n_set, 1);
}

static void set_head_port(uint16_t port) {
    int before = atomic_load(&n_set);
    port_head = port;
    kin_endpoint_call(between, set_head, NULL);
    while (atomic_load(&n_set) == before) usleep(1000);
}

static void begin_gateway(void *arg) {
    kin_err err;
    assert_int_equal(kin_gateway_open(&gateway, between, &err), 0);
    set_head(arg);
}

static void end_gateway(void *arg) {
    (void)arg;
    kin_gateway_close(gateway);
    gateway = NULL;
}

// ---- the device that cannot reach the head

typedef struct call {
    kin_link *link;
    atomic_int n_accepted, n_refused, n_ended;
    bool is_by_gateway;
    uint8_t *sent;
    size_t n_sent;
    atomic_bool has_echo, says_garbage, is_closed;
    char reason[256];
} call;

static call calls[N_CALLS];

static void on_echo(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    call *c = user;
    (void)link;
    atomic_store(&c->has_echo, frame->length == c->n_sent && memcmp(payload, c->sent, c->n_sent) == 0);
}

static void on_end(void *user, kin_link *link, const char *reason) {
    call *c = user;
    (void)link;
    c->link = NULL;
    snprintf(c->reason, sizeof c->reason, "%s", reason);
    atomic_fetch_add(&c->n_ended, 1);
}

static void accepted(void *user, kin_link *link, const kin_proto_accept *accept) {
    static const kin_link_callbacks callbacks = {.frame = on_echo, .closed = on_end};
    call *c = user;
    c->link = link;
    c->is_by_gateway = accept->features & KIN_PROTO_BY_GATEWAY;
    kin_link_set_frame_max(link, FRAME_MAX);
    kin_link_accept(link, &callbacks, c);
    atomic_fetch_add(&c->n_accepted, 1);
}

static void failed(void *user, const kin_dial_failure *failure) {
    call *c = user;
    snprintf(c->reason, sizeof c->reason, "%s", failure->reason);
    atomic_fetch_add(&c->n_refused, failure->end == KIN_DIAL_REFUSED ? 1 : 100);
}

static void dial_now(void *arg) {
    static const kin_dial_callbacks callbacks = {accepted, failed};
    kin_dial *dial;
    kin_dial_options o = kin_dial_options_default(kin_endpoint_tls(far));
    kin_err err;
    o.to = kin_dial_address("127.0.0.1", kin_endpoint_port(between));
    o.open = kin_endpoint_self(far);
    o.open.role = KIN_PROTO_CONTROL;
    assert_int_equal(kin_dial_start(&dial, kin_endpoint_loop(far), &o, &callbacks, arg, &err), 0);
}

static void send_now(void *arg) {
    call *c = arg;
    kin_link_send(c->link, KIN_FRAME_STEP, 3, 1, &(kin_frame_part){c->sent, c->n_sent});
}

static void close_now(void *arg) {
    call *c = arg;
    kin_link_close(c->link, "over");
    c->link = NULL;
    atomic_store(&c->is_closed, true);
}

// Sends bytes that are not frames, encrypted with the cluster's key.
static void send_garbage_now(void *arg) {
    call *c = arg;
    kin_tls_socket s;
    kin_tls *tls;
    kin_err err;
    int fd;
    bool moved;
    uint8_t garbage[4096];
    memset(garbage, 0xa5, sizeof garbage);
    assert_int_equal(kin_link_release(c->link, &fd, &tls, &err), 0);
    c->link = NULL;
    assert_int_equal(kin_tls_socket_open(&s, fd, tls, &err), 0);
    assert_int_equal(kin_tls_write(s.tls, garbage, sizeof garbage, &err), 0);
    assert_int_equal(kin_tls_socket_send(&s, &moved, &err), 0);
    usleep(200000);
    kin_tls_socket_close(&s);
    atomic_store(&c->says_garbage, true);
}

static bool comes(atomic_int *n) {
    for (int ms = 0; ms < TIMEOUT_MS && atomic_load(n) == 0; ms++) usleep(1000);
    return atomic_load(n) == 1;
}

static void becomes(atomic_bool *is) {
    for (int ms = 0; ms < TIMEOUT_MS && !atomic_load(is); ms++) usleep(1000);
    assert_true(atomic_load(is));
}
#define becomes(...) FROM_TEST(becomes(__VA_ARGS__))

static call *dial(int i) {
    call *c = &calls[i];
    free(c->sent);
    *c = (call){0};
    kin_endpoint_call(far, dial_now, c);
    return c;
}

static void hears_itself(call *c, size_t n) {
    free(c->sent);
    c->sent = malloc(n);
    c->n_sent = n;
    for (size_t i = 0; i < n; i++) c->sent[i] = (uint8_t)(i * 7 + i / 251);
    atomic_store(&c->has_echo, false);
    kin_endpoint_call(far, send_now, c);
    becomes(&c->has_echo);
}
#define hears_itself(...) FROM_TEST(hears_itself(__VA_ARGS__))

// ---- claims

static void nothing(void *arg) {
    (void)arg;
}

static int set_up(void **state) {
    static const kin_endpoint_callbacks of_head = {.opened = serve}, of_between = {.tick = tick_gateway, .opened = pass_on},
                                        of_far = {0};
    kin_endpoint_options o = {.name = "somebody", .version = "test", .key = key, .listen = "127.0.0.1"};
    kin_err err;
    (void)state;
    o.id.bytes[0] = 1;
    assert_int_equal(kin_endpoint_open(&head, &o, &of_head, NULL, &err), 0);
    assert_int_equal(kin_endpoint_start(head, nothing, NULL, &err), 0);
    o.id.bytes[0] = 2;
    assert_int_equal(kin_endpoint_open(&between, &o, &of_between, NULL, &err), 0);
    port_head = kin_endpoint_port(head);
    assert_int_equal(kin_endpoint_start(between, begin_gateway, NULL, &err), 0);
    o.id.bytes[0] = 3;
    assert_int_equal(kin_endpoint_open(&far, &o, &of_far, NULL, &err), 0);
    assert_int_equal(kin_endpoint_start(far, nothing, NULL, &err), 0);
    return 0;
}

static void end_far(void *arg) {
    (void)arg;
    for (int i = 0; i < N_CALLS; i++) kin_link_close(calls[i].link, NULL);
}

static int tear_down(void **state) {
    (void)state;
    kin_endpoint_close(far, end_far, NULL);
    kin_endpoint_close(between, end_gateway, NULL);
    kin_endpoint_close(head, nothing, NULL);
    for (int i = 0; i < N_CALLS; i++) {
        free(calls[i].sent);
        calls[i] = (call){0};
    }
    return 0;
}

static void frames_pass_in_both_directions(void **state) {
    (void)state;
    call *c = dial(0);
    assert_true(comes(&c->n_accepted));
    assert_true(c->is_by_gateway);
    hears_itself(c, 100);
    hears_itself(c, 700000);
}

static void garbage_ends_its_own_link_only(void **state) {
    (void)state;
    call *good = dial(0), *bad = dial(1);
    assert_true(comes(&good->n_accepted) && comes(&bad->n_accepted));
    kin_endpoint_call(far, send_garbage_now, bad);
    becomes(&bad->says_garbage);
    hears_itself(good, 5000);
}

static void one_link_more_than_may_pass_hears_so_until_another_ends(void **state) {
    (void)state;
    for (int i = 0; i < KIN_GATEWAY_LINKS; i++)
        assert_true(comes(&dial(i)->n_accepted)); // one by one, because the number of concurrent handshakes is limited too
    call *c = dial(KIN_GATEWAY_LINKS);
    assert_true(comes(&c->n_refused));
    assert_int_equal(kin_refusal_of(c->reason), KIN_REFUSAL_BUSY);
    hears_itself(&calls[KIN_GATEWAY_LINKS - 1], 5000);
    kin_endpoint_call(far, close_now, &calls[0]);
    becomes(&calls[0].is_closed);
    bool passes = false;
    for (int n = 0; n < 100 && !passes; n++) { // until the gateway has noticed the end of that link
        usleep(100000);
        c = dial(KIN_GATEWAY_LINKS);
        while (atomic_load(&c->n_accepted) + atomic_load(&c->n_refused) == 0) usleep(1000);
        passes = atomic_load(&c->n_accepted) == 1;
    }
    assert_true(passes);
}

static void links_end_with_the_gateways_head_and_pass_when_it_is_back(void **state) {
    (void)state;
    call *c = dial(0);
    assert_true(comes(&c->n_accepted));
    set_head_port(0);
    assert_true(comes(&c->n_ended));
    assert_null(strstr(c->reason, "no answer")); // it was closed and did not time out
    c = dial(1);
    assert_true(comes(&c->n_refused));
    assert_int_equal(kin_refusal_of(c->reason), KIN_REFUSAL_NO_HEAD);
    set_head_port(kin_endpoint_port(head));
    c = dial(2);
    assert_true(comes(&c->n_accepted));
    hears_itself(c, 100);
}

static void a_device_that_asks_for_a_silent_head_is_told(void **state) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int silent = socket(AF_INET, SOCK_STREAM, 0);
    (void)state;
    assert_true(bind(silent, (struct sockaddr *)&at, n) == 0 && listen(silent, 4) == 0);
    assert_int_equal(getsockname(silent, (struct sockaddr *)&at, &n), 0);
    set_head_port(ntohs(at.sin_port));
    call *c = dial(0);
    assert_true(comes(&c->n_refused));
    assert_int_equal(kin_refusal_of(c->reason), KIN_REFUSAL_NO_HEAD);
    close(silent);
}

int main(void) {
#define STORY(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        STORY(frames_pass_in_both_directions),
        STORY(garbage_ends_its_own_link_only),
        STORY(one_link_more_than_may_pass_hears_so_until_another_ends),
        STORY(links_end_with_the_gateways_head_and_pass_when_it_is_back),
        STORY(a_device_that_asks_for_a_silent_head_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
