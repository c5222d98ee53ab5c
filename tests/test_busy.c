// Busy times (engine/busy.h): overlapping work as a bounded list of intervals.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/busy.h"

static void overlapping_work_is_one_interval(void **state) {
    (void)state;
    kin_busy b = {0};
    kin_interval got[4];
    kin_busy_begin(&b, 10);
    kin_busy_begin(&b, 12);
    kin_busy_end(&b, 15);
    kin_busy_end(&b, 20);
    kin_busy_begin(&b, 30);
    kin_busy_end(&b, 31);
    assert_int_equal(kin_busy_ns(&b, 100), 11);
    assert_int_equal(kin_busy_pop(&b, 100, got, 4), 2);
    assert_true(got[0].begin == 10 && got[0].end == 20 && got[1].begin == 30 && got[1].end == 31);
    assert_int_equal(kin_busy_pop(&b, 100, got, 4), 0);
    assert_int_equal(kin_busy_ns(&b, 100), 11);
}

static void what_is_under_way_is_taken_in_pieces(void **state) {
    (void)state;
    kin_busy b = {0};
    kin_interval got[4];
    kin_busy_begin(&b, 10);
    assert_int_equal(kin_busy_ns(&b, 15), 5);
    assert_int_equal(kin_busy_pop(&b, 16, got, 4), 1);
    assert_true(got[0].begin == 10 && got[0].end == 16);
    assert_int_equal(kin_busy_pop(&b, 16, got, 4), 0);
    kin_busy_end(&b, 20);
    assert_int_equal(kin_busy_pop(&b, 30, got, 4), 1);
    assert_true(got[0].begin == 16 && got[0].end == 20);
    assert_int_equal(kin_busy_ns(&b, 30), 10);
}

static void the_last_intervals_are_kept_and_the_time_of_all(void **state) {
    (void)state;
    static kin_busy b;
    static kin_interval got[KIN_BUSY_KEPT + 1];
    for (kin_time t = 0; t < 2 * KIN_BUSY_KEPT; t++) {
        kin_busy_begin(&b, 10 * t);
        kin_busy_end(&b, 10 * t + 3);
    }
    assert_int_equal(kin_busy_pop(&b, 1 << 20, got, 8), 8);
    assert_int_equal(got[0].begin, 10 * KIN_BUSY_KEPT);
    assert_int_equal(kin_busy_pop(&b, 1 << 20, got, KIN_BUSY_KEPT + 1), KIN_BUSY_KEPT - 8);
    assert_int_equal(got[KIN_BUSY_KEPT - 9].end, 10 * (2 * KIN_BUSY_KEPT - 1) + 3);
    assert_int_equal(kin_busy_ns(&b, 1 << 20), 3 * 2 * KIN_BUSY_KEPT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlapping_work_is_one_interval),
        cmocka_unit_test(what_is_under_way_is_taken_in_pieces),
        cmocka_unit_test(the_last_intervals_are_kept_and_the_time_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
