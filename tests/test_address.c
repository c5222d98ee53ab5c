// Addresses and heartbeats: the small parts of a link.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <netdb.h>
#include <string.h>

#include "net/address.h"
#include "net/heartbeat.h"
#include "tests/place.h"

static void expect_address(const char *numbers, const char *host, const char *text) {
    kin_address a;
    char h[KIN_ADDRESS_HOST], t[KIN_ADDRESS_TEXT];
    assert_true(kin_address_parse(&a, numbers, 4100));
    assert_int_equal(kin_address_port(&a), 4100);
    kin_address_host(&a, h);
    kin_address_format(&a, t);
    assert_string_equal(h, host);
    assert_string_equal(t, text);
}
#define expect_address(...) FROM_TEST(expect_address(__VA_ARGS__))

static void addresses_are_read_and_written(void **state) {
    (void)state;
    expect_address("192.168.1.7", "192.168.1.7", "192.168.1.7:4100");
    expect_address("2001:DB8::7", "2001:db8::7", "[2001:db8::7]:4100");
    expect_address("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.1:4100");
    expect_address("::", "::", "[::]:4100");
}

static void names_are_no_addresses(void **state) {
    (void)state;
    kin_address a;
    assert_false(kin_address_parse(&a, "localhost", 1));
    assert_false(kin_address_parse(&a, "", 1));
    assert_false(kin_address_parse(&a, "300.1.1.1", 1));
    assert_false(kin_address_parse(&a, "192.168.1.7:80", 1));
}

static bool same_network(const char *x, const char *y) {
    kin_address a, b;
    uint8_t m[KIN_ADDRESS_NETWORK], n[KIN_ADDRESS_NETWORK];
    assert_true(kin_address_parse(&a, x, 1));
    assert_true(kin_address_parse(&b, y, 2));
    kin_address_network(&a, m);
    kin_address_network(&b, n);
    return memcmp(m, n, sizeof m) == 0;
}
#define same_network(...) FROM_TEST(same_network(__VA_ARGS__))

static void a_peer_is_an_address_or_a_64(void **state) {
    (void)state;
    assert_true(same_network("10.0.0.1", "::ffff:10.0.0.1"));
    assert_false(same_network("10.0.0.1", "10.0.0.2"));
    assert_true(same_network("2001:db8:1:2::1", "2001:db8:1:2:3:4:5:6"));
    assert_false(same_network("2001:db8:1:2::1", "2001:db8:1:3::1"));
    assert_false(same_network("0.0.0.0", "::"));
}

static void own_addresses_are_for_others_too(void **state) {
    (void)state;
    char hosts[8][KIN_ADDRESS_HOST];
    int n = kin_address_own(hosts, 8);
    assert_true(n >= 0 && n <= 8);
    for (int i = 0; i < n; i++) {
        kin_address a;
        assert_true(kin_address_parse(&a, hosts[i], 1));
        assert_true(strncmp(hosts[i], "127.", 4) != 0 && strcmp(hosts[i], "::1") != 0 && strncmp(hosts[i], "fe80:", 5) != 0 &&
                    strncmp(hosts[i], "169.254.", 8) != 0);
    }
    assert_int_equal(kin_address_own(hosts, 0), 0);
}

static void looked_up_addresses_get_the_port_and_are_capped(void **state) {
    (void)state;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct addrinfo last = {.ai_family = AF_INET, .ai_addr = (struct sockaddr *)&v4, .ai_addrlen = sizeof v4};
    struct addrinfo odd = {.ai_family = AF_UNIX, .ai_next = &last};
    struct addrinfo first = {.ai_family = AF_INET6, .ai_addr = (struct sockaddr *)&v6, .ai_addrlen = sizeof v6, .ai_next = &odd};
    kin_address a[3];
    assert_int_equal(kin_address_copy_list(a, 3, &first, 77), 2);
    assert_int_equal(kin_address_port(&a[0]), 77);
    assert_int_equal(kin_address_port(&a[1]), 77);
    assert_int_equal(kin_address_copy_list(a, 1, &first, 77), 1);
    assert_int_equal(kin_address_copy_list(a, 3, NULL, 77), 0);
}

static void the_round_trip_is_the_median_of_the_last(void **state) {
    (void)state;
    kin_heartbeat p = {0};
    assert_int_equal(kin_heartbeat_rtt(&p), 0);
    kin_heartbeat_add(&p, 100, 0, 150);
    assert_int_equal(kin_heartbeat_rtt(&p), 50);
    kin_heartbeat_add(&p, 100, 0, 110);
    kin_heartbeat_add(&p, 100, 0, 9000);
    assert_int_equal(kin_heartbeat_rtt(&p), 50);
    for (int i = 0; i < KIN_HEARTBEAT_KEPT; i++) kin_heartbeat_add(&p, 100, 0, 107);
    assert_int_equal(kin_heartbeat_rtt(&p), 7);
}

static void the_clock_is_read_where_the_round_trip_was_shortest(void **state) {
    (void)state;
    kin_heartbeat p = {0};
    assert_int_equal(kin_heartbeat_clock_ahead(&p), 0);
    kin_heartbeat_add(&p, 1000, 5900, 2000); // 4400 +- 500
    kin_heartbeat_add(&p, 2000, 6005, 2010); // 4000 +- 5
    kin_heartbeat_add(&p, 3000, 6500, 4000);
    assert_int_equal(kin_heartbeat_clock_ahead(&p), 4000);
    kin_heartbeat q = {0};
    kin_heartbeat_add(&q, 2000, 1005, 2010);
    assert_int_equal(kin_heartbeat_clock_ahead(&q), -1000);
}

static void only_the_last_beats_count(void **state) {
    (void)state;
    kin_heartbeat p = {0};
    kin_heartbeat_add(&p, 2000, 6005, 2010); // the shortest round trip
    for (int i = 1; i < KIN_HEARTBEAT_KEPT; i++) kin_heartbeat_add(&p, 2000, 7010, 2020);
    assert_int_equal(kin_heartbeat_clock_ahead(&p), 4000);
    kin_heartbeat_add(&p, 2000, 7010, 2020);
    assert_int_equal(kin_heartbeat_clock_ahead(&p), 5000);
    assert_int_equal(kin_heartbeat_rtt(&p), 20);
}

static void times_that_cannot_be_are_ignored(void **state) {
    (void)state;
    kin_heartbeat p = {0};
    kin_heartbeat_add(&p, 101, 0, 100);
    kin_heartbeat_add(&p, 0, 0, UINT64_C(60000000001));
    assert_int_equal(kin_heartbeat_rtt(&p), 0);
    kin_heartbeat_add(&p, 0, 0, UINT64_C(60000000000)); // a minute can be
    assert_int_equal(kin_heartbeat_rtt(&p), UINT64_C(60000000000));
}

static void loopback_is_known_in_all_its_forms(void **state) {
    (void)state;
    static const char *const yes[] = {"127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"};
    static const char *const no[] = {"192.168.1.7", "128.0.0.1", "::2", "fe80::1", "::ffff:10.0.0.1", "localhost", ""};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) assert_true(kin_address_is_loopback(yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) assert_false(kin_address_is_loopback(no[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loopback_is_known_in_all_its_forms),
        cmocka_unit_test(addresses_are_read_and_written),
        cmocka_unit_test(names_are_no_addresses),
        cmocka_unit_test(a_peer_is_an_address_or_a_64),
        cmocka_unit_test(own_addresses_are_for_others_too),
        cmocka_unit_test(looked_up_addresses_get_the_port_and_are_capped),
        cmocka_unit_test(the_round_trip_is_the_median_of_the_last),
        cmocka_unit_test(the_clock_is_read_where_the_round_trip_was_shortest),
        cmocka_unit_test(only_the_last_beats_count),
        cmocka_unit_test(times_that_cannot_be_are_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
