// What a head knows of devices and links (ring/ledger.h), and meetings of those that join (ring/meetings.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "ring/ledger.h"
#include "ring/meetings.h"

static kin_proto_id id_of(int i) {
    return (kin_proto_id){{(uint8_t)i, (uint8_t)(i >> 8), 1}};
}

static kin_ledger *open_ledger(void) {
    kin_ledger *l;
    kin_err err;
    assert_int_equal(kin_ledger_open(&l, &err), 0);
    return l;
}

static void facts_come_out_in_the_order_that_is_asked_for(void **state) {
    (void)state;
    static kin_facts facts;
    kin_ledger *l = open_ledger();
    kin_proto_id ids[4];
    for (int i = 0; i < 4; i++) {
        ids[i] = id_of(i);
        if (i < 3) kin_ledger_set_device(l, &ids[i], &(kin_device_facts){.memory_bytes = i + 1});
    }
    kin_ledger_set_link(l, &ids[0], &ids[2], &(kin_link_facts){0.5, 7});
    const kin_proto_id *order[] = {&ids[2], &ids[3], &ids[0]};
    memset(&facts, 0xff, sizeof facts);
    kin_ledger_fill(l, order, 3, &facts);
    assert_int_equal(facts.n_device, 3);
    assert_true(facts.devices[0].memory_bytes == 3 && facts.devices[1].memory_bytes == 0 && facts.devices[2].memory_bytes == 1);
    assert_true(facts.links[2][0].bytes_s == 7 && facts.links[2][0].rtt_s == 0.5);
    assert_true(facts.links[0][2].bytes_s == 0 && facts.links[0][0].bytes_s == 0 && facts.links[1][0].bytes_s == 0);
    assert_true(kin_ledger_has_link(l, &ids[0], &ids[2]));
    assert_false(kin_ledger_has_link(l, &ids[2], &ids[0]));
    assert_null(kin_ledger_device(l, &ids[3]));
    kin_ledger_close(l);
}

static void links_of_nobody_are_not_kept(void **state) {
    (void)state;
    kin_ledger *l = open_ledger();
    kin_proto_id a = id_of(1), b = id_of(2);
    kin_ledger_set_device(l, &a, &(kin_device_facts){0});
    kin_ledger_set_link(l, &a, &b, &(kin_link_facts){1, 1});
    kin_ledger_set_device(l, &b, &(kin_device_facts){0});
    assert_false(kin_ledger_has_link(l, &a, &b));
    kin_ledger_close(l);
}

static void too_many_forget_the_oldest_and_its_links(void **state) {
    (void)state;
    kin_ledger *l = open_ledger();
    kin_proto_id head = id_of(0), first = id_of(1), id;
    kin_ledger_set_device(l, &head, &(kin_device_facts){0});
    kin_ledger_set_device(l, &first, &(kin_device_facts){0});
    kin_ledger_set_link(l, &first, &head, &(kin_link_facts){1, 1});
    for (int i = 2; i < 200; i++) {
        id = id_of(i);
        kin_ledger_set_device(l, &id, &(kin_device_facts){.memory_bytes = i});
        kin_ledger_set_device(l, &head, &(kin_device_facts){0}); // heard of all the time
        assert_false(kin_ledger_has_link(l, &id, &head));
    }
    assert_null(kin_ledger_device(l, &first));
    assert_non_null(kin_ledger_device(l, &head));
    assert_true(kin_ledger_device(l, &id)->memory_bytes == 199);
    kin_ledger_close(l);
}

// ---- meetings

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

static kin_meetings *open_meetings(void) {
    kin_meetings *m;
    kin_err err;
    n_over = 0;
    assert_int_equal(kin_meetings_open(&m, over, &n_over, &err), 0);
    return m;
}

static void a_meeting_ends_with_its_last_answer(void **state) {
    (void)state;
    kin_meetings *m = open_meetings();
    assert_true(kin_meetings_begin(m, 7, &(kin_proto_device){.memory = 42}, 2, SECOND));
    kin_meetings_answered(m, 8); // somebody else's
    kin_meetings_answered(m, 7);
    kin_meetings_tick(m, SECOND);
    assert_int_equal(n_over, 0);
    kin_meetings_answered(m, 7);
    kin_meetings_tick(m, SECOND);
    assert_int_equal(n_over, 1);
    assert_int_equal(over_link, 7);
    assert_int_equal(over_memory, 42);
    kin_meetings_answered(m, 7);
    kin_meetings_tick(m, 100 * SECOND);
    assert_int_equal(n_over, 1);
    kin_meetings_close(m);
}

static void who_does_not_answer_is_waited_for_a_few_seconds(void **state) {
    (void)state;
    kin_meetings *m = open_meetings();
    kin_meetings_begin(m, 7, &(kin_proto_device){.memory = 1}, 1, SECOND);
    kin_meetings_tick(m, 4 * SECOND);
    assert_int_equal(n_over, 0);
    kin_meetings_tick(m, 5 * SECOND);
    assert_int_equal(n_over, 1);
    kin_meetings_close(m);
}

static void who_is_lost_is_met_no_more(void **state) {
    (void)state;
    kin_meetings *m = open_meetings();
    kin_meetings_begin(m, 7, &(kin_proto_device){.memory = 1}, 1, SECOND);
    kin_meetings_lost(m, 7);
    kin_meetings_tick(m, 60 * SECOND);
    assert_int_equal(n_over, 0);
    kin_meetings_close(m);
}

static void places_are_few_and_used_again(void **state) {
    (void)state;
    kin_meetings *m = open_meetings();
    uint32_t n = 0;
    while (n < 1000 && kin_meetings_begin(m, n + 1, &(kin_proto_device){.memory = 1}, 1, SECOND)) n++;
    assert_in_range(n, 33, 999);
    assert_true(kin_meetings_begin(m, 1, &(kin_proto_device){.memory = 2}, 1, SECOND)); // the same again: its place
    kin_meetings_tick(m, 60 * SECOND);
    assert_int_equal(n_over, n);
    assert_true(kin_meetings_begin(m, 1, &(kin_proto_device){.memory = 1}, 1, SECOND));
    kin_meetings_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_come_out_in_the_order_that_is_asked_for),
        cmocka_unit_test(links_of_nobody_are_not_kept),
        cmocka_unit_test(too_many_forget_the_oldest_and_its_links),
        cmocka_unit_test(a_meeting_ends_with_its_last_answer),
        cmocka_unit_test(who_does_not_answer_is_waited_for_a_few_seconds),
        cmocka_unit_test(who_is_lost_is_met_no_more),
        cmocka_unit_test(places_are_few_and_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
