// Sets of weights (model/weights.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/weights.h"

static void a_set_has_what_was_added_beyond_the_first_32_and_64_too(void **state) {
    (void)state;
    const int members[] = {0, 1, 31, 32, 63, 64, 70, KIN_WEIGHTS_MAX - 1};
    enum { N = sizeof members / sizeof members[0] };
    kin_weight_set set = kin_weight_set_of(members, N);
    int n = 0;
    for (int w = kin_weight_set_next(&set, 0); w < KIN_WEIGHTS_MAX; w = kin_weight_set_next(&set, w + 1))
        assert_int_equal(w, members[n++]);
    assert_int_equal(n, N);
    for (int w = 0, i = 0; w < KIN_WEIGHTS_MAX; w++) {
        assert_int_equal(kin_weight_set_has(&set, w), w == members[i]);
        i += w == members[i];
    }
}

static void joined_sets_have_what_either_had(void **state) {
    (void)state;
    kin_weight_set a = KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION), b = KIN_WEIGHT_SET(KIN_WEIGHTS_DENSE, 100);
    kin_weight_set_join(&a, &b);
    for (int w = 0; w < KIN_WEIGHTS_MAX; w++) {
        const int expected[] = {KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_DENSE, 100};
        bool is = false;
        for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) is = is || w == expected[i];
        assert_int_equal(kin_weight_set_has(&a, w), is);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_has_what_was_added_beyond_the_first_32_and_64_too),
        cmocka_unit_test(joined_sets_have_what_either_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
