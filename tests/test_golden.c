// Golden models on the CPU: every configuration stays within the bounds of testkit/golden.h.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "testkit/golden.h"
#include "tests/place.h"

#define GOLDEN_DIR KIN_SOURCE_DIR "/../shared/golden"
enum { EXIT_SKIP = 77 };

static kin_golden models[KIN_GOLDEN_MAX_MODELS];
static int n_models;

static void check_all(const kin_runner_options *options) {
    for (int i = 0; i < n_models; i++) {
        kin_golden_result r;
        kin_err err;
        if (kin_golden_check(GOLDEN_DIR, &models[i], options, &r, &err) != 0) fail_msg("%s", err.text);
        print_message("             %-20s errors %.2e %.2e (llama.cpp %.2e %.2e), %2d ids generated\n", models[i].name,
                      r.error_median, r.error_max, models[i].error_median, models[i].error_max, r.n_generated);
    }
}
#define check_all(...) FROM_TEST(check_all(__VA_ARGS__))

static void repacked_weights_are_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    check_all(&o);
}

static void weights_as_in_the_file_are_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    o.device.repack = false;
    check_all(&o);
}

static void plain_attention_is_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    o.flash = false;
    check_all(&o);
}

static void a_prompt_in_small_batches_is_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    o.n_batch = 8;
    check_all(&o);
}

static void a_prompt_token_by_token_is_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    o.n_batch = 1;
    check_all(&o);
}

// With F16 weights, the cache's rounding causes nearly all of the error.
static void a_cache_of_q8_0_is_as_exact_as_ggml_s(void **state) {
    (void)state;
    int n_checked = 0;
    for (int i = 0; i < n_models; i++) {
        if (!strstr(models[i].name, ".f16")) continue;
        kin_runner_options o = kin_runner_options_defaults();
        kin_golden golden = models[i];
        kin_golden_result kin, ggml;
        kin_err err;
        golden.error_median = golden.error_max = 1; // llama.cpp's figures are for an F16 cache
        o.kv_type = GGML_TYPE_Q8_0;
        if (kin_golden_check(GOLDEN_DIR, &golden, &o, &kin, &err) != 0) fail_msg("%s", err.text);
        o.device.ggml_kernels = true;
        if (kin_golden_check(GOLDEN_DIR, &golden, &o, &ggml, &err) != 0) fail_msg("%s", err.text);
        print_message("             %-20s errors %.2e %.2e (ggml %.2e %.2e)\n", golden.name, kin.error_median, kin.error_max,
                      ggml.error_median, ggml.error_max);
        assert_true(kin.error_median > models[i].error_median); // larger than with an F16 cache: the other type was really used
        assert_true(kin.error_median <= ggml.error_median);
        n_checked++;
    }
    assert_true(n_checked > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repacked_weights_are_as_exact_as_llama_cpp),
        cmocka_unit_test(weights_as_in_the_file_are_as_exact_as_llama_cpp),
        cmocka_unit_test(plain_attention_is_as_exact_as_llama_cpp),
        cmocka_unit_test(a_prompt_in_small_batches_is_as_exact_as_llama_cpp),
        cmocka_unit_test(a_prompt_token_by_token_is_as_exact_as_llama_cpp),
        cmocka_unit_test(a_cache_of_q8_0_is_as_exact_as_ggml_s),
    };
    kin_err err;
    n_models = kin_golden_load(GOLDEN_DIR, models, &err);
    if (n_models == 0) {
        printf("test_golden: skipped: there is no %s\n", GOLDEN_DIR);
        return EXIT_SKIP;
    }
    if (n_models < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
