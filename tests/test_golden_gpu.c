// Golden models on a GPU, with all and with half of their layers there, or all but the experts, within the same bounds as on the
// CPU.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "testkit/golden.h"
#include "tests/place.h"

#define GOLDEN_DIR KIN_SOURCE_DIR "/../shared/golden"
#define FAMILIES_DIR KIN_SOURCE_DIR "/../shared/golden-families"
#define OWN_DIR KIN_SOURCE_DIR "/tests/golden"
enum { EXIT_SKIP = 77 };

static kin_golden models[KIN_GOLDEN_MAX_MODELS];
static int n_models;

// Returns false if the model is refused, because kin's kernels alone can compute it.
static bool check_one(const char *dir, const kin_golden *model, const kin_runner_options *options) {
    kin_golden_result r;
    kin_err err;
    if (kin_golden_check(dir, model, options, &r, &err) != 0) {
        if (!strstr(err.text, "needs kin's CPU kernels for")) fail_msg("%s", err.text);
        return false;
    }
    print_message("             %-20s errors %.2e %.2e (llama.cpp %.2e %.2e), %2d ids generated\n", model->name, r.error_median,
                  r.error_max, model->error_median, model->error_max, r.n_generated);
    return true;
}
#define check_one(...) FROM_TEST(check_one(__VA_ARGS__))

static void all_layers_on_the_gpu_are_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    o.gpu_share = 1;
    for (int i = 0; i < n_models; i++) assert_true(check_one(GOLDEN_DIR, &models[i], &o));
}

static void check_families(const char *dir, int n_least) {
    static kin_golden families[KIN_GOLDEN_MAX_MODELS];
    kin_runner_options o = kin_runner_options_defaults();
    kin_err err;
    int n_on_gpu = 0;
    const int n = kin_golden_load(dir, families, &err);
    o.gpu_share = 1;
    for (int i = 0; i < n; i++) n_on_gpu += check_one(dir, &families[i], &o);
    assert_true(n <= 0 || n_on_gpu >= n_least); // not there, or most are computed
}
#define check_families(...) FROM_TEST(check_families(__VA_ARGS__))

static void families_on_the_gpu_are_as_exact_as_llama_cpp_or_refused(void **state) {
    (void)state;
    check_families(OWN_DIR, 12);
    check_families(FAMILIES_DIR, 18);
}

// A software GPU is slow, so only one dense model and one with experts are split.
static void half_of_the_layers_on_the_gpu_are_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    o.gpu_share = 0.5;
    int n_checked = 0;
    for (int i = 0; i < n_models; i++) {
        if (strcmp(models[i].name, "llama.q4_k_m") != 0 && strcmp(models[i].name, "mixtral.q4_k_m") != 0) continue;
        assert_true(check_one(GOLDEN_DIR, &models[i], &o));
        n_checked++;
    }
    assert_true(n_checked > 0);
}

// Golden models with experts whose first layers, or all, have only their attention on the GPU.
static int check_divided(const char *dir, const kin_golden *of, int n, double moe_share) {
    kin_runner_options o = kin_runner_options_defaults();
    int n_checked = 0;
    o.gpu_share = 1;
    o.moe_share = moe_share;
    for (int i = 0; i < n; i++) {
        char path[1024];
        kin_model m;
        kin_err err;
        snprintf(path, sizeof path, "%s/%s.gguf", dir, of[i].name);
        if (kin_model_open(&m, path, &err) != 0) fail_msg("%s", err.text);
        const bool has_experts = m.hp.n_expert > 0;
        kin_model_close(&m);
        if (has_experts) n_checked += check_one(dir, &of[i], &o);
    }
    return n_checked;
}
#define check_divided(...) FROM_TEST(check_divided(__VA_ARGS__))

static void layers_with_their_experts_on_the_cpu_are_as_exact_as_llama_cpp(void **state) {
    (void)state;
    static kin_golden families[KIN_GOLDEN_MAX_MODELS];
    kin_err err;
    const int n = kin_golden_load(FAMILIES_DIR, families, &err);
    assert_true(check_divided(GOLDEN_DIR, models, n_models, 1) > 0);
    assert_true(check_divided(GOLDEN_DIR, models, n_models, 0.5) > 0);
    assert_true(n <= 0 || check_divided(FAMILIES_DIR, families, n, 1) >= 3);
}

// Call before ggml loads its backends. ggml uses a software Vulkan device (Mesa's llvmpipe) only if it is selected by number.
// Half precision is off, because llvmpipe converts f32 to f16 by rounding toward zero: an error of 2.5e-3 on the F16 model,
// against 2e-4 with rounding to nearest. Real GPUs round to nearest; for them the setting costs only speed.
static void choose_vulkan(void) {
    setenv("GGML_VK_VISIBLE_DEVICES", "0", 0);
    setenv("GGML_VK_DISABLE_F16", "1", 0);
}

static bool has_gpu(kin_err *err) {
    kin_devices devices;
    kin_device_options o = kin_device_options_defaults();
    o.gpu = true;
    if (kin_devices_open(&devices, &o, err) != 0) return false;
    print_message("             GPU: %s\n", ggml_backend_dev_description(devices.gpu.dev));
    kin_devices_close(&devices);
    return true;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_layers_on_the_gpu_are_as_exact_as_llama_cpp),
        cmocka_unit_test(families_on_the_gpu_are_as_exact_as_llama_cpp_or_refused),
        cmocka_unit_test(half_of_the_layers_on_the_gpu_are_as_exact_as_llama_cpp),
        cmocka_unit_test(layers_with_their_experts_on_the_cpu_are_as_exact_as_llama_cpp),
    };
    kin_err err;
    choose_vulkan();
    n_models = kin_golden_load(GOLDEN_DIR, models, &err);
    if (n_models == 0) {
        printf("test_golden_gpu: skipped: there is no %s\n", GOLDEN_DIR);
        return EXIT_SKIP;
    }
    if (n_models < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (!has_gpu(&err)) {
        printf("test_golden_gpu: skipped: %s\n", err.text);
        return EXIT_SKIP;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
