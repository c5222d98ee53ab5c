// Background work yields: a thread that reads ahead from the disk rests while other threads need it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sys/background.h"

static bool never(void) {
    return false;
}

static bool always(void) {
    return true;
}

static int n_asked;

static bool thrice(void) {
    return ++n_asked <= 3;
}

static kin_time rest(kin_time worked, bool (*is_needed)(void), const atomic_bool *stop) {
    kin_time now = kin_clock_now();
    kin_background_rest(now - worked, is_needed, stop);
    return kin_clock_now() - now;
}

static void work_takes_a_twentieth_while_others_need_the_disk(void **state) {
    (void)state;
    assert_true(rest(5000000, always, NULL) >= 19 * UINT64_C(5000000));
}

static void rest_ends_when_it_is_not_needed_or_work_is_to_stop(void **state) {
    (void)state;
    const kin_time an_hour = UINT64_C(3600) * 1000000000; // a test that really rested would never end
    atomic_bool stop = true, go_on = false;
    rest(an_hour, never, &go_on);
    rest(an_hour, always, &stop);
    rest(an_hour, thrice, &go_on);
    assert_int_equal(n_asked, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_takes_a_twentieth_while_others_need_the_disk),
        cmocka_unit_test(rest_ends_when_it_is_not_needed_or_work_is_to_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
