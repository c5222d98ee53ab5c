// How often a ring may be lost (node/losses.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "node/losses.h"

static void five_in_a_row_are_borne(void **state) {
    (void)state;
    kin_losses l = {0};
    for (int i = 0; i < KIN_LOSSES_MOST; i++) assert_true(kin_losses_add(&l, 7));
    assert_false(kin_losses_add(&l, 7));
}

static void texts_after_those_that_ended_may_be_lost_as_often(void **state) {
    (void)state;
    kin_losses l = {0};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < KIN_LOSSES_MOST; i++) assert_true(kin_losses_add(&l, 0));
        assert_false(kin_losses_add(&l, 0));
    }
}

static void with_progress_in_between_there_is_no_limit(void **state) {
    (void)state;
    kin_losses l = {0};
    for (uint64_t i = 0; i < 100; i++) assert_true(kin_losses_add(&l, i / KIN_LOSSES_MOST));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_in_a_row_are_borne),
        cmocka_unit_test(texts_after_those_that_ended_may_be_lost_as_often),
        cmocka_unit_test(with_progress_in_between_there_is_no_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
