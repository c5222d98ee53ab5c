// The memory budget over time (pure/plan/budget.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pure/plan/budget.h"

#define MB ((uint64_t)1 << 20)

static kin_budget start(uint64_t bytes) {
    return (kin_budget){.bytes = bytes, .most_useful = 1000 * MB};
}

static void less_room_takes_effect_at_once(void **state) {
    (void)state;
    kin_budget b = start(500 * MB);
    assert_int_equal(kin_budget_step(&b, 100, 300 * MB), 300 * MB);
    assert_int_equal(kin_budget_step(&b, 200, 0), 0);
}

static void more_room_must_last(void **state) {
    (void)state;
    kin_budget b = start(500 * MB);
    uint64_t now = 100;
    for (; now < 100 + KIN_BUDGET_GROW_AFTER_MS; now += 100) assert_int_equal(kin_budget_step(&b, now, 800 * MB), 500 * MB);
    assert_int_equal(kin_budget_step(&b, now, 800 * MB), 800 * MB);
}

static void growth_takes_only_what_was_there_all_the_time(void **state) {
    (void)state;
    kin_budget b = start(500 * MB);
    kin_budget_step(&b, 100, 900 * MB);
    kin_budget_step(&b, 1000, 600 * MB);
    assert_int_equal(kin_budget_step(&b, 100 + KIN_BUDGET_GROW_AFTER_MS, 900 * MB), 600 * MB);
}

static void a_dip_starts_the_wait_again(void **state) {
    (void)state;
    kin_budget b = start(500 * MB);
    kin_budget_step(&b, 100, 900 * MB);
    assert_int_equal(kin_budget_step(&b, 2000, 400 * MB), 400 * MB);
    assert_int_equal(kin_budget_step(&b, 2200, 900 * MB), 400 * MB);
    assert_int_equal(kin_budget_step(&b, 2200 + KIN_BUDGET_GROW_AFTER_MS, 900 * MB), 900 * MB);
}

static void small_gains_are_left(void **state) {
    (void)state;
    kin_budget b = start(500 * MB);
    for (uint64_t now = 100; now < 10000; now += 100) {
        assert_int_equal(kin_budget_step(&b, now, 500 * MB + KIN_BUDGET_GROW_STEP - 1), 500 * MB);
    }
}

static void the_last_bit_of_a_complete_set_is_taken(void **state) {
    (void)state;
    kin_budget b = start(1000 * MB - 1);
    kin_budget_step(&b, 100, 5000 * MB);
    assert_int_equal(kin_budget_step(&b, 100 + KIN_BUDGET_GROW_AFTER_MS, 5000 * MB), 1000 * MB);
}

static void noise_around_the_budget_only_lowers_it_once(void **state) {
    (void)state;
    kin_budget b = start(500 * MB);
    int n_changes = 0;
    for (uint64_t now = 100, before = b.bytes; now < 60000; now += 100, before = b.bytes) {
        kin_budget_step(&b, now, now / 100 % 2 ? 496 * MB : 504 * MB);
        n_changes += b.bytes != before;
    }
    assert_int_equal(n_changes, 1);
}

// ---- room for weights

// 50 MB are reserved. All the memory that the process may have is resident, so nothing more is set aside for the kernel's page
// tables.
static kin_budget_memory machine(void) {
    return (kin_budget_memory){
        .total = 2500 * MB, .available = 900 * MB, .own = 100 * MB, .resident = 1000 * MB, .fixed = 150 * MB};
}

static void what_was_planned_for_the_rest_is_kept_free(void **state) {
    (void)state;
    kin_budget_memory m = machine();
    assert_int_equal(kin_budget_room(&m), (900 + 100 - 50 - 150) * MB);
    m.own = 10 * MB, m.available = 990 * MB; // less in use, more available: the same room
    assert_int_equal(kin_budget_room(&m), (900 + 100 - 50 - 150) * MB);
}

static void a_rest_larger_than_planned_takes_from_the_weights(void **state) {
    (void)state;
    kin_budget_memory m = machine();
    m.own = 300 * MB, m.available = 700 * MB;
    assert_int_equal(kin_budget_room(&m), (700 - 50) * MB - KIN_BUDGET_PROGRAM);
}

static void weights_in_memory_of_our_own_are_not_the_rest(void **state) {
    (void)state;
    kin_budget_memory m = machine();
    m.own = 600 * MB, m.available = 400 * MB, m.own_weights = 500 * MB;
    assert_int_equal(kin_budget_room(&m), (400 + 600 - 50 - 150) * MB);
}

static void the_cap_is_on_everything(void **state) {
    (void)state;
    kin_budget_memory m = machine();
    m.cap = 400 * MB;
    assert_int_equal(kin_budget_room(&m), 250 * MB);
    m.cap = 5000 * MB;
    assert_int_equal(kin_budget_room(&m), 800 * MB);
}

static void no_room_is_none(void **state) {
    (void)state;
    kin_budget_memory m = {.total = 2500 * MB, .available = 10 * MB, .own = 10 * MB, .own_weights = 20 * MB, .fixed = 1 * MB};
    assert_int_equal(kin_budget_room(&m), 0);
    assert_int_equal(kin_budget_start(&m), 0);
    m = machine(), m.cap = MB;
    assert_int_equal(kin_budget_room(&m), 0);
}

static void a_small_machine_keeps_the_least_reserve(void **state) {
    (void)state;
    kin_budget_memory m = machine();
    m.total = 100 * MB;
    assert_int_equal(kin_budget_room(&m), (1000 - 150) * MB - KIN_BUDGET_RESERVE_LEAST);
}

static void the_kernel_needs_its_part_of_what_is_still_to_come(void **state) {
    (void)state;
    kin_budget_memory m = machine();
    m.resident = 360 * MB;
    assert_int_equal(kin_budget_room(&m), 800 * MB - 640 * MB / KIN_BUDGET_KERNEL_SHARE);
    m.resident = 2000 * MB; // mapped files may exceed what is available plus our own memory
    assert_int_equal(kin_budget_room(&m), 800 * MB);
}

static void at_the_start_the_kernel_has_nothing_yet(void **state) {
    (void)state;
    kin_budget_memory m = machine();
    m.resident = 360 * MB;
    assert_int_equal(kin_budget_start(&m), 950 * MB - 640 * MB / KIN_BUDGET_KERNEL_SHARE - KIN_BUDGET_KERNEL_START);
    m.cap = 400 * MB;
    assert_int_equal(kin_budget_start(&m), 400 * MB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(less_room_takes_effect_at_once),
        cmocka_unit_test(more_room_must_last),
        cmocka_unit_test(growth_takes_only_what_was_there_all_the_time),
        cmocka_unit_test(a_dip_starts_the_wait_again),
        cmocka_unit_test(small_gains_are_left),
        cmocka_unit_test(the_last_bit_of_a_complete_set_is_taken),
        cmocka_unit_test(noise_around_the_budget_only_lowers_it_once),
        cmocka_unit_test(what_was_planned_for_the_rest_is_kept_free),
        cmocka_unit_test(a_rest_larger_than_planned_takes_from_the_weights),
        cmocka_unit_test(weights_in_memory_of_our_own_are_not_the_rest),
        cmocka_unit_test(the_cap_is_on_everything),
        cmocka_unit_test(no_room_is_none),
        cmocka_unit_test(a_small_machine_keeps_the_least_reserve),
        cmocka_unit_test(the_kernel_needs_its_part_of_what_is_still_to_come),
        cmocka_unit_test(at_the_start_the_kernel_has_nothing_yet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
