// The layout of windows (pure/plan/plan.h): every layer is assigned once, in order and in proportion.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "pure/plan/plan.h"
#include "tests/place.h"

// Makes a plan with these windows, in the order in which they compute: the head comes last.
static kin_plan plan_of(const kin_layer_share *windows, int n) {
    kin_plan plan = {.n_stops = n};
    for (int i = 0; i < n; i++) {
        int device = kin_plan_turn(&plan, i);
        plan.stops[device].device = device;
        plan.windows[device] = windows[i];
    }
    return plan;
}

// Lays them out into out // [n], in the same order. Returns the number of rounds.
static int lay_out(const kin_layer_share *windows, int n, int n_layer, kin_windows *out) {
    kin_plan plan = plan_of(windows, n);
    kin_err err;
    if (kin_plan_fill_rounds(&plan, n_layer, &err) != 0) fail_msg("%s", err.text);
    for (int i = 0; i < n; i++) {
        kin_plan_windows(&plan, kin_plan_turn(&plan, i), &out[i]);
        assert_int_equal(kin_windows_n_layers(&out[i]), plan.shares[kin_plan_turn(&plan, i)].n_layer);
        assert_int_equal(kin_windows_n_gpu_layers(&out[i]), plan.shares[kin_plan_turn(&plan, i)].n_layer_gpu);
        assert_true(out[i].n >= plan.n_rounds - 1 || out[i].n == 0); // window k is of round k
    }
    return plan.n_rounds;
}
#define lay_out(...) FROM_TEST(lay_out(__VA_ARGS__))

static void expect_window(const kin_windows *m, int i, int begin, int end, int gpu) {
    assert_true(i < m->n);
    assert_int_equal(m->at[i].layer_begin, begin);
    assert_int_equal(m->at[i].layer_end, end);
    assert_int_equal(m->at[i].n_gpu_layers, gpu);
}
#define expect_window(...) FROM_TEST(expect_window(__VA_ARGS__))

static void equal_windows_alternate(void **state) {
    (void)state;
    static kin_windows out[3];
    const kin_layer_share shares[] = {{2, 0, 0}, {2, 1, 0}, {2, 2, 0}};
    assert_int_equal(lay_out(shares, 3, 12, out), 2);
    expect_window(&out[0], 1, 6, 8, 0);
    expect_window(&out[1], 0, 2, 4, 1);
    expect_window(&out[2], 1, 10, 12, 2);
}

static void the_last_round_is_shared_in_proportion(void **state) {
    (void)state;
    static kin_windows out[3];
    const kin_layer_share shares[] = {{4, 4, 0}, {2, 0, 0}, {1, 0, 0}};
    assert_int_equal(lay_out(shares, 3, 10, out), 2); // the last round has 3 layers: 1.71, 0.86, 0.43
    expect_window(&out[0], 1, 7, 9, 2);
    expect_window(&out[1], 1, 9, 10, 0);
    assert_int_equal(out[2].n, 1);
}

static void layers_with_experts_on_the_cpu_come_first_on_the_gpu(void **state) {
    (void)state;
    static kin_windows out[2];
    const kin_layer_share shares[] = {{4, 3, 2}, {1, 0, 0}};
    assert_int_equal(lay_out(shares, 2, 7, out), 2); // the last round has 2 layers, of which the head gets one or two
    assert_int_equal(out[0].at[0].n_cpu_moe, 2);
    assert_int_equal(kin_window_gpu_begin(&out[0].at[0]), out[0].at[0].layer_begin + 1);
    assert_int_equal(kin_window_gpu_whole_begin(&out[0].at[0]), out[0].at[0].layer_begin + 3);
    assert_true(out[0].at[1].n_cpu_moe <= out[0].at[1].n_gpu_layers && kin_windows_valid(&out[0], 7));
    // Spread over rounds, no round has more of them than layers on the GPU.
    kin_plan plan = {.n_rounds = 3, .n_stops = 1, .shares = {{9, 5, 4}}};
    kin_plan_windows(&plan, 0, &out[0]);
    assert_true(kin_windows_valid(&out[0], 9));
    assert_int_equal(kin_windows_n_cpu_moe(&out[0]), 4);
    out[0].at[0].n_cpu_moe = out[0].at[0].n_gpu_layers + 1;
    assert_false(kin_windows_valid(&out[0], 9));
}

static void a_relay_has_no_windows(void **state) {
    (void)state;
    static kin_windows out[3];
    const kin_layer_share shares[] = {{3, 0, 0}, {0, 0, 0}, {3, 0, 0}};
    assert_int_equal(lay_out(shares, 3, 6, out), 1);
    assert_int_equal(out[1].n, 0);
}

static void a_share_without_windows_is_spread_evenly(void **state) {
    (void)state;
    // The head has 3 layers, device 1 has 5 (3 on its GPU), device 2 has 2; the order in the ring is 1, 2, head.
    kin_plan plan = {
        .n_rounds = 2, .n_stops = 3, .stops = {{0, false}, {1, false}, {2, false}}, .shares = {{3, 0, 0}, {5, 3, 0}, {2, 0, 0}}};
    static const int want[][2][3] = {{{4, 6, 0}, {9, 10, 0}}, {{0, 3, 2}, {6, 8, 1}}, {{3, 4, 0}, {8, 9, 0}}};
    for (int device = 0; device < 3; device++) {
        static kin_windows out;
        kin_plan_windows(&plan, device, &out);
        assert_int_equal(out.n, 2);
        for (int i = 0; i < 2; i++) expect_window(&out, i, want[device][i][0], want[device][i][1], want[device][i][2]);
    }
}

static void a_renumbered_plan_gives_the_same_work_to_the_same_devices(void **state) {
    (void)state;
    kin_plan plan = plan_of((kin_layer_share[]){{3, 1, 0}, {0, 0, 0}, {2, 0, 0}}, 3), there, back;
    kin_err err;
    assert_int_equal(kin_plan_fill_rounds(&plan, 9, &err), 0);
    plan.memory[1] = 7;
    plan.groups = (kin_grouping){.n = 1, .groups = {{.n = 2, .devices = {3, 1}, .weights = {1, 2}}}};
    assert_true(kin_plan_renumber(&plan, (int[]){0, 4, 1, 2, -1}, 5, &there)); // number 4 is not in the ring
    assert_int_equal(there.stops[1].device, 4);
    assert_int_equal(there.shares[4].n_layer, plan.shares[1].n_layer);
    assert_true(there.memory[4] == 7 && there.groups.groups[0].devices[0] == 2 && kin_plan_has(&there, 2));
    assert_false(kin_plan_is_same(&plan, &there));
    assert_true(kin_plan_renumber(&there, (int[]){0, 2, 3, -1, 1}, 5, &back));
    assert_true(kin_plan_is_same(&plan, &back));
    assert_false(kin_plan_renumber(&plan, (int[]){0, 1, 2, -1}, 4, &there)); // a member of the group is gone
    assert_false(kin_plan_renumber(&plan, (int[]){0, 1, -1, 2}, 4, &there)); // a relay is gone
    back.groups.groups[0].weights[1] = 1;
    assert_false(kin_plan_is_same(&plan, &back));
}

static void any_shares_cover_all_layers_once_in_order(void **state) {
    (void)state;
    static kin_windows out[8];
    kin_rng rng;
    kin_rng_seed(&rng, 7);
    for (int trial = 0; trial < 2000; trial++) {
        kin_layer_share shares[8];
        int n = 1 + (int)(kin_rng_u64(&rng) % 8), n_layer = 1 + (int)(kin_rng_u64(&rng) % 96), sum = 0;
        for (int i = 0; i < n; i++) {
            int w = (int)(kin_rng_u64(&rng) % 9);
            shares[i].n_layer = w > n_layer ? n_layer : w;
            shares[i].n_layer_gpu = shares[i].n_layer ? (int)(kin_rng_u64(&rng) % (uint64_t)(shares[i].n_layer + 1)) : 0;
            shares[i].n_cpu_moe = (int)(kin_rng_u64(&rng) % (uint64_t)(shares[i].n_layer_gpu + 1));
            sum += shares[i].n_layer;
        }
        if (sum == 0) continue;
        int k = lay_out(shares, n, n_layer, out), at = 0;
        assert_int_equal(k, (n_layer + sum - 1) / sum);
        for (int round = 0; round < k; round++) {
            for (int i = 0; i < n; i++) {
                if (round >= out[i].n) continue;
                assert_int_equal(out[i].at[round].layer_begin, at);
                at = out[i].at[round].layer_end;
            }
        }
        assert_int_equal(at, n_layer);
        for (int i = 0; i < n; i++) assert_true(kin_windows_valid(&out[i], n_layer));
    }
}

static void impossible_shares_are_refused(void **state) {
    (void)state;
    static const struct {
        kin_layer_share windows[2];
        int n_layer;
        const char *why;
    } cases[] = {
        {{{0, 0, 0}, {0, 0, 0}}, 8, "no device has any layers"},
        {{{9, 0, 0}, {0, 0, 0}}, 8, "a window of 9 layers, but the model has 8"},
        {{{1, 2, 0}, {1, 0, 0}}, 8, "2 GPU layers in a window of 1"},
        {{{2, 1, 2}, {1, 0, 0}}, 8, "the experts of 2 layers on the CPU, but only 1 layers of the window are on the GPU"},
        {{{1, 0, 0}, {0, 0, 0}}, 1000, "1000 rounds per token: at most 256 are possible"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kin_plan plan = plan_of(cases[i].windows, 2);
        kin_err err;
        assert_int_equal(kin_plan_fill_rounds(&plan, cases[i].n_layer, &err), KIN_FAIL);
        assert_string_equal(err.text, cases[i].why);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_windows_alternate),
        cmocka_unit_test(the_last_round_is_shared_in_proportion),
        cmocka_unit_test(layers_with_experts_on_the_cpu_come_first_on_the_gpu),
        cmocka_unit_test(a_relay_has_no_windows),
        cmocka_unit_test(a_share_without_windows_is_spread_evenly),
        cmocka_unit_test(a_renumbered_plan_gives_the_same_work_to_the_same_devices),
        cmocka_unit_test(any_shares_cover_all_layers_once_in_order),
        cmocka_unit_test(impossible_shares_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
