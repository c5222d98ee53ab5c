// The limit on losses of a ring (cluster/losses.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster/losses.h"

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

static const char gone[] = "device 'anna' (stage 1 of 2) is gone (no answer for 1.5 s)";

// A cable is unplugged every three seconds.
static void the_same_again_within_seconds_is_not_said_again(void **state) {
    (void)state;
    const kin_time second = 1000000000, begin = 5 * second;
    kin_losses l = {0};
    assert_true(kin_losses_is_news(&l, gone, begin));
    for (kin_time s = 3; s < KIN_LOSSES_QUIET_S; s += 3) assert_false(kin_losses_is_news(&l, gone, begin + s * second));
    assert_false(kin_losses_is_news(&l, "device 'anna' (stage 1 of 2) is gone (the link broke)", begin + second));
    assert_true(kin_losses_is_news(&l, gone, begin + KIN_LOSSES_QUIET_S * second));
}

static void the_loss_of_another_device_is_said_at_once(void **state) {
    (void)state;
    kin_losses l = {0};
    assert_true(kin_losses_is_news(&l, gone, 1));
    assert_true(kin_losses_is_news(&l, "device 'ben' (stage 2 of 2) is gone (no answer for 1.5 s)", 2));
    assert_true(kin_losses_is_news(&l, "device 'anna' (stage 1 of 1) has left", 3));
}

// First ben was killed, then anna froze: both break the link between them.
static void a_link_that_broke_for_another_reason_is_said_at_once(void **state) {
    (void)state;
    const kin_time second = 1000000000;
    const char reset[] = "the link from device 'anna' (stage 1 of 3) to device 'ben' (stage 2 of 3) broke: connection reset";
    const char silent[] = "the link from device 'anna' (stage 1 of 3) to device 'ben' (stage 2 of 3) broke: no answer for 1.5 s";
    kin_losses l = {0};
    assert_true(kin_losses_is_news(&l, reset, second));
    assert_false(kin_losses_is_news(&l, reset, 4 * second));
    assert_true(kin_losses_is_news(&l, silent, 8 * second));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_in_a_row_are_borne),
        cmocka_unit_test(texts_after_those_that_ended_may_be_lost_as_often),
        cmocka_unit_test(with_progress_in_between_there_is_no_limit),
        cmocka_unit_test(the_same_again_within_seconds_is_not_said_again),
        cmocka_unit_test(the_loss_of_another_device_is_said_at_once),
        cmocka_unit_test(a_link_that_broke_for_another_reason_is_said_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
