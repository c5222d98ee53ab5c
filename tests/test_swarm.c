// Fetching from a head and from other devices: rules one by one, then whole swarms in a seeded simulator.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "pure/proto/swarm.h"
#include "tests/place.h"

#define MS ((kin_time)1000000)
#define SECOND (1000 * MS)

enum { CHUNK = 1 << 20 };

// ---- rules one by one

typedef struct id {
    uint8_t bytes[KIN_SWARM_ID_BYTES];
} id;

static id id_of(int i) {
    return (id){{(uint8_t)(i + 1)}};
}

static kin_swarm *new_swarm(uint32_t n_chunks, uint64_t seed) {
    kin_swarm_options o = kin_swarm_options_defaults(n_chunks, CHUNK, seed);
    kin_swarm *s = kin_swarm_new(&o, 0);
    assert_non_null(s);
    return s;
}
#define new_swarm(...) FROM_TEST(new_swarm(__VA_ARGS__))

static void want_all(kin_swarm *s, uint32_t n, bool in_order) {
    uint32_t *chunks = calloc(n, sizeof *chunks);
    for (uint32_t i = 0; i < n; i++) chunks[i] = i;
    kin_swarm_want(s, chunks, n, in_order, 0);
    free(chunks);
}

static int add_head(kin_swarm *s) {
    int i = kin_swarm_add_source(s, id_of(99).bytes, true);
    assert_true(i >= 0);
    return i;
}
#define add_head(...) FROM_TEST(add_head(__VA_ARGS__))

static int add_device(kin_swarm *s, int number, uint64_t bits) {
    int i = kin_swarm_add_source(s, id_of(number).bytes, false);
    assert_true(i >= 0);
    kin_swarm_offers(s, i, (const uint8_t *)&bits, sizeof bits); // up to 64 chunks; little-endian machines only
    return i;
}
#define add_device(...) FROM_TEST(add_device(__VA_ARGS__))

static void expect_ask(kin_swarm *s, kin_time now, int source, int64_t chunk) {
    kin_swarm_action a = kin_swarm_next(s, now);
    assert_int_equal(a.verb, KIN_SWARM_ASK);
    assert_int_equal(a.source, source);
    if (chunk >= 0) assert_int_equal(a.chunk, chunk);
    assert_true(kin_swarm_is_asked(s, a.source, a.chunk));
}
#define expect_ask(...) FROM_TEST(expect_ask(__VA_ARGS__))

static void expect_wait(kin_swarm *s, kin_time now) {
    assert_int_equal(kin_swarm_next(s, now).verb, KIN_SWARM_WAIT);
}
#define expect_wait(...) FROM_TEST(expect_wait(__VA_ARGS__))

static void expect_give_up(kin_swarm *s, kin_time now, const char *words) {
    kin_swarm_action a = kin_swarm_next(s, now);
    assert_int_equal(a.verb, KIN_SWARM_GIVE_UP);
    if (!strstr(a.reason, words)) fail_msg("'%s' does not say '%s'", a.reason, words);
}
#define expect_give_up(...) FROM_TEST(expect_give_up(__VA_ARGS__))

// Reports bytes_s bytes per second from a source until a time, every tenth of a second.
static void hear_until(kin_swarm *s, int source, kin_time *now, kin_time until, uint32_t bytes_s) {
    for (; *now < until; *now += 100 * MS) kin_swarm_heard(s, source, bytes_s / 10, *now);
}

static int ask_all(kin_swarm *s, kin_time now, int n_of[], int n_sources) {
    int n = 0;
    memset(n_of, 0, (size_t)n_sources * sizeof *n_of);
    for (kin_swarm_action a = kin_swarm_next(s, now); a.verb == KIN_SWARM_ASK; a = kin_swarm_next(s, now), n++) n_of[a.source]++;
    return n;
}

static void on_a_slow_link_few_sources_are_asked_for_one_chunk_each(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(64, 1);
    kin_time now = 0;
    int n_of[6], n_busy = 0;
    want_all(s, 64, true);
    for (int i = 0; i < 6; i++) add_device(s, i, UINT64_MAX);
    kin_swarm_action a = kin_swarm_next(s, now);
    assert_int_equal(a.verb, KIN_SWARM_ASK);
    hear_until(s, a.source, &now, 4 * SECOND, 125000); // 1 Mbit/s
    assert_int_equal(ask_all(s, now, n_of, 6), 2);
    n_of[a.source]++;
    for (int i = 0; i < 6; i++) {
        assert_in_range(n_of[i], 0, 1);
        n_busy += n_of[i];
    }
    assert_int_equal(n_busy, 3);
    hear_until(s, a.source, &now, 12 * SECOND, 2500000); // 20 Mbit/s
    assert_int_equal(ask_all(s, now, n_of, 6), 16 - 3);
    kin_swarm_free(s);
}

// Before the link is known to be slow, six sources are asked for three chunks each.
static void on_a_link_that_turns_out_slow_requests_are_withdrawn(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(64, 1);
    kin_time now = 0;
    int n_of[6], n_asked = 0;
    want_all(s, 64, true);
    for (int i = 0; i < 6; i++) add_device(s, i, UINT64_MAX);
    assert_int_equal(ask_all(s, now, n_of, 6), 16);
    for (; now < 4 * SECOND; now += 100 * MS) kin_swarm_heard(s, (int)(now / (100 * MS) % 4), 12500, now);
    expect_wait(s, now);
    for (int i = 0; i < 6; i++) {
        int n = 0;
        for (uint32_t c = 0; c < 64; c++) n += kin_swarm_is_asked(s, i, c);
        n_asked += n > 0;
        if (i > 3) assert_int_equal(n, 0); // these have sent nothing
    }
    assert_int_equal(n_asked, 3);
    hear_until(s, 0, &now, 12 * SECOND, 2500000);
    assert_true(ask_all(s, now, n_of, 6) >= 6);
    kin_swarm_free(s);
}

// The header is wanted first, then everything else.
static void a_link_that_was_slow_is_slow_for_what_is_wanted_next(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(64, 1);
    kin_time now = 0;
    int n_of[6];
    want_all(s, 1, true);
    for (int i = 0; i < 6; i++) add_device(s, i, UINT64_MAX);
    kin_swarm_action a = kin_swarm_next(s, now);
    hear_until(s, a.source, &now, 8 * SECOND, 125000);
    kin_swarm_got(s, a.source, a.chunk, now);
    const uint32_t more[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    kin_swarm_want(s, more, 12, true, now);
    assert_int_equal(ask_all(s, now, n_of, 6), 3);
    for (int i = 0; i < 6; i++) assert_in_range(n_of[i], 0, 1);
    kin_swarm_free(s);
}

// A second source would only share the slow link, and a chunk that arrives twice is wasted.
static void on_a_slow_link_a_source_that_comes_back_is_not_asked_for_what_another_sends(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(64, 1);
    kin_time now = 0;
    want_all(s, 1, true);
    add_device(s, 0, UINT64_MAX);
    expect_ask(s, now, 0, 0);
    hear_until(s, 0, &now, 4 * SECOND, 125000);
    add_device(s, 1, UINT64_MAX);
    for (kin_time end = 4 * (kin_time)CHUNK * SECOND / 125000; now < end - SECOND; now += 100 * MS) {
        expect_wait(s, now);
        kin_swarm_heard(s, 0, 12500, now);
    }
    hear_until(s, 0, &now, now + 10 * SECOND, 125000);
    expect_ask(s, now, 1, 0);
    kin_swarm_free(s);
}

static void nothing_wanted_is_complete(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(10, 1);
    add_head(s);
    assert_true(kin_swarm_complete(s));
    expect_wait(s, 1000 * SECOND);
    kin_swarm_free(s);
    kin_swarm_free(NULL);
}

static void what_is_needed_at_once_comes_in_its_order_and_first(void **state) {
    (void)state;
    const uint32_t header[] = {7, 2}, window[] = {5, 2, 9, 4};
    const uint32_t order[] = {7, 2, 5, 9, 4};
    kin_swarm *s = new_swarm(10, 1);
    int head = add_head(s);
    kin_swarm_want(s, header, 2, true, 0);
    kin_swarm_want(s, window, 4, true, 0);
    for (int i = 0; i < 5; i++) {
        expect_ask(s, 0, head, order[i]);
        kin_swarm_got(s, head, order[i], 0);
    }
    assert_true(kin_swarm_complete(s));
    assert_int_equal(kin_swarm_get_stats(s, 0).n_done, 5);
    kin_swarm_free(s);
}

static void devices_ask_for_the_same_chunks_in_different_orders(void **state) {
    (void)state;
    uint32_t orders[2][40];
    int n_same = 0;
    for (int d = 0; d < 2; d++) {
        bool seen[40] = {false};
        kin_swarm *s = new_swarm(40, (uint64_t)d);
        int head = add_head(s);
        want_all(s, 40, false);
        for (int i = 0; i < 40; i++) {
            kin_swarm_action a = kin_swarm_next(s, 0);
            assert_int_equal(a.verb, KIN_SWARM_ASK);
            assert_false(seen[a.chunk]);
            seen[a.chunk] = true;
            orders[d][i] = a.chunk;
            kin_swarm_got(s, head, a.chunk, 0);
        }
        assert_true(kin_swarm_complete(s));
        kin_swarm_free(s);
    }
    for (int i = 0; i < 40; i++) n_same += orders[0][i] == orders[1][i];
    assert_true(n_same < 8);
}

static void requests_are_limited_per_source_and_in_all(void **state) {
    (void)state;
    kin_swarm_options o = kin_swarm_options_defaults(60, CHUNK, 1);
    o.n_in_flight = 3;
    o.n_in_flight_all = 7;
    kin_swarm *s = kin_swarm_new(&o, 0);
    int n[4] = {0};
    for (int d = 0; d < 4; d++) add_device(s, d, UINT64_MAX);
    want_all(s, 60, false);
    for (int i = 0; i < 7; i++) n[kin_swarm_next(s, 0).source]++;
    expect_wait(s, 0);
    for (int d = 0; d < 4; d++) assert_in_range(n[d], 1, 2);
    assert_int_equal(kin_swarm_get_stats(s, 0).n_in_flight, 7);
    kin_swarm_free(s);

    s = new_swarm(60, 1);
    int head = add_head(s);
    want_all(s, 60, false);
    for (int i = 0; i < 3; i++) expect_ask(s, 0, head, -1);
    expect_wait(s, 0);
    kin_swarm_free(s);
}

static void devices_are_asked_before_the_head_which_gets_what_only_it_has(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(8, 1);
    int head = add_head(s), device = add_device(s, 0, 0x3f);
    want_all(s, 8, true);
    for (int i = 0; i < 3; i++) expect_ask(s, 0, device, i);
    expect_ask(s, 0, head, 6);
    expect_ask(s, 0, head, 7);
    expect_wait(s, 0); // 3, 4, 5 wait for the device
    kin_swarm_free(s);
}

static void the_head_helps_out_where_all_devices_are_slow(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(8, 1);
    int head = add_head(s), device = add_device(s, 0, 0xff);
    want_all(s, 8, true);
    for (int i = 0; i < 3; i++) expect_ask(s, 0, device, i);
    expect_wait(s, 0);
    for (kin_time t = 100 * MS; t <= SECOND; t += 100 * MS) kin_swarm_heard(s, device, CHUNK / 20, t); // 3 chunks take 6 s
    expect_ask(s, SECOND, head, 3);
    kin_swarm_free(s);

    s = new_swarm(8, 1);
    head = add_head(s), device = add_device(s, 0, 0xff);
    want_all(s, 8, true);
    for (int i = 0; i < 3; i++) expect_ask(s, 0, device, i);
    expect_wait(s, 1900 * MS);
    expect_ask(s, 2100 * MS, head, 3); // the device has sent nothing for two seconds
    kin_swarm_free(s);
}

static void a_silent_source_rests_and_others_are_asked(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(2, 1);
    int a = add_device(s, 0, 1), b = add_device(s, 1, 2);
    want_all(s, 2, true);
    expect_ask(s, 0, a, 0);
    expect_ask(s, 0, b, 1);
    kin_swarm_heard(s, b, 5, 9 * SECOND);
    int c = add_device(s, 2, 1);
    expect_ask(s, 10 * SECOND + 1, c, 0);
    assert_false(kin_swarm_is_asked(s, a, 0));
    assert_true(kin_swarm_is_asked(s, b, 1)); // b has sent bytes
    kin_swarm_got(s, a, 0, 11 * SECOND);      // late, but accepted
    kin_swarm_got(s, b, 1, 11 * SECOND);
    assert_true(kin_swarm_complete(s));
    kin_swarm_got(s, c, 0, 12 * SECOND);
    assert_int_equal(kin_swarm_get_stats(s, 0).n_twice, 1);
    assert_int_equal(kin_swarm_get_stats(s, 0).n_done, 2);
    kin_swarm_free(s);
}

static void rests_grow_and_end(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(1, 1);
    int a = add_device(s, 0, 1);
    want_all(s, 1, true);
    kin_time t = 0, rest = SECOND;
    for (int i = 0; i < 4; i++, rest *= 2) {
        expect_ask(s, t, a, 0);
        t += 10 * SECOND + 1;
        expect_wait(s, t);
        expect_wait(s, t + rest - 1);
        t += rest;
    }
    expect_ask(s, t, a, 0);
    kin_swarm_free(s);
}

static void a_lost_source_gives_its_chunks_back(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(3, 1);
    int a = add_device(s, 0, 7);
    want_all(s, 3, true);
    for (int i = 0; i < 3; i++) expect_ask(s, 0, a, i);
    kin_swarm_got(s, a, 1, 0);
    kin_swarm_lost(s, a);
    expect_wait(s, 0);
    assert_int_equal(kin_swarm_get_stats(s, 0).n_in_flight, 0);
    int head = add_head(s);
    expect_ask(s, 0, head, 0);
    assert_int_equal(add_device(s, 0, 4), a); // the device is back with fewer chunks
    expect_ask(s, 0, a, 2);
    kin_swarm_free(s);
}

static void a_peer_without_a_chunk_is_not_asked_for_it_again(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(2, 1);
    int head = add_head(s), a = add_device(s, 0, 3);
    want_all(s, 2, true);
    expect_ask(s, 0, a, 0);
    kin_swarm_lacks(s, a, 0);
    kin_swarm_lacks(s, a, 77); // out of range: no effect
    expect_ask(s, 0, a, 1);
    expect_ask(s, 0, head, 0);
    kin_swarm_free(s);
}

static void a_bad_peer_is_never_asked_again(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(5, 1);
    int a = add_device(s, 0, 0x1f);
    want_all(s, 5, true);
    for (int i = 0; i < 3; i++) expect_ask(s, 0, a, i);
    kin_swarm_lied(s, a, 1);
    expect_wait(s, 0);
    assert_int_equal(kin_swarm_add_source(s, id_of(0).bytes, false), -1);
    int head = add_head(s);
    for (int i = 0; i < 3; i++) expect_ask(s, 0, head, i);
    for (int i = 1; i < 200; i++) { // many other sources do not displace the record of the bad one
        int stranger = kin_swarm_add_source(s, (id){{(uint8_t)i, 7}}.bytes, false);
        if (stranger >= 0) kin_swarm_lost(s, stranger);
    }
    assert_int_equal(kin_swarm_add_source(s, id_of(0).bytes, false), -1);
    kin_swarm_free(s);
}

static void too_many_sources_are_refused(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(5, 1);
    for (int i = 0; i < KIN_SWARM_SOURCES; i++) assert_int_equal(kin_swarm_add_source(s, id_of(i).bytes, false), i);
    assert_int_equal(kin_swarm_add_source(s, id_of(100).bytes, false), -1);
    kin_swarm_lost(s, 17);
    assert_int_equal(kin_swarm_add_source(s, id_of(100).bytes, false), 17);
    kin_swarm_free(s);
}

static void the_last_chunk_is_asked_for_twice_when_it_is_late(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(1, 1);
    int a = add_device(s, 0, 1), b = add_device(s, 1, 1), head = add_head(s);
    want_all(s, 1, true);
    expect_ask(s, 0, a, 0);
    expect_wait(s, 1900 * MS);
    expect_ask(s, 2 * SECOND, b, 0);
    expect_wait(s, 5 * SECOND); // no third request
    kin_swarm_got(s, b, 0, 5 * SECOND);
    assert_true(kin_swarm_complete(s));
    assert_false(kin_swarm_is_asked(s, head, 0));
    kin_swarm_free(s);
}

static void offers_shorter_or_longer_than_the_model_are_harmless(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(20, 1);
    int a = kin_swarm_add_source(s, id_of(0).bytes, false);
    uint8_t long_bits[1000];
    memset(long_bits, 0xff, sizeof long_bits);
    want_all(s, 20, true);
    kin_swarm_offers(s, a, NULL, 0);
    expect_wait(s, 0);
    kin_swarm_offers(s, a, long_bits, 1);
    expect_ask(s, 0, a, 0);
    kin_swarm_offers(s, a, long_bits, sizeof long_bits);
    expect_ask(s, 0, a, 1);
    kin_swarm_free(s);
}

static void giving_up_says_why(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(3, 1);
    want_all(s, 3, true);
    expect_wait(s, 60 * SECOND);
    expect_give_up(s, 61 * SECOND, "there is no device");
    int a = add_device(s, 0, 6);
    expect_ask(s, 61 * SECOND, a, 1);
    expect_ask(s, 61 * SECOND, a, 2);
    kin_swarm_got(s, a, 1, 62 * SECOND);
    kin_swarm_got(s, a, 2, 62 * SECOND);
    expect_wait(s, 120 * SECOND);
    expect_give_up(s, 123 * SECOND, "no device has chunk 0");
    uint64_t all = 7;
    kin_swarm_offers(s, a, (const uint8_t *)&all, 1);
    expect_ask(s, 123 * SECOND, a, 0);
    expect_give_up(s, 123 * SECOND, "no data of the model arrived for 60 s");
    kin_swarm_lied(s, a, 0);
    expect_give_up(s, 123 * SECOND, "1 sent damaged chunks");
    const uint32_t none = 0;
    kin_swarm_want(s, &none, 0, true, 130 * SECOND);
    kin_swarm_free(s);
}

static void waiting_for_a_new_want_does_not_count_as_silence(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(2, 1);
    const uint32_t first = 0, second = 1;
    int a = add_device(s, 0, 1);
    kin_swarm_want(s, &first, 1, true, 0);
    expect_ask(s, 0, a, 0);
    kin_swarm_got(s, a, 0, SECOND);
    kin_swarm_want(s, &second, 1, true, 1000 * SECOND);
    expect_wait(s, 1059 * SECOND);
    expect_give_up(s, 1061 * SECOND, "no device has chunk 1");
    kin_swarm_free(s);
}

static void rate_and_time_left_follow_the_bytes(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(10, 1);
    int head = add_head(s), device = add_device(s, 0, 0);
    want_all(s, 10, true);
    assert_true(kin_swarm_get_stats(s, 0).left_ns == UINT64_MAX);
    for (int i = 0; i < 50; i++) {
        if (i % 10 == 0) expect_ask(s, i * 100 * MS, head, -1);
        kin_swarm_heard(s, head, CHUNK / 10, (kin_time)(i + 1) * 100 * MS); // 1 MiB/s
        if (i % 10 == 9) kin_swarm_got(s, head, (uint32_t)(i / 10), (kin_time)(i + 1) * 100 * MS);
        kin_swarm_stats now = kin_swarm_get_stats(s, (kin_time)(i + 1) * 100 * MS);
        if (i < 19) assert_true(now.rate == 0 && now.left_ns == UINT64_MAX); // no rate in the first two seconds
        if (i > 29) assert_true(now.rate > 0);
    }
    kin_swarm_heard(s, device, 1000, 5 * SECOND);
    kin_swarm_stats stats = kin_swarm_get_stats(s, 5 * SECOND);
    assert_in_range(stats.rate, CHUNK * 9 / 10, CHUNK * 11 / 10);
    assert_in_range(stats.left_ns, 4 * SECOND, 6 * SECOND);
    assert_int_equal(stats.bytes_head, (uint64_t)CHUNK / 10 * 50);
    assert_int_equal(stats.bytes_peers, 1000);
    assert_true(kin_swarm_get_stats(s, 50 * SECOND).rate < stats.rate); // silence lowers the rate
    kin_swarm_free(s);
}

static void a_pause_between_two_plans_is_not_counted_as_slow(void **state) {
    (void)state;
    kin_swarm *s = new_swarm(10, 1);
    int head = add_head(s);
    want_all(s, 1, true);
    expect_ask(s, 0, head, -1);
    kin_swarm_heard(s, head, CHUNK, SECOND);
    kin_swarm_got(s, head, 0, SECOND);
    const kin_time begun = 1000 * SECOND;
    const uint32_t more[] = {1, 2, 3, 4, 5};
    kin_swarm_want(s, more, 5, true, begun);
    for (int i = 0; i < 30; i++) {
        kin_swarm_heard(s, head, CHUNK / 10, begun + (kin_time)(i + 1) * 100 * MS);
        kin_swarm_stats now = kin_swarm_get_stats(s, begun + (kin_time)(i + 1) * 100 * MS);
        if (now.rate) assert_in_range(now.rate, CHUNK * 8 / 10, CHUNK * 12 / 10);
        if (i == 29) assert_true(now.rate > 0);
    }
    kin_swarm_free(s);
}

// ---- the simulator: a head and devices, every link with a rate, time in steps of 10 ms

enum { NODES_MAX = 7, REQUESTS_MAX = 512, SIM_CHUNKS = 120 };
#define STEP (10 * MS)
#define HAVE_EVERY (250 * MS)

typedef struct transfer {
    int client;
    uint32_t chunk;
    uint32_t left; // remaining bytes
} transfer;

typedef struct node {
    kin_swarm *swarm; // NULL: the head
    bool has[SIM_CHUNKS], liar, caught[NODES_MAX];
    int source_of[NODES_MAX]; // each node's number as a source of this one
    uint64_t up, down;        // bytes per step
    uint64_t down_left;
    transfer queue[REQUESTS_MAX]; // requests to this node
    int n_queue, turn;            // turn: the next transfer to serve
    uint64_t sent;
    kin_time dead_at;
} node;

typedef struct simulation {
    node nodes[NODES_MAX]; // the first is the head
    int n;
    kin_rng rng;
    double loss; // the probability that a request is lost
    kin_time now;
} simulation;

typedef struct scenario {
    int n_devices;
    uint64_t seed;
    double loss;
    int n_bad_peers, n_dying;
    bool uneven;
} scenario;

static bool is_alive(const simulation *sim, int i) {
    return sim->now < sim->nodes[i].dead_at;
}

static void meet(simulation *sim, int i, int other) {
    node *n = &sim->nodes[i];
    n->source_of[other] = kin_swarm_add_source(n->swarm, id_of(other).bytes, other == 0);
}

static simulation *start(const scenario *sc) {
    simulation *sim = calloc(1, sizeof *sim);
    kin_rng_seed(&sim->rng, sc->seed);
    sim->n = sc->n_devices + 1;
    sim->loss = sc->loss;
    for (int i = 0; i < sim->n; i++) {
        node *n = &sim->nodes[i];
        uint64_t factor = sc->uneven ? 1 + kin_rng_u64(&sim->rng) % 10 : 5;
        n->up = n->down = factor * CHUNK / 50; // 2 to 20 MiB/s
        n->dead_at = UINT64_MAX;
        if (i == 0) {
            memset(n->has, true, sizeof n->has);
            continue;
        }
        n->liar = i <= sc->n_bad_peers;
        if (i > sim->n - 1 - sc->n_dying) n->dead_at = (1 + kin_rng_u64(&sim->rng) % 10) * SECOND;
        n->swarm = new_swarm(SIM_CHUNKS, sc->seed * 100 + (uint64_t)i);
        want_all(n->swarm, SIM_CHUNKS, false);
        for (int k = 0; k < sim->n; k++) {
            if (k != i) meet(sim, i, k);
        }
    }
    return sim;
}

static void stop(simulation *sim) {
    for (int i = 0; i < sim->n; i++) kin_swarm_free(sim->nodes[i].swarm);
    free(sim);
}

static int node_of(const simulation *sim, const node *n, int source) {
    for (int k = 0; k < sim->n; k++) {
        if (&sim->nodes[k] != n && n->source_of[k] == source) return k;
    }
    fail_msg("asked a source that nobody is");
    return 0;
}

static void spread_news(simulation *sim) {
    for (int i = 0; i < sim->n; i++) {
        uint8_t bits[SIM_CHUNKS / 8] = {0};
        for (int c = 0; c < SIM_CHUNKS; c++) bits[c / 8] |= (uint8_t)((sim->nodes[i].has[c] || sim->nodes[i].liar) << c % 8);
        for (int k = 1; k < sim->n && i > 0; k++) {
            node *n = &sim->nodes[k];
            if (k == i || n->source_of[i] < 0 || n->caught[i] || !is_alive(sim, i)) continue;
            kin_swarm_offers(n->swarm, n->source_of[i], bits, sizeof bits);
        }
    }
}

// Carries out all actions of a device's swarm, and checks their invariants.
static void act(simulation *sim, int i) {
    node *n = &sim->nodes[i];
    for (;;) {
        kin_swarm_action a = kin_swarm_next(n->swarm, sim->now);
        if (a.verb == KIN_SWARM_GIVE_UP) fail_msg("device %d gave up: %s", i, a.reason);
        if (a.verb == KIN_SWARM_WAIT) return;
        int k = node_of(sim, n, a.source);
        assert_false(n->has[a.chunk]);
        assert_false(n->caught[k]);
        assert_true(kin_swarm_get_stats(n->swarm, sim->now).n_in_flight <= 16);
        if (kin_rng_unit(&sim->rng) < sim->loss) continue;
        node *server = &sim->nodes[k];
        int n_mine = 0;
        for (int q = 0; q < server->n_queue; q++) n_mine += server->queue[q].client == i;
        assert_true(sim->loss > 0 || n_mine < 3);
        assert_true(server->n_queue < REQUESTS_MAX);
        server->queue[server->n_queue++] = (transfer){.client = i, .chunk = a.chunk, .left = CHUNK};
    }
}

static void deliver(simulation *sim, int from, const transfer *t) {
    node *client = &sim->nodes[t->client];
    int source = client->source_of[from];
    if (sim->nodes[from].liar) {
        client->caught[from] = true;
        kin_swarm_lied(client->swarm, source, t->chunk);
    } else if (sim->nodes[from].has[t->chunk]) {
        client->has[t->chunk] = true;
        kin_swarm_got(client->swarm, source, t->chunk, sim->now);
    } else {
        kin_swarm_lacks(client->swarm, source, t->chunk);
    }
}

// Sends a piece of a transfer, as much as both links have room for. False if there is no room. May end the transfer.
static bool serve_piece(simulation *sim, int i, int q, uint64_t *up_left) {
    node *server = &sim->nodes[i];
    transfer *t = &server->queue[q];
    node *client = &sim->nodes[t->client];
    uint64_t n = 16 << 10;
    if (n > t->left) n = t->left;
    if (n > *up_left) n = *up_left;
    if (n > client->down_left) n = client->down_left;
    if (n == 0 || !is_alive(sim, t->client)) return false;
    t->left -= (uint32_t)n;
    *up_left -= n;
    client->down_left -= n;
    server->sent += n;
    if (!client->caught[i]) kin_swarm_heard(client->swarm, client->source_of[i], (uint32_t)n, sim->now);
    if (t->left > 0) return true;
    if (!client->caught[i]) deliver(sim, i, t);
    server->queue[q] = server->queue[--server->n_queue];
    return true;
}

// Serves a node's requests in turn for one time step of its uplink.
static void serve(simulation *sim, int i) {
    node *server = &sim->nodes[i];
    uint64_t left = server->up;
    for (int n_idle = 0; n_idle < server->n_queue && left > 0; server->turn++) {
        n_idle = serve_piece(sim, i, server->turn % server->n_queue, &left) ? 0 : n_idle + 1;
    }
}

static void bury(simulation *sim) {
    for (int i = 1; i < sim->n; i++) {
        node *dead = &sim->nodes[i];
        if (is_alive(sim, i) || dead->up == 0) continue;
        dead->up = 0; // so that this happens once
        dead->n_queue = 0;
        for (int k = 1; k < sim->n; k++) {
            if (k != i) kin_swarm_lost(sim->nodes[k].swarm, sim->nodes[k].source_of[i]);
        }
    }
}

static bool all_complete(const simulation *sim) {
    for (int i = 1; i < sim->n; i++) {
        if (is_alive(sim, i) && !kin_swarm_complete(sim->nodes[i].swarm)) return false;
    }
    return true;
}

typedef struct outcome {
    double head_share; // the head's share of all bytes sent
    double seconds;
    uint32_t n_twice;
} outcome;

static outcome simulate(const scenario *sc) {
    simulation *sim = start(sc);
    for (; !all_complete(sim); sim->now += STEP) {
        if (sim->now > 3600 * SECOND) fail_msg("seed %d: not complete in an hour", (int)sc->seed);
        bury(sim);
        if (sim->now % HAVE_EVERY == 0) spread_news(sim);
        for (int i = 1; i < sim->n; i++) {
            sim->nodes[i].down_left = sim->nodes[i].down;
            if (is_alive(sim, i)) act(sim, i);
        }
        int first = (int)(kin_rng_u64(&sim->rng) % (uint64_t)sim->n);
        for (int i = 0; i < sim->n; i++) serve(sim, (first + i) % sim->n);
    }
    outcome out = {.seconds = (double)sim->now / 1e9};
    uint64_t sent = 0;
    for (int i = 0; i < sim->n; i++) {
        sent += sim->nodes[i].sent;
        if (i == 0 || !is_alive(sim, i)) continue;
        out.n_twice += kin_swarm_get_stats(sim->nodes[i].swarm, sim->now).n_twice;
        for (int c = 0; c < SIM_CHUNKS; c++) assert_true(sim->nodes[i].has[c]);
    }
    out.head_share = (double)sim->nodes[0].sent / (double)sent;
    stop(sim);
    return out;
}
#define simulate(...) FROM_TEST(simulate(__VA_ARGS__))

static void the_heads_share_falls_with_the_number_of_devices(void **state) {
    (void)state;
    double before = 2;
    for (int n = 1; n <= 6; n++) {
        outcome sum = {0};
        for (uint64_t seed = 1; seed <= 5; seed++) {
            outcome o = simulate(&(scenario){.n_devices = n, .seed = seed});
            sum.head_share += o.head_share / 5;
            sum.seconds += o.seconds / 5;
            sum.n_twice += o.n_twice;
        }
        print_message("             %d devices: the head sends %.0f %% of the bytes, %.1f s (%.1f s from it alone)\n", n,
                      100 * sum.head_share, sum.seconds, 10.0 * n * SIM_CHUNKS / 100);
        assert_true(sum.head_share < before);
        assert_true(sum.head_share <= 1.6 / n);
        assert_true(sum.seconds < 0.6 * n * SIM_CHUNKS / 5 + 5);
        before = sum.head_share;
    }
}

static void every_device_gets_everything_whatever_happens(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        kin_rng rng;
        kin_rng_seed(&rng, seed);
        int n = 1 + (int)(kin_rng_u64(&rng) % 6);
        simulate(&(scenario){
            .n_devices = n,
            .seed = seed,
            .loss = seed % 3 == 0 ? 0.05 : 0,
            .n_bad_peers = (int)(kin_rng_u64(&rng) % (uint64_t)n),
            .n_dying = n > 2 ? (int)(kin_rng_u64(&rng) % 3) : 0,
            .uneven = seed % 2,
        });
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_wanted_is_complete),
        cmocka_unit_test(on_a_slow_link_few_sources_are_asked_for_one_chunk_each),
        cmocka_unit_test(on_a_link_that_turns_out_slow_requests_are_withdrawn),
        cmocka_unit_test(a_link_that_was_slow_is_slow_for_what_is_wanted_next),
        cmocka_unit_test(on_a_slow_link_a_source_that_comes_back_is_not_asked_for_what_another_sends),
        cmocka_unit_test(what_is_needed_at_once_comes_in_its_order_and_first),
        cmocka_unit_test(devices_ask_for_the_same_chunks_in_different_orders),
        cmocka_unit_test(requests_are_limited_per_source_and_in_all),
        cmocka_unit_test(devices_are_asked_before_the_head_which_gets_what_only_it_has),
        cmocka_unit_test(the_head_helps_out_where_all_devices_are_slow),
        cmocka_unit_test(a_silent_source_rests_and_others_are_asked),
        cmocka_unit_test(rests_grow_and_end),
        cmocka_unit_test(a_lost_source_gives_its_chunks_back),
        cmocka_unit_test(a_peer_without_a_chunk_is_not_asked_for_it_again),
        cmocka_unit_test(a_bad_peer_is_never_asked_again),
        cmocka_unit_test(too_many_sources_are_refused),
        cmocka_unit_test(the_last_chunk_is_asked_for_twice_when_it_is_late),
        cmocka_unit_test(offers_shorter_or_longer_than_the_model_are_harmless),
        cmocka_unit_test(giving_up_says_why),
        cmocka_unit_test(waiting_for_a_new_want_does_not_count_as_silence),
        cmocka_unit_test(rate_and_time_left_follow_the_bytes),
        cmocka_unit_test(a_pause_between_two_plans_is_not_counted_as_slow),
        cmocka_unit_test(the_heads_share_falls_with_the_number_of_devices),
        cmocka_unit_test(every_device_gets_everything_whatever_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
