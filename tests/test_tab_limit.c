// The time limit of a tab for a step (serve/tabs/tab_limit.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/tabs/tab_limit.h"

static const uint64_t MB = 1000000;

// Returns a tab with 10 GB/s and 50 GFLOP/s for every type of weights.
static kin_device_facts a_tab(kin_os os) {
    kin_device_facts f = {.os = os};
    for (int q = 0; q < KIN_N_QUANT; q++) {
        f.cpu.token_bytes_s[q] = 1e10;
        f.cpu.prompt_flop_s[q] = 5e10;
    }
    return f;
}

static void a_token_of_a_small_window_has_the_least(void **state) {
    (void)state;
    kin_device_facts cpu = a_tab(KIN_OS_BROWSER), gpu = a_tab(KIN_OS_BROWSER_GPU);
    assert_in_range(kin_tab_step_limit_ms(&cpu, MB, 1), KIN_TAB_LEAST_MS, KIN_TAB_LEAST_MS + 100);
    assert_in_range(kin_tab_step_limit_ms(&gpu, MB, 1), KIN_TAB_LEAST_GPU_MS, KIN_TAB_LEAST_GPU_MS + 100);
}

// 500 MB in 50 ms; 512 rows of a billion weights in 20.5 s.
static void a_piece_of_a_prompt_has_many_times_its_prediction(void **state) {
    (void)state;
    kin_device_facts cpu = a_tab(KIN_OS_BROWSER);
    assert_int_equal(kin_tab_step_limit_ms(&cpu, 500 * MB, 512), KIN_TAB_LEAST_MS + 30 * (50 + 20480));
    cpu.cpu.prompt_flop_s[KIN_QUANT_Q6_K] /= 2; // the slowest type counts
    assert_int_equal(kin_tab_step_limit_ms(&cpu, 500 * MB, 512), KIN_TAB_LEAST_MS + 30 * (50 + 40960));
}

static void no_figure_of_a_tab_gives_it_more_than_the_most(void **state) {
    (void)state;
    kin_device_facts cpu = a_tab(KIN_OS_BROWSER);
    cpu.cpu.token_bytes_s[KIN_QUANT_F32] = cpu.cpu.prompt_flop_s[KIN_QUANT_F32] = 1e6; // the lowest accepted rate
    assert_int_equal(kin_tab_step_limit_ms(&cpu, 4000 * MB, 4096), KIN_TAB_MOST_MS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_of_a_small_window_has_the_least),
        cmocka_unit_test(a_piece_of_a_prompt_has_many_times_its_prediction),
        cmocka_unit_test(no_figure_of_a_tab_gives_it_more_than_the_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
