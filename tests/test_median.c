// The median (base/median.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/median.h"

static void of_an_odd_number_it_is_the_middle_one(void **state) {
    (void)state;
    double one[] = {7}, five[] = {9, -1, 3, 100, 2};
    assert_true(kin_median(one, 1) == 7);
    assert_true(kin_median(five, 5) == 3);
}

static void of_an_even_number_it_is_the_mean_of_two(void **state) {
    (void)state;
    double two[] = {5, 2}, four[] = {9, 1, 3, 4};
    assert_true(kin_median(two, 2) == 3.5);
    assert_true(kin_median(four, 4) == 3.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_an_odd_number_it_is_the_middle_one),
        cmocka_unit_test(of_an_even_number_it_is_the_mean_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
