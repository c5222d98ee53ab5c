// The status of a server that is not ready yet (serve/loading.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/loading.h"

static const kin_time second = UINT64_C(1000000000);

static void the_rate_so_far_says_how_long_the_rest_takes(void **state) {
    (void)state;
    kin_loading l;
    kin_loading_init(&l);
    kin_loading_set(&l, "reading weights", 10, 5 * second);
    assert_true(l.seconds_left == -1);
    assert_int_equal(kin_loading_retry_after_s(&l), 1);
    kin_loading_set(&l, "reading weights", 30, 9 * second); // 5 percent per second
    assert_true(l.seconds_left == 14);
    assert_int_equal(kin_loading_retry_after_s(&l), 14);
    kin_loading_set(&l, "reading weights", 31, 209 * second);
    assert_int_equal(kin_loading_retry_after_s(&l), 60);
}

static void other_work_has_a_rate_of_its_own(void **state) {
    (void)state;
    kin_loading l;
    kin_loading_init(&l);
    kin_loading_set(&l, "reading weights", 0, 0);
    kin_loading_set(&l, "reading weights", 100, second);
    assert_true(l.seconds_left == 0);
    kin_loading_set(&l, "packing", 0, 2 * second);
    assert_true(l.seconds_left == -1);
    kin_loading_set(&l, "packing", 50, 12 * second);
    assert_true(l.seconds_left == 10);
    kin_loading_set(&l, "waiting for a device", -1, 13 * second);
    assert_true(l.seconds_left == -1);
}

static void what_is_not_known_is_not_said(void **state) {
    (void)state;
    kin_loading l;
    kin_loading_init(&l);
    json_t *o = kin_loading_json(&l);
    assert_string_equal(json_string_value(json_object_get(o, "what")), "loading the model");
    assert_null(json_object_get(o, "percent"));
    assert_null(json_object_get(o, "seconds_left"));
    json_decref(o);
    kin_loading_set(&l, "packing", 0, 0);
    kin_loading_set(&l, "packing", 20, 2 * second);
    o = kin_loading_json(&l);
    assert_string_equal(json_string_value(json_object_get(o, "what")), "packing");
    assert_true(json_number_value(json_object_get(o, "percent")) == 20);
    assert_int_equal(json_integer_value(json_object_get(o, "seconds_left")), 8);
    json_decref(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rate_so_far_says_how_long_the_rest_takes),
        cmocka_unit_test(other_work_has_a_rate_of_its_own),
        cmocka_unit_test(what_is_not_known_is_not_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
