// The layout of windows: every layer is assigned once, in order and in proportion.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "pure/plan/plan.h"
#include "pure/plan/rounds.h"

static int lay_out(const kin_round_share *shares, int n, int n_layer, kin_member_windows *out) {
    kin_err err;
    int k = kin_rounds_lay_out(shares, n, n_layer, out, &err);
    if (k < 0) fail_msg("%s", err.text);
    return k;
}

static void expect_window(const kin_member_windows *m, int i, int round, int begin, int end, int gpu) {
    assert_true(i < m->windows.n);
    assert_int_equal(m->rounds[i], round);
    assert_int_equal(m->windows.at[i].layer_begin, begin);
    assert_int_equal(m->windows.at[i].layer_end, end);
    assert_int_equal(m->windows.at[i].n_gpu_layers, gpu);
}

static void equal_windows_alternate(void **state) {
    (void)state;
    static kin_member_windows out[3];
    const kin_round_share shares[] = {{2, 0}, {2, 1}, {2, 2}};
    assert_int_equal(lay_out(shares, 3, 12, out), 2);
    expect_window(&out[0], 1, 1, 6, 8, 0);
    expect_window(&out[1], 0, 0, 2, 4, 1);
    expect_window(&out[2], 1, 1, 10, 12, 2);
}

static void the_last_round_is_shared_in_proportion(void **state) {
    (void)state;
    static kin_member_windows out[3];
    const kin_round_share shares[] = {{4, 4}, {2, 0}, {1, 0}};
    assert_int_equal(lay_out(shares, 3, 10, out), 2); // the last round has 3 layers: 1.71, 0.86, 0.43
    expect_window(&out[0], 1, 1, 7, 9, 2);
    expect_window(&out[1], 1, 1, 9, 10, 0);
    assert_int_equal(out[2].windows.n, 1);
}

static void a_relay_has_no_windows(void **state) {
    (void)state;
    static kin_member_windows out[3];
    const kin_round_share shares[] = {{3, 0}, {0, 0}, {3, 0}};
    assert_int_equal(lay_out(shares, 3, 6, out), 1);
    assert_int_equal(out[1].windows.n, 0);
}

static void a_spread_is_what_the_planner_predicts(void **state) {
    (void)state;
    static kin_member_windows out[3];
    // The head has 3 layers, device 1 has 5 (3 on its GPU), device 2 has 2; the order in the ring is 1, 2, head.
    const kin_round_share shares[] = {{5, 3}, {2, 0}, {3, 0}};
    kin_plan plan = {
        .n_rounds = 2, .n_stops = 3, .stops = {{0, false}, {1, false}, {2, false}}, .shares = {{3, 0}, {5, 3}, {2, 0}}};
    kin_err err;
    assert_int_equal(kin_rounds_spread(shares, 3, 2, 10, out, &err), 0);
    for (int member = 0; member < 3; member++) {
        static kin_windows want;
        kin_plan_windows(&plan, (member + 1) % 3, &want);
        assert_int_equal(out[member].windows.n, want.n);
        for (int i = 0; i < want.n; i++)
            expect_window(&out[member], i, i, want.at[i].layer_begin, want.at[i].layer_end, want.at[i].n_gpu_layers);
    }
}

static void spreads_that_cannot_be_are_refused(void **state) {
    (void)state;
    static kin_member_windows out[2];
    kin_err err;
    assert_int_equal(kin_rounds_spread((kin_round_share[]){{5, 0}, {4, 0}}, 2, 1, 10, out, &err), KIN_FAIL);
    assert_string_equal(err.text, "9 layers of 10");
    assert_int_equal(kin_rounds_spread((kin_round_share[]){{9, 0}, {1, 0}}, 2, 2, 10, out, &err), KIN_FAIL);
    assert_string_equal(err.text, "1 layers for 2 rounds");
    assert_int_equal(kin_rounds_spread((kin_round_share[]){{9, 0}, {1, 0}}, 2, 0, 10, out, &err), KIN_FAIL);
    assert_string_equal(err.text, "0 rounds per token");
    assert_int_equal(kin_rounds_spread((kin_round_share[]){{9, 10}, {1, 0}}, 2, 1, 10, out, &err), KIN_FAIL);
}

static void any_shares_cover_all_layers_once_in_order(void **state) {
    (void)state;
    static kin_member_windows out[8];
    kin_rng rng;
    kin_rng_seed(&rng, 7);
    for (int trial = 0; trial < 2000; trial++) {
        kin_round_share shares[8];
        int n = 1 + (int)(kin_rng_u64(&rng) % 8), n_layer = 1 + (int)(kin_rng_u64(&rng) % 96), sum = 0;
        for (int i = 0; i < n; i++) {
            int w = (int)(kin_rng_u64(&rng) % 9);
            shares[i].n_layers = w > n_layer ? n_layer : w;
            shares[i].n_gpu_layers = shares[i].n_layers ? (int)(kin_rng_u64(&rng) % (uint64_t)(shares[i].n_layers + 1)) : 0;
            sum += shares[i].n_layers;
        }
        if (sum == 0) continue;
        int k = lay_out(shares, n, n_layer, out), at = 0, next[8] = {0};
        assert_int_equal(k, (n_layer + sum - 1) / sum);
        for (int round = 0; round < k; round++) {
            for (int i = 0; i < n; i++) {
                if (next[i] >= out[i].windows.n || out[i].rounds[next[i]] != round) continue;
                assert_int_equal(out[i].windows.at[next[i]].layer_begin, at);
                at = out[i].windows.at[next[i]++].layer_end;
            }
        }
        assert_int_equal(at, n_layer);
        for (int i = 0; i < n; i++) assert_true(kin_windows_valid(&out[i].windows, n_layer));
    }
}

static void impossible_shares_are_refused(void **state) {
    (void)state;
    static kin_member_windows out[2];
    kin_err err;
    const kin_round_share none[] = {{0, 0}, {0, 0}}, wide[] = {{9, 0}, {0, 0}}, gpu[] = {{1, 2}, {1, 0}},
                          many[] = {{1, 0}, {0, 0}};
    assert_int_equal(kin_rounds_lay_out(none, 2, 8, out, &err), KIN_FAIL);
    assert_string_equal(err.text, "no device has any layers");
    assert_int_equal(kin_rounds_lay_out(wide, 2, 8, out, &err), KIN_FAIL);
    assert_string_equal(err.text, "a window of 9 layers, the model has 8");
    assert_int_equal(kin_rounds_lay_out(gpu, 2, 8, out, &err), KIN_FAIL);
    assert_string_equal(err.text, "2 GPU layers in a window of 1");
    assert_int_equal(kin_rounds_lay_out(many, 2, 1000, out, &err), KIN_FAIL);
    assert_string_equal(err.text, "1000 rounds per token: at most 256 are possible");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_windows_alternate),
        cmocka_unit_test(the_last_round_is_shared_in_proportion),
        cmocka_unit_test(a_relay_has_no_windows),
        cmocka_unit_test(a_spread_is_what_the_planner_predicts),
        cmocka_unit_test(spreads_that_cannot_be_are_refused),
        cmocka_unit_test(any_shares_cover_all_layers_once_in_order),
        cmocka_unit_test(impossible_shares_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
