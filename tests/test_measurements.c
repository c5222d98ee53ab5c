// The head's figures of devices and links (cluster/measurements.h), tests of joining devices (cluster/pairwise_tests.h), and the
// order in which links are measured (cluster/probe_schedule.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cluster/measurements.h"
#include "cluster/pairwise_tests.h"
#include "cluster/probe_schedule.h"
#include "tests/place.h"

static kin_proto_id id_of(int i) {
    return (kin_proto_id){{(uint8_t)i, (uint8_t)(i >> 8), 1}};
}

static kin_measurements *open_ledger(void) {
    kin_measurements *l;
    kin_err err;
    assert_int_equal(kin_measurements_open(&l, &err), 0);
    return l;
}
#define open_ledger(...) FROM_TEST(open_ledger(__VA_ARGS__))

static void facts_come_out_in_the_order_that_is_asked_for(void **state) {
    (void)state;
    static kin_facts facts;
    kin_measurements *l = open_ledger();
    kin_proto_id ids[4];
    for (int i = 0; i < 4; i++) {
        ids[i] = id_of(i);
        if (i < 3) kin_measurements_set_device(l, &ids[i], &(kin_device_facts){.memory_bytes = i + 1});
    }
    assert_true(kin_measurements_ask(l, &ids[0], &ids[2]));
    assert_true(kin_measurements_store(l, &ids[0], &ids[2], &(kin_link_facts){0.5, 7}, &(kin_link_facts){0.5, 8}));
    const kin_proto_id order[] = {ids[2], ids[3], ids[0]};
    memset(&facts, 0xff, sizeof facts);
    kin_measurements_fill(l, order, 3, &facts);
    assert_int_equal(facts.n_device, 3);
    assert_true(facts.devices[0].memory_bytes == 3 && facts.devices[1].memory_bytes == 0 && facts.devices[2].memory_bytes == 1);
    assert_true(facts.links[2][0].bytes_s == 7 && facts.links[2][0].rtt_s == 0.5);
    assert_true(facts.links[0][2].bytes_s == 8 && facts.links[0][0].bytes_s == 0 && facts.links[1][0].bytes_s == 0);
    assert_null(kin_measurements_device(l, &ids[3]));
    kin_measurements_close(l);
}

static double rate_between(kin_measurements *l, const kin_proto_id *from, const kin_proto_id *to) {
    static kin_facts facts;
    kin_measurements_fill(l, (const kin_proto_id[]){*from, *to}, 2, &facts);
    return facts.links[0][1].bytes_s;
}

static void only_answers_count_and_a_failed_one_leaves_what_was_known(void **state) {
    (void)state;
    kin_measurements *l = open_ledger();
    kin_proto_id a = id_of(1), b = id_of(2), nobody = id_of(3);
    const kin_link_facts link = {1, 1}, other = {1, 2};
    kin_measurements_set_device(l, &a, &(kin_device_facts){0});
    kin_measurements_set_device(l, &b, &(kin_device_facts){0});
    assert_false(kin_measurements_store(l, &a, &b, &link, &link));
    assert_false(kin_measurements_ask(l, &a, &nobody));
    assert_false(kin_measurements_ask(l, &a, &a));
    assert_true(kin_measurements_ask(l, &a, &b));
    assert_true(kin_measurements_store(l, &a, &b, &link, &link));
    assert_false(kin_measurements_store(l, &a, &b, &other, &other));
    assert_true(rate_between(l, &a, &b) == 1 && rate_between(l, &b, &a) == 1);
    assert_true(kin_measurements_ask(l, &b, &a));
    assert_true(kin_measurements_store(l, &b, &a, NULL, NULL));
    assert_true(rate_between(l, &a, &b) == 1);
    assert_true(kin_measurements_ask(l, &b, &a)); // measured again at the next join
    assert_true(kin_measurements_store(l, &b, &a, &other, &other));
    assert_true(rate_between(l, &a, &b) == 2);
    kin_measurements_close(l);
}

// One end measures, then the other. The head is the first of three devices.
static void devices_that_do_not_reach_each_other_use_the_path_by_the_head(void **state) {
    (void)state;
    static kin_facts facts;
    kin_measurements *l = open_ledger();
    kin_proto_id ids[3];
    for (int i = 0; i < 3; i++) {
        ids[i] = id_of(i);
        kin_measurements_set_device(l, &ids[i], &(kin_device_facts){0});
        if (i == 0) continue;
        assert_true(kin_measurements_ask(l, &ids[i], &ids[0]));
        assert_true(kin_measurements_store(l, &ids[i], &ids[0], &(kin_link_facts){i, 30}, &(kin_link_facts){i, 60}));
    }
    const kin_proto_id order[] = {ids[0], ids[1], ids[2]};
    assert_true(kin_measurements_ask(l, &ids[2], &ids[1]));
    assert_true(kin_measurements_store(l, &ids[2], &ids[1], NULL, NULL));
    assert_true(kin_measurements_has_failed(l, &ids[2], &ids[1]) && !kin_measurements_is_apart(l, &ids[1], &ids[2]));
    kin_measurements_fill(l, order, 3, &facts);
    assert_true(facts.links[1][2].bytes_s == 0); // the other end has not tried yet
    assert_true(kin_measurements_ask_back(l, &ids[1], &ids[2]));
    assert_true(kin_measurements_store(l, &ids[1], &ids[2], NULL, NULL));
    assert_true(kin_measurements_is_apart(l, &ids[1], &ids[2]) && kin_measurements_is_apart(l, &ids[2], &ids[1]));
    assert_true(kin_measurements_note_unreachable(l, &ids[1], &ids[2]));
    assert_false(kin_measurements_note_unreachable(l, &ids[2], &ids[1])); // reported once per pair
    kin_measurements_fill(l, order, 3, &facts);
    for (int i = 1; i < 3; i++) {
        const kin_link_facts *link = &facts.links[i][3 - i];
        assert_true(link->rtt_s == 3 && link->bytes_s > 19.9 && link->bytes_s < 20.1);
    }
    assert_true(kin_measurements_ask(l, &ids[1], &ids[2])); // the device has joined again
    assert_false(kin_measurements_is_apart(l, &ids[1], &ids[2]));
    assert_true(kin_measurements_store(l, &ids[1], &ids[2], &(kin_link_facts){5, 5}, &(kin_link_facts){5, 5}));
    kin_measurements_fill(l, order, 3, &facts);
    assert_true(facts.links[2][1].bytes_s == 5);
    kin_measurements_close(l);
}

static void too_many_forget_the_oldest_but_not_the_head_or_present_devices(void **state) {
    (void)state;
    kin_measurements *l = open_ledger();
    kin_proto_id head = id_of(0), present = id_of(1), gone = id_of(2), id;
    kin_measurements_set_device(l, &head, &(kin_device_facts){.memory_bytes = 1});
    kin_measurements_set_device(l, &present, &(kin_device_facts){0});
    kin_measurements_set_device(l, &gone, &(kin_device_facts){0});
    assert_true(kin_measurements_ask(l, &gone, &head));
    assert_true(kin_measurements_store(l, &gone, &head, &(kin_link_facts){1, 1}, &(kin_link_facts){1, 1}));
    for (int i = 3; i < 200; i++) {
        id = id_of(i);
        kin_measurements_set_device(l, &id, &(kin_device_facts){.memory_bytes = i});
        assert_true(rate_between(l, &id, &present) == 0);
    }
    assert_null(kin_measurements_device(l, &gone));
    assert_non_null(kin_measurements_device(l, &present));
    assert_true(kin_measurements_device(l, &head)->memory_bytes == 1);
    assert_true(kin_measurements_device(l, &id)->memory_bytes == 199);
    kin_measurements_close(l);
}

// ---- tests

#define SECOND ((kin_time)1000000000)

static int n_over;
static uint32_t over_link;
static uint64_t over_memory;

static void over(void *user, uint32_t link, const kin_proto_device *device) {
    assert_ptr_equal(user, &n_over);
    n_over++;
    over_link = link;
    over_memory = device->memory;
}

static kin_pairwise_tests *open_meetings(void) {
    kin_pairwise_tests *m;
    kin_err err;
    n_over = 0;
    assert_int_equal(kin_pairwise_tests_open(&m, over, &n_over, &err), 0);
    return m;
}
#define open_meetings(...) FROM_TEST(open_meetings(__VA_ARGS__))

static void a_pairwise_test_ends_with_its_last_answer(void **state) {
    (void)state;
    kin_pairwise_tests *m = open_meetings();
    assert_true(kin_pairwise_tests_begin(m, 7, &(kin_proto_device){.memory = 42}, 2, SECOND));
    assert_false(kin_pairwise_tests_answered(m, 8)); // the answer of another device
    assert_true(kin_pairwise_tests_answered(m, 7));
    assert_true(kin_pairwise_tests_renew(m, 7, &(kin_proto_device){.memory = 43}));
    assert_false(kin_pairwise_tests_renew(m, 8, &(kin_proto_device){.memory = 43}));
    kin_pairwise_tests_tick(m, SECOND);
    assert_int_equal(n_over, 0);
    kin_pairwise_tests_answered(m, 7);
    kin_pairwise_tests_tick(m, SECOND);
    assert_int_equal(n_over, 1);
    assert_int_equal(over_link, 7);
    assert_int_equal(over_memory, 43);
    assert_false(kin_pairwise_tests_answered(m, 7));
    kin_pairwise_tests_tick(m, 100 * SECOND);
    assert_int_equal(n_over, 1);
    kin_pairwise_tests_close(m);
}

static void a_device_that_does_not_answer_is_waited_for_a_few_seconds(void **state) {
    (void)state;
    kin_pairwise_tests *m = open_meetings();
    kin_pairwise_tests_begin(m, 7, &(kin_proto_device){.memory = 1}, 1, SECOND);
    kin_pairwise_tests_tick(m, 8 * SECOND);
    assert_int_equal(n_over, 0);
    kin_pairwise_tests_tick(m, 9 * SECOND);
    assert_int_equal(n_over, 1);
    kin_pairwise_tests_close(m);
}

static void a_lost_device_is_not_measured_any_more(void **state) {
    (void)state;
    kin_pairwise_tests *m = open_meetings();
    kin_pairwise_tests_begin(m, 7, &(kin_proto_device){.memory = 1}, 1, SECOND);
    kin_pairwise_tests_lost(m, 7);
    kin_pairwise_tests_tick(m, 60 * SECOND);
    assert_int_equal(n_over, 0);
    kin_pairwise_tests_close(m);
}

static void places_are_few_and_used_again(void **state) {
    (void)state;
    kin_pairwise_tests *m = open_meetings();
    uint32_t n = 0;
    while (n < 1000 && kin_pairwise_tests_begin(m, n + 1, &(kin_proto_device){.memory = 1}, 1, SECOND)) n++;
    assert_in_range(n, 33, 999);
    kin_pairwise_tests_tick(m, 60 * SECOND);
    assert_int_equal(n_over, n);
    assert_true(kin_pairwise_tests_begin(m, 1, &(kin_proto_device){.memory = 1}, 1, SECOND));
    kin_pairwise_tests_close(m);
}

// ---- the order of probes

enum { HEAD = 0, A, B, C, D };
static const kin_time T0 = 1000;

static void expect_begins(kin_probe_schedule *s, kin_time now, uint32_t from, uint32_t to) {
    kin_probe_pair pair;
    assert_true(kin_probe_schedule_begin(s, now, &pair));
    assert_true(pair.from == from && pair.to == to);
}
#define expect_begins(...) FROM_TEST(expect_begins(__VA_ARGS__))

static void expect_waits(kin_probe_schedule *s, kin_time now) {
    kin_probe_pair pair;
    assert_false(kin_probe_schedule_begin(s, now, &pair));
}
#define expect_waits(...) FROM_TEST(expect_waits(__VA_ARGS__))

// Adds n devices that join one after the other; each measures its links to the head and to the earlier devices.
static void add_all(kin_probe_schedule *s, uint32_t n) {
    for (uint32_t from = A; from <= n; from++) {
        for (uint32_t to = HEAD; to < from; to++) assert_true(kin_probe_schedule_add(s, from, to, false));
    }
}
#define add_all(...) FROM_TEST(add_all(__VA_ARGS__))

static void a_device_takes_part_in_one_measurement_at_a_time(void **state) {
    (void)state;
    static kin_probe_schedule s;
    s.n = 0;
    add_all(&s, C);
    expect_begins(&s, T0, A, HEAD);
    expect_begins(&s, T0, C, B); // shares no device with the running probe
    expect_waits(&s, T0);
    kin_probe_schedule_end(&s, C);
    expect_waits(&s, T0); // all remaining links involve the head or A
    kin_probe_schedule_end(&s, A);
    expect_begins(&s, T0, B, HEAD);
    expect_begins(&s, T0, C, A);
    expect_waits(&s, T0);
    kin_probe_schedule_end(&s, B);
    kin_probe_schedule_end(&s, C);
    expect_begins(&s, T0, B, A);
    expect_begins(&s, T0, C, HEAD);
    kin_probe_schedule_end(&s, B);
    kin_probe_schedule_end(&s, C);
    assert_int_equal(s.n, 0);
}

static void nothing_runs_beside_another_and_all_have_their_turn(void **state) {
    (void)state;
    static kin_probe_schedule s;
    kin_probe_pair running[D], pair;
    int n_running = 0, n_begun = 0;
    s.n = 0;
    add_all(&s, D);
    while (n_begun < 10) {
        while (kin_probe_schedule_begin(&s, T0, &pair)) {
            for (int i = 0; i < n_running; i++) {
                const kin_probe_pair *r = &running[i];
                assert_true(r->from != pair.from && r->from != pair.to && r->to != pair.from && r->to != pair.to);
            }
            running[n_running++] = pair;
            n_begun++;
        }
        assert_true(n_running > 0);
        kin_probe_schedule_end(&s, running[--n_running].from);
    }
}

static void one_that_is_gone_or_does_not_answer_delays_no_other(void **state) {
    (void)state;
    static kin_probe_schedule s;
    const kin_time limit = KIN_PROBE_SCHEDULE_LIMIT_MS * (kin_time)1000000;
    s.n = 0;
    add_all(&s, B);
    expect_begins(&s, T0, A, HEAD);
    expect_waits(&s, T0 + limit);
    expect_begins(&s, T0 + limit + 1000000, B, HEAD);
    kin_probe_schedule_lost(&s, B); // removes the probes that B would run
    assert_int_equal(s.n, 0);
    assert_true(kin_probe_schedule_add(&s, A, B, false) && kin_probe_schedule_add(&s, C, B, true));
    expect_begins(&s, T0, A, B);
    kin_probe_schedule_lost(&s, B);
    expect_begins(&s, T0, C, B); // the probe fails, so its requester learns that B is gone
    assert_true(s.pairs[0].is_back);
    kin_probe_schedule_lost(&s, C);
    while (kin_probe_schedule_add(&s, A, HEAD, false)) {
    }
    assert_int_equal(s.n, KIN_PROBE_SCHEDULE_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_come_out_in_the_order_that_is_asked_for),
        cmocka_unit_test(only_answers_count_and_a_failed_one_leaves_what_was_known),
        cmocka_unit_test(devices_that_do_not_reach_each_other_use_the_path_by_the_head),
        cmocka_unit_test(too_many_forget_the_oldest_but_not_the_head_or_present_devices),
        cmocka_unit_test(a_pairwise_test_ends_with_its_last_answer),
        cmocka_unit_test(a_device_that_does_not_answer_is_waited_for_a_few_seconds),
        cmocka_unit_test(a_lost_device_is_not_measured_any_more),
        cmocka_unit_test(places_are_few_and_used_again),
        cmocka_unit_test(a_device_takes_part_in_one_measurement_at_a_time),
        cmocka_unit_test(nothing_runs_beside_another_and_all_have_their_turn),
        cmocka_unit_test(one_that_is_gone_or_does_not_answer_delays_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
