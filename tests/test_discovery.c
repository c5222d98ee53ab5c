// Discovery on the loopback interface (net/discovery.h): real datagrams, head and device in one loop.
// Exit 77 where the loopback interface passes neither multicast nor broadcast.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/discovery.h"
#include "tests/place.h"

enum { TIMEOUT_MS = 20000, QUIET_MS = 150 };

static uint16_t test_port;

typedef struct seen {
    int n;
    kin_beacon head;
    char address[64];
} seen;

static void on_found(void *user, const kin_beacon *head, const char *address) {
    seen *s = user;
    s->n++;
    s->head = *head;
    strncpy(s->address, address, sizeof s->address - 1);
}

static kin_discovery_options options_of(uint8_t key) {
    kin_discovery_options o = {.port = test_port, .only = "127.0.0.1"};
    memset(o.key, key, sizeof o.key);
    return o;
}

static const kin_discovery_self tower = {.id = {{1, 2, 3}}, .name = "tower", .port = 7577, .features = 5};

// ---- an event loop per test

static uv_loop_t loop;

static int open_loop(void **state) {
    (void)state;
    return uv_loop_init(&loop);
}

static int close_loop(void **state) {
    (void)state;
    for (int i = 0; i < 10 && uv_loop_alive(&loop); i++) uv_run(&loop, UV_RUN_NOWAIT); // a leaked handle keeps the loop alive
    return uv_loop_close(&loop);
}

static void time_is_up(uv_timer_t *timer) {
    *(bool *)timer->data = true;
}

// Runs the loop until *n reaches `want` or the time is up.
static void run_until(const int *n, int want, uint64_t ms) {
    uv_timer_t timer;
    bool is_up = false;
    uv_timer_init(&loop, &timer);
    timer.data = &is_up;
    uv_timer_start(&timer, time_is_up, ms, 0);
    while (!is_up && (!n || *n < want)) uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}

// Runs the loop until n datagrams were heard, and then until it has been quiet for a while.
static void run_until_heard(const kin_discovery *d, uint64_t n) {
    for (int ms = 0; ms < TIMEOUT_MS && kin_discovery_stats_now(d).heard < n; ms += 10) run_until(NULL, 0, 10);
    run_until(NULL, 0, QUIET_MS);
}

static kin_discovery *open_head(uint8_t key) {
    kin_discovery *head;
    kin_err err = {""};
    kin_discovery_options o = options_of(key);
    if (kin_discovery_answer(&head, &loop, &o, &tower, &err) != 0) fail_msg("%s", err.text);
    return head;
}
#define open_head(...) FROM_TEST(open_head(__VA_ARGS__))

static kin_discovery *open_device(uint8_t key, seen *s) {
    kin_discovery *device;
    kin_err err = {""};
    kin_discovery_options o = options_of(key);
    if (kin_discovery_search(&device, &loop, &o, on_found, s, &err) != 0) fail_msg("%s", err.text);
    return device;
}
#define open_device(...) FROM_TEST(open_device(__VA_ARGS__))

static void ask(kin_discovery *device) {
    kin_err err = {""};
    if (kin_discovery_ask(device, &err) != 0) fail_msg("%s", err.text);
}
#define ask(...) FROM_TEST(ask(__VA_ARGS__))

// ---- datagrams made by hand

static int sign_by_hand(void *user, const uint8_t *bytes, size_t n, uint8_t tag[KIN_BEACON_TAG]) {
    uint8_t cluster[KIN_DISCOVERY_KEY], key[EVP_MAX_MD_SIZE], full[EVP_MAX_MD_SIZE];
    unsigned len;
    memset(cluster, *(uint8_t *)user, sizeof cluster);
    assert_non_null(HMAC(EVP_sha256(), cluster, sizeof cluster, (const uint8_t *)"kin discovery 1", 15, key, &len));
    assert_non_null(HMAC(EVP_sha256(), key, 32, bytes, n, full, &len));
    memcpy(tag, full, KIN_BEACON_TAG);
    return 0;
}

static int open_socket(uint16_t port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval options = {.tv_sec = TIMEOUT_MS / 1000};
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &options, sizeof options);
    at.sin_addr.s_addr = port ? htonl(INADDR_ANY) : htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}
#define open_socket(...) FROM_TEST(open_socket(__VA_ARGS__))

static void send_bytes(int fd, const struct sockaddr_in *to, const uint8_t *bytes, size_t n) {
    assert_int_equal(sendto(fd, bytes, n, 0, (const struct sockaddr *)to, sizeof *to), (ssize_t)n);
}
#define send_bytes(...) FROM_TEST(send_bytes(__VA_ARGS__))

static void send_beacon(int fd, const struct sockaddr_in *to, const kin_beacon *beacon, uint8_t key) {
    uint8_t bytes[KIN_BEACON_BYTES];
    assert_int_equal(kin_beacon_encode(bytes, beacon, sign_by_hand, &key, NULL), 0);
    send_bytes(fd, to, bytes, sizeof bytes);
}
#define send_beacon(...) FROM_TEST(send_beacon(__VA_ARGS__))

static struct sockaddr_in head_address(void) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(test_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

// ---- claims

static void a_device_finds_its_head(void **state) {
    (void)state;
    seen s = {0};
    kin_discovery *head = open_head(7), *device = open_device(7, &s);
    ask(device);
    run_until(&s.n, 1, TIMEOUT_MS);
    assert_true(s.n >= 1);
    assert_string_equal(s.head.name, "tower");
    assert_int_equal(s.head.port, 7577);
    assert_int_equal(s.head.features, 5);
    assert_memory_equal(&s.head.id, &tower.id, sizeof tower.id);
    assert_string_equal(s.address, "127.0.0.1");
    kin_discovery_close(head);
    kin_discovery_close(device);
}

static void two_heads_on_one_machine_are_both_found(void **state) {
    (void)state;
    seen s = {0};
    kin_discovery *one = open_head(7), *two = open_head(7), *device = open_device(7, &s);
    ask(device);
    run_until_heard(one, 1);
    run_until_heard(two, 1);
    assert_true(kin_discovery_stats_now(one).answered > 0);
    assert_true(kin_discovery_stats_now(two).answered > 0);
    kin_discovery_close(one);
    kin_discovery_close(two);
    kin_discovery_close(device);
}

static void another_key_gets_no_answer(void **state) {
    (void)state;
    seen s = {0};
    kin_discovery *head = open_head(7), *device = open_device(8, &s);
    ask(device);
    run_until_heard(head, 1);
    assert_int_equal(s.n, 0);
    kin_discovery_stats stats = kin_discovery_stats_now(head);
    assert_true(stats.heard > 0);
    assert_int_equal(stats.trusted, 0);
    assert_int_equal(stats.answered, 0);
    kin_discovery_close(head);
    kin_discovery_close(device);
}

static void only_an_answer_to_ones_own_question_is_believed(void **state) {
    (void)state;
    seen s = {0};
    kin_discovery *device = open_device(7, &s);
    int fake = open_socket(test_port);
    ask(device);

    uint8_t bytes[256], key = 7;
    struct sockaddr_in asker;
    socklen_t n_asker = sizeof asker;
    assert_int_equal(recvfrom(fake, bytes, sizeof bytes, 0, (struct sockaddr *)&asker, &n_asker), KIN_BEACON_BYTES);
    kin_beacon question;
    assert_int_equal(kin_beacon_decode(bytes, KIN_BEACON_BYTES, &question, sign_by_hand, &key, NULL), 0);
    kin_beacon reply = {.kind = KIN_BEACON_ANNOUNCE, .port = 1, .name = "fake"};

    send_beacon(fake, &asker, &reply, 7); // a replay of an old answer: another nonce
    memcpy(reply.nonce, question.nonce, sizeof reply.nonce);
    send_beacon(fake, &asker, &reply, 8);              // without the key
    send_bytes(fake, &asker, bytes, KIN_BEACON_BYTES); // the question itself, echoed
    send_bytes(fake, &asker, bytes, 3);
    send_bytes(fake, &asker, bytes, sizeof bytes);
    run_until(&s.n, 1, QUIET_MS);
    assert_int_equal(s.n, 0);

    send_beacon(fake, &asker, &reply, 7);
    run_until(&s.n, 1, TIMEOUT_MS);
    assert_int_equal(s.n, 1);
    for (int i = 0; i < 4; i++) ask(device); // the answer is too late now
    send_beacon(fake, &asker, &reply, 7);
    run_until(NULL, 0, QUIET_MS);
    assert_int_equal(s.n, 1);
    close(fake);
    kin_discovery_close(device);
}

// Returns the most answers possible since `begun` at a limit of per_second: a burst of two seconds plus the elapsed time.
static double most_since(kin_time begun, double per_second) {
    return per_second * (2 + kin_clock_ms(begun, kin_clock_now()) / 1e3) + 1;
}

static void a_flood_of_questions_gets_few_answers(void **state) {
    (void)state;
    kin_time begun = kin_clock_now();
    kin_discovery *head = open_head(7);
    int fd = open_socket(0);
    struct sockaddr_in to = head_address();
    for (int i = 0; i < 150; i++) send_beacon(fd, &to, &(kin_beacon){.kind = KIN_BEACON_SEARCH, .nonce = {(uint8_t)i}}, 7);
    run_until_heard(head, 100);
    kin_discovery_stats stats = kin_discovery_stats_now(head);
    assert_true(stats.trusted >= 100);
    assert_true(stats.answered >= KIN_DISCOVERY_ANSWERS);
    assert_true((double)stats.answered <= most_since(begun, KIN_DISCOVERY_ANSWERS));
    close(fd);
    kin_discovery_close(head);
}

static void garbage_costs_at_most_so_many_checks(void **state) {
    (void)state;
    kin_time begun = kin_clock_now();
    kin_discovery *head = open_head(7);
    int fd = open_socket(0);
    struct sockaddr_in to = head_address();
    uint8_t bytes[KIN_BEACON_BYTES];
    uint8_t key = 7;
    assert_int_equal(kin_beacon_encode(bytes, &(kin_beacon){.kind = KIN_BEACON_SEARCH}, sign_by_hand, &key, NULL), 0);
    for (int i = 0; i < 3000; i++) {
        send_bytes(fd, &to, bytes, sizeof bytes);
        if (i % 20 == 0) uv_run(&loop, UV_RUN_NOWAIT); // so that no datagram is dropped
    }
    run_until_heard(head, 2001);
    kin_discovery_stats stats = kin_discovery_stats_now(head);
    assert_true(stats.heard > 2000);
    assert_true((double)stats.trusted <= most_since(begun, KIN_DISCOVERY_CHECKS));
    close(fd);
    kin_discovery_close(head);
}

static int bind_port(int family) {
    int fd = socket(family, SOCK_DGRAM, 0), on = 1;
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(test_port)};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(test_port)};
    bool is_v6 = family == AF_INET6;
    if (fd < 0) return -1; // this address family does not exist here, so there is nothing to answer on
    if (is_v6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    assert_int_equal(is_v6 ? bind(fd, (struct sockaddr *)&v6, sizeof v6) : bind(fd, (struct sockaddr *)&v4, sizeof v4), 0);
    return fd;
}
#define bind_port(...) FROM_TEST(bind_port(__VA_ARGS__))

static void a_taken_port_is_said(void **state) {
    (void)state;
    kin_discovery *d;
    kin_err err = {""};
    kin_discovery_options o = options_of(7);
    int v4 = bind_port(AF_INET), v6 = bind_port(AF_INET6);
    assert_int_equal(kin_discovery_answer(&d, &loop, &o, &tower, &err), KIN_FAIL);
    assert_null(d);
    assert_non_null(strstr(err.text, "discovery: cannot open UDP port"));
    close(v4);
    close(v6);
}

static void a_wrong_address_is_said(void **state) {
    (void)state;
    kin_discovery *d;
    kin_err err = {""};
    kin_discovery_options o = options_of(7);
    o.only = "an address that is much longer than any numeric address can be";
    assert_int_equal(kin_discovery_answer(&d, &loop, &o, &tower, &err), KIN_FAIL);
    assert_null(d);
    assert_non_null(strstr(err.text, "not a numeric address"));

    seen s = {0};
    o.only = "203.0.113.77"; // no address of this machine
    assert_int_equal(kin_discovery_search(&d, &loop, &o, on_found, &s, &err), 0);
    assert_int_equal(kin_discovery_ask(d, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "cannot send the query on any network"));
    kin_discovery_close(d);
    kin_discovery_close(NULL);
}

// True if a broadcast on the loopback interface comes back.
static bool loopback_passes(void) {
    int to = open_socket(test_port), from = open_socket(0), on = 1;
    struct sockaddr_in all = {
        .sin_family = AF_INET, .sin_port = htons(test_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK | 0x00ffffff)};
    struct timeval soon = {.tv_usec = 300000};
    char byte = 0;
    setsockopt(from, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    bool passes = sendto(from, &byte, 1, 0, (struct sockaddr *)&all, sizeof all) == 1 && recv(to, &byte, 1, 0) == 1;
    close(to);
    close(from);
    return passes;
}

int main(void) {
    test_port = (uint16_t)(20000 + getpid() % 12000); // not the default port: a kin may run here
    if (!loopback_passes()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_device_finds_its_head, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(two_heads_on_one_machine_are_both_found, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(another_key_gets_no_answer, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(only_an_answer_to_ones_own_question_is_believed, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_flood_of_questions_gets_few_answers, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(garbage_costs_at_most_so_many_checks, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_taken_port_is_said, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_wrong_address_is_said, open_loop, close_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
