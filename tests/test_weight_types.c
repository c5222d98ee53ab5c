// Every type of weights is computed by kin's kernels, on kin's threads: logits are those of ggml's operators within the type's
// rounding, and have the same bits for any batch, number of threads and vector unit, packed or as in the file, and for rows that
// do not fill a panel.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "testkit/head_eval.h"
#include "testkit/logits.h"
#include "testkit/model_gen.h"
#include "testkit/runner.h"
#include "tests/place.h"

enum { N_VOCAB = 300, N_IDS = 70, N_LAST = 3 }; // 300 rows: 12 after the last panel

static int32_t ids[N_IDS];
static char path[64];

typedef struct model {
    const char *arch, *mix;
    int n_ff; // 0: n_ff of most; those of experts are half as wide
} model;

static const model models[] = {
    {"llama", "q4_1", 0},    {"llama", "q5_0", 0},       {"llama", "q5_1", 0},     {"llama", "iq4_nl", 0},
    {"llama", "iq4_xs", 0},  {"llama", "iq3_s", 0},      {"llama", "iq3_xxs", 0},  {"llama", "iq2_s", 0},
    {"llama", "iq2_xs", 0},  {"llama", "iq2_xxs", 0},    {"llama", "iq1_s", 0},    {"llama", "iq1_m", 0},
    {"llama", "tq1_0", 0},   {"llama", "tq2_0", 0},      {"llama", "mxfp4", 0},    {"llama", "nvfp4", 0},
    {"llama", "q2_0", 0},    {"llama", "q1_0", 0},       {"llama", "q4_k", 0},     {"llama", "q6_k", 0},
    {"llama", "bf16", 0},    {"llama", "f16", 520},      {"llama", "f32", 515},    {"llama", "q4_k_q5_0", 0},
    {"qwen3moe", "q5_0", 0}, {"qwen3moe", "iq2_xxs", 0}, {"qwen3moe", "f16", 200}, {"qwen3moe", "q4_k_q5_0", 0},
};

static void make(const model *m) {
    kin_model_spec s = kin_model_spec_defaults();
    kin_err err;
    s.arch = m->arch;
    s.mix = m->mix;
    s.n_layer = 1;
    s.n_embd = 256;
    s.n_ff = m->n_ff ? m->n_ff : 512;
    s.n_vocab = N_VOCAB;
    if (strcmp(s.arch, "qwen3moe") == 0) {
        s.n_expert = 5;
        s.n_expert_used = 2;
        s.n_ff_exp = s.n_ff / 2;
    }
    snprintf(path, sizeof path, "/tmp/kin-test-types-XXXXXX");
    close(mkstemp(path));
    if (kin_model_gen(&s, path, &err) != 0) fail_msg("%s: %s", m->mix, err.text);
}
#define make(...) FROM_TEST(make(__VA_ARGS__))

static kin_runner_options usual(void) {
    kin_runner_options o = kin_runner_options_defaults();
    o.n_ctx = 128;
    o.n_batch = 64;
    o.device.n_threads = 2;
    return o;
}

// Computes the logits after the last N_LAST tokens. logits: f32 [N_LAST, N_VOCAB]
static void run(const kin_runner_options *o, int chunk, float *logits) {
    kin_runner r;
    kin_err err;
    const int n = N_IDS - N_LAST;
    if (kin_runner_open(&r, path, o, &err) != 0) fail_msg("%s", err.text);
    for (int at = 0; at < n; at += chunk) {
        int count = n - at < chunk ? n - at : chunk;
        if (kin_head_eval(r.head, 0, at, ids + at, count, NULL, 0, &err) != 0) fail_msg("%s", err.text);
    }
    if (kin_head_eval(r.head, 0, n, ids + n, N_LAST, logits, N_LAST, &err) != 0) fail_msg("%s", err.text);
    kin_runner_close(&r);
}
#define run(...) FROM_TEST(run(__VA_ARGS__))

static float expected[N_LAST * N_VOCAB], got[N_LAST * N_VOCAB];

static void assert_same(const model *m, const char *what) {
    if (memcmp(got, expected, sizeof got) != 0) fail_msg("%s, %s: %s changes bits", m->arch, m->mix, what);
}

static void check_bits(const model *m) {
    kin_runner_options o = usual();
    run(&o, 64, expected);
    run(&o, 1, got);
    assert_same(m, "the batch");
    o.device.n_threads = 3;
    run(&o, 16, got);
    assert_same(m, "the number of threads");
    o.device.repack = false;
    run(&o, 64, got);
    assert_same(m, "using weights as in the file");
    o = usual();
    for (int k = 0; kin_kernels_at(k); k++) {
        if (!kin_kernels_can_run(kin_kernels_at(k))) continue;
        setenv("KIN_CPU", kin_kernels_at(k)->name, 1);
        run(&o, 64, got);
        unsetenv("KIN_CPU");
        assert_same(m, kin_kernels_at(k)->name);
    }
}
#define check_bits(...) FROM_TEST(check_bits(__VA_ARGS__))

static void every_type_gives_the_same_bits_in_any_batch_and_on_any_vector_unit(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        make(&models[i]);
        check_bits(&models[i]);
        unlink(path);
    }
}

// Both round activations to 8 bits, in blocks of their own.
static void every_type_gives_the_logits_of_ggml(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        make(&models[i]);
        kin_runner_options o = usual();
        run(&o, 64, got);
        o.device.ggml_kernels = true;
        run(&o, 64, expected);
        unlink(path);
        for (int k = 0; k < N_LAST; k++) {
            const double error = kin_logits_error(got + k * N_VOCAB, expected + k * N_VOCAB, N_VOCAB);
            if (!(error < 0.05)) fail_msg("%s, %s: error %g", models[i].arch, models[i].mix, error);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_gives_the_same_bits_in_any_batch_and_on_any_vector_unit),
        cmocka_unit_test(every_type_gives_the_logits_of_ggml),
    };
    for (int i = 0; i < N_IDS; i++) ids[i] = (int32_t)((i * 37 + i * i % 11) % N_VOCAB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
