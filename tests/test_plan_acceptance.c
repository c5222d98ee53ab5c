// The acceptance rule as published (pure/papers/acceptance.h), with the numbers of the thesis.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "pure/papers/acceptance.h"
#include "tests/place.h"

static kin_acceptance_options o;

static int set_up(void **state) {
    (void)state;
    o = kin_acceptance_options_published();
    return 0;
}

static void assert_near(double got, double want) {
    if (!(fabs(got - want) <= 1e-9 * fabs(want) + 1e-12)) fail_msg("%.12g, not %.12g", got, want);
}
#define assert_near(...) FROM_TEST(assert_near(__VA_ARGS__))

static void importance_is_half_after_a_minute_and_fades(void **state) {
    (void)state;
    assert_near(kin_acceptance_rho(&o, 60), 0.5);
    assert_near(kin_acceptance_rho(&o, 72), 1 - 1 / (1 + exp(-1)));
    assert_true(kin_acceptance_rho(&o, 0) > 0.99 && kin_acceptance_rho(&o, 120) < 0.01);
    for (int t = 0; t < 1000; t++) assert_true(kin_acceptance_rho(&o, t) >= kin_acceptance_rho(&o, t + 1));
    assert_near(kin_acceptance_rho(&o, 1e9), 0);
}

static void deploying_takes_a_second_and_the_missing_weights(void **state) {
    (void)state;
    assert_near(kin_acceptance_init_us(&o, 0, 0), 1e6);
    assert_near(kin_acceptance_init_us(&o, 250e6, 50e6), 6e6);
    assert_true(isinf(kin_acceptance_init_us(&o, 1, 0)));
}

static void it_counts_for_more_while_nothing_serves(void **state) {
    (void)state;
    assert_near(kin_acceptance_penalty(&o, 6e6, false, 0), pow(6e6, 0.9));
    assert_near(kin_acceptance_penalty(&o, 6e6, true, 60), pow(6e6, 0.75) / 2);
    assert_near(kin_acceptance_penalty(&o, 6e6, true, 1e9), 0);
}

static void penalties_add_up_and_their_largest_is_kept(void **state) {
    (void)state;
    kin_acceptance_cost c = {0};
    c = kin_acceptance_add(c, kin_acceptance_cost_of(100, 30));
    c = kin_acceptance_add(c, kin_acceptance_cost_of(50, 70));
    assert_near(c.exec_us, 150);
    assert_near(c.sum, 100);
    assert_near(c.max, 70);
    assert_near(kin_acceptance_total(&o, &c), 150 + 0.8 * 70 + 0.2 * 100);
    o.alpha = 1;
    assert_near(kin_acceptance_total(&o, &c), 220);
    o.alpha = 0;
    assert_near(kin_acceptance_total(&o, &c), 250);
}

static void another_plan_must_win_by_a_twentieth_and_pay_for_its_deployment(void **state) {
    (void)state;
    kin_acceptance_cost faster = kin_acceptance_cost_of(94e3, 0), hardly = kin_acceptance_cost_of(95e3, 0);
    assert_true(kin_acceptance_accepts(&o, &faster, 100e3));
    assert_false(kin_acceptance_accepts(&o, &hardly, 100e3));
    // A plan of half the time that takes 6 s to deploy is refused at first and accepted later.
    kin_acceptance_cost half = kin_acceptance_cost_of(50e3, kin_acceptance_penalty(&o, 6e6, true, 0));
    assert_false(kin_acceptance_accepts(&o, &half, 100e3));
    half = kin_acceptance_cost_of(50e3, kin_acceptance_penalty(&o, 6e6, true, 90));
    assert_true(kin_acceptance_accepts(&o, &half, 100e3));
    half = kin_acceptance_cost_of(50e3, INFINITY); // its weights cannot be fetched
    assert_false(kin_acceptance_accepts(&o, &half, 100e3));
}

static void standby_plans_use_idle_devices_then_busy_ones_at_ten_times_the_price(void **state) {
    (void)state;
    const struct {
        kin_acceptance_standby standby;
        double penalty;
    } cases[] = {
        {{.strict = true, .works = false}, 7},
        {{.strict = true, .works = true}, INFINITY},
        {{.strict = false, .works = false}, 7},
        {{.strict = false, .works = true}, 70},
        {{.strict = false, .works = true, .overlaps = true}, INFINITY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double got = kin_acceptance_standby_penalty(&o, &cases[i].standby, 7);
        assert_true(isinf(cases[i].penalty) ? isinf(got) : got == cases[i].penalty);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(importance_is_half_after_a_minute_and_fades, set_up),
        cmocka_unit_test_setup(deploying_takes_a_second_and_the_missing_weights, set_up),
        cmocka_unit_test_setup(it_counts_for_more_while_nothing_serves, set_up),
        cmocka_unit_test_setup(penalties_add_up_and_their_largest_is_kept, set_up),
        cmocka_unit_test_setup(another_plan_must_win_by_a_twentieth_and_pay_for_its_deployment, set_up),
        cmocka_unit_test_setup(standby_plans_use_idle_devices_then_busy_ones_at_ten_times_the_price, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
