// Groups in plans: what a token takes with devices that share each layer, when that is better than a ring, and what is said of
// it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pure/plan/deal.h"
#include "pure/plan/group.h"
#include "pure/plan/scheduler.h"
#include "pure/plan/timeline.h"
#include "testkit/equal_devices.h"

static double ring_s(const kin_facts *f, double *compute_s) {
    kin_plan_options o = kin_plan_options_defaults();
    kin_plan plan;
    kin_prediction p;
    kin_err err;
    if (kin_plan_playoff(f, &o, &plan, &err) != 0 || kin_timeline_predict(f, &plan, &p, &err) != 0) fail_msg("%s", err.text);
    *compute_s = p.compute_s;
    return p.tpot_s;
}

static void short_links_make_groups_and_long_ones_rings(void **state) {
    (void)state;
    static kin_facts f;
    double compute_s;
    for (int n = 2; n <= 4; n += 2) {
        kin_group_plan near, far;
        kin_equal_devices(&f, n, 1e-4);
        double ring = ring_s(&f, &compute_s);
        kin_group_best(&f, 0, &near);
        assert_int_equal(near.n, n);
        assert_true(near.tpot_s < ring * 0.75);
        kin_equal_devices(&f, n, 5e-3);
        ring = ring_s(&f, &compute_s);
        kin_group_best(&f, 0, &far);
        assert_true(far.n >= 2 && far.tpot_s > ring * 1.5);
    }
}

// The crossover: where 2 L sums cost what sharing gains.
static void the_time_is_its_parts_and_grows_with_the_round_trip(void **state) {
    (void)state;
    static kin_facts f;
    kin_group_plan a, b;
    kin_equal_devices(&f, 3, 1e-3);
    kin_group_predict(&f, 7, &a);
    assert_true(fabs(a.tpot_s - a.compute_s - a.sums_s - a.hops_s) < 1e-9);
    assert_true(fabs(a.sums_s - 64 * a.sum_s) < 1e-9);
    kin_equal_devices(&f, 3, 2e-3);
    kin_group_predict(&f, 7, &b);
    assert_true(fabs(b.sum_s - a.sum_s - 5e-4) < 1e-9);
    assert_true(fabs(b.compute_s - a.compute_s) < 1e-12);
}

static void a_slow_device_gets_less_or_is_left_out(void **state) {
    (void)state;
    static kin_facts f;
    kin_group_plan g;
    kin_equal_devices(&f, 3, 1e-4);
    for (int q = 0; q < KIN_N_QUANT; q++) {
        f.devices[1].cpu.token_bytes_s[q] = 15e9; // a third
        f.devices[2].cpu.token_bytes_s[q] = 1e9;  // a 45th
    }
    kin_group_best(&f, 0, &g);
    assert_int_equal(g.n, 2);
    assert_int_equal(g.devices[0], 1);
    assert_int_equal(g.devices[1], 0); // the head is the last
    assert_true(g.weights[1] > 2.5 * g.weights[0] && g.weights[1] < 3.5 * g.weights[0]);
    kin_group_best(&f, kin_device_bit(1) | kin_device_bit(2), &g);
    assert_int_equal(g.n, 0);
}

// In whatever order they joined: their slices lie in their caches.
static void ranks_follow_the_names(void **state) {
    (void)state;
    static kin_facts f;
    kin_group_plan g;
    static const char *const names[] = {"nuc", "den", "desk", "attic"};
    kin_equal_devices(&f, 4, 1e-4);
    for (int i = 0; i < 4; i++) snprintf(f.devices[i].name, sizeof f.devices[i].name, "%s", names[i]);
    kin_group_best(&f, 0, &g);
    assert_int_equal(g.n, 4);
    const int want[] = {3, 1, 2, 0};
    for (int rank = 0; rank < 4; rank++) assert_int_equal(g.devices[rank], want[rank]);
}

static void a_tab_is_in_no_group(void **state) {
    (void)state;
    static kin_facts f;
    kin_group_plan g;
    kin_equal_devices(&f, 3, 1e-4);
    f.devices[1].os = KIN_OS_BROWSER;
    kin_group_best(&f, 0, &g);
    assert_int_equal(g.n, 2);
    assert_int_equal(g.devices[0], 2);
    f.devices[2].os = KIN_OS_BROWSER;
    kin_group_best(&f, 0, &g);
    assert_int_equal(g.n, 0);
}

static void what_cannot_be_is_said(void **state) {
    (void)state;
    static kin_facts f;
    kin_group_plan g;
    char text[KIN_GROUP_SAY_MAX];
    double compute_s;
    kin_equal_devices(&f, 2, 1e-4);
    double ring = ring_s(&f, &compute_s);
    kin_group_best(&f, 0, &g);
    kin_group_say(&f, &g, ring, compute_s, text, sizeof text);
    assert_non_null(strstr(text, "a group is faster: 2 devices that share each layer: 2 x 32 sums of 0."));
    assert_non_null(strstr(text, "sharing the layers gains"));
    f.model.share_heads = 1;
    kin_group_best(&f, 0, &g);
    kin_group_say(&f, &g, ring, compute_s, text, sizeof text);
    assert_non_null(strstr(text, "no group: the model's layers cannot be cut"));
    kin_equal_devices(&f, 2, 1e-4);
    f.devices[1].memory_bytes = 1e9;
    kin_group_best(&f, 0, &g);
    assert_non_null(strstr(g.reason, "does not fit"));
    kin_equal_devices(&f, 3, 1e-4);
    f.links[1][2].bytes_s = 0;
    kin_group_best(&f, 0, &g);
    assert_int_equal(g.n, 2); // 1 and 2 do not reach each other
}

static void pieces_are_dealt_by_weight(void **state) {
    (void)state;
    int counts[4];
    kin_deal(8, (double[]){1, 1}, 2, counts);
    assert_true(counts[0] == 4 && counts[1] == 4);
    kin_deal(8, (double[]){3, 1, 1e-9}, 3, counts);
    assert_true(counts[0] == 5 && counts[1] == 2 && counts[2] == 1);
    kin_deal(3, (double[]){1e9, 1, 1}, 3, counts);
    assert_true(counts[0] == 1 && counts[1] == 1 && counts[2] == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_links_make_groups_and_long_ones_rings),
        cmocka_unit_test(the_time_is_its_parts_and_grows_with_the_round_trip),
        cmocka_unit_test(a_slow_device_gets_less_or_is_left_out),
        cmocka_unit_test(ranks_follow_the_names),
        cmocka_unit_test(a_tab_is_in_no_group),
        cmocka_unit_test(what_cannot_be_is_said),
        cmocka_unit_test(pieces_are_dealt_by_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
