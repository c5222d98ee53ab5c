// Golden models of the families other than llama and Qwen, on the CPU: every configuration stays within the bounds of
// testkit/golden.h, with kin's kernels and with ggml's operators.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "testkit/golden.h"

#define GOLDEN_DIR KIN_SOURCE_DIR "/../shared/golden-families"
enum { EXIT_SKIP = 77 };

// The models in the folder whose families kin knows.
static const char *const known[] = {"gemma2.",  "gemma2-27b.", "gemma3.",     "gemma3-270m.", "glm4.",       "glm4moe.",
                                    "gpt-oss.", "granite.",    "granitemoe.", "minimax-m2.",  "ministral3.", "olmo2.",
                                    "olmo3.",   "phi3-mini.",  "phi4-mini.",  "qwen2moe.",    "smollm3."};
enum { N_KNOWN = sizeof known / sizeof known[0] };

static kin_golden models[KIN_GOLDEN_MAX_MODELS];
static int n_models;

static bool is_known(const kin_golden *g) {
    for (int i = 0; i < N_KNOWN; i++)
        if (strncmp(g->name, known[i], strlen(known[i])) == 0) return true;
    return false;
}

// True if only kin's kernels can compute the model.
static bool lacks_ggml(const kin_golden *g) {
    return strncmp(g->name, "ministral3.", strlen("ministral3.")) == 0;
}

// Allows `tolerance` times the usual bounds.
static void check_all(const kin_runner_options *options, double tolerance) {
    int n = 0, n_wrong = 0;
    for (int i = 0; i < n_models; i++) {
        kin_golden g = models[i];
        kin_golden_result r;
        kin_err err;
        if (!is_known(&g)) continue;
        n++;
        g.error_median *= tolerance;
        g.error_max *= tolerance;
        int rc = kin_golden_check(GOLDEN_DIR, &g, options, &r, &err);
        if (options->device.ggml_kernels && lacks_ggml(&g)) {
            assert_int_not_equal(rc, 0);
            assert_non_null(strstr(err.text, "needs kin's kernels"));
            continue;
        }
        n_wrong += rc != 0;
        if (rc != 0)
            print_message("%s\n", err.text);
        else
            print_message("             %-24s errors %.2e %.2e (llama.cpp %.2e %.2e), %2d ids generated\n", g.name,
                          r.error_median, r.error_max, g.error_median, g.error_max, r.n_generated);
    }
    assert_int_equal(n, N_KNOWN);
    assert_int_equal(n_wrong, 0);
}

static void kin_s_kernels_are_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    check_all(&o, 1);
}

static void weights_as_in_the_file_are_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    o.device.repack = false;
    check_all(&o, 1);
}

static void ggml_s_operators_are_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    o.device.ggml_kernels = true;
    check_all(&o, 1);
}

static void plain_attention_is_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    o.device.ggml_kernels = true;
    o.flash = false;
    check_all(&o, 1);
}

static void a_prompt_in_small_batches_is_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    o.n_batch = 8;
    check_all(&o, 1);
}

static void a_prompt_token_by_token_is_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    o.n_batch = 1;
    check_all(&o, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kin_s_kernels_are_as_exact_as_llama_cpp),
        cmocka_unit_test(weights_as_in_the_file_are_as_exact_as_llama_cpp),
        cmocka_unit_test(ggml_s_operators_are_as_exact_as_llama_cpp),
        cmocka_unit_test(plain_attention_is_as_exact_as_llama_cpp),
        cmocka_unit_test(a_prompt_in_small_batches_is_as_exact_as_llama_cpp),
        cmocka_unit_test(a_prompt_token_by_token_is_as_exact_as_llama_cpp),
    };
    kin_err err;
    n_models = kin_golden_load(GOLDEN_DIR, models, &err);
    if (n_models == 0) {
        printf("test_families: skipped: there is no %s\n", GOLDEN_DIR);
        return EXIT_SKIP;
    }
    if (n_models < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
