// A token's logits have the same bits in any batch, with any number of threads and on any vector unit, and on every machine they
// are those of the table below. (test_streaming_model.c tests streamed weights, test_ring.c a ring.)
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
#include "testkit/bits/bits.h"
#include "testkit/head_eval.h"
#include "testkit/logits.h"
#include "testkit/model_gen.h"
#include "testkit/runner.h"
#include "tests/place.h"

enum { N_VOCAB = 300, N_IDS = 600, N_CTX = 704, N_LAST = 4 }; // N_IDS: more than one span of attention

static int32_t ids[N_IDS];

typedef struct family {
    const char *arch, *mix;
    uint64_t bits; // a hash of logits; a mismatch means that results of all models have changed, or that the generator has
} family;

// Dense layers and experts, both variants of rope, norms and biases of heads.
static const family families[] = {
    {"llama", "q4_k_m", 0xa07027d19ac475fe},    {"qwen3", "q8_0", 0x8d12bb91b7c48142}, {"qwen2", "q4_0", 0xf7a885030755c3d0},
    {"qwen3moe", "q4_k_m", 0x3385a9fa1295d0d3}, {"llama", "f16", 0x79ae285d4e96a256},  {"llama", "q5_k", 0x5dde12a094a1638f},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

static char paths[N_FAMILIES][64];

static int make_models(void **state) {
    (void)state;
    for (int i = 0; i < N_IDS; i++) ids[i] = (int32_t)((i * 37 + i * i % 11) % N_VOCAB);
    for (int i = 0; i < N_FAMILIES; i++) {
        kin_model_spec s = kin_model_spec_defaults();
        kin_err err;
        s.arch = families[i].arch;
        s.mix = families[i].mix;
        s.n_layer = 2;
        s.n_embd = 256;
        s.n_ff = 768;
        s.n_vocab = N_VOCAB;
        if (strcmp(s.arch, "qwen3moe") == 0) {
            s.n_expert = 6;
            s.n_expert_used = 3;
        }
        snprintf(paths[i], sizeof paths[i], "/tmp/kin-test-one-XXXXXX");
        close(mkstemp(paths[i]));
        if (kin_model_gen(&s, paths[i], &err) != 0) fail_msg("%s", err.text);
    }
    return 0;
}

static int remove_models(void **state) {
    (void)state;
    for (int i = 0; i < N_FAMILIES; i++) unlink(paths[i]);
    return 0;
}

static kin_runner_options usual(void) {
    kin_runner_options o = kin_runner_options_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 128;
    o.device.n_threads = 2;
    o.device.repeats_small = true;
    return o;
}

// Computes the logits after the last N_LAST tokens, feeding chunks of `chunk`. logits: f32 [N_LAST, N_VOCAB]
static void eval(kin_head *head, int32_t seq, int chunk, float *logits) {
    kin_err err;
    int n = N_IDS - N_LAST;
    for (int at = 0; at < n; at += chunk) {
        int count = n - at < chunk ? n - at : chunk;
        if (kin_head_eval(head, seq, at, ids + at, count, NULL, 0, &err) != 0) fail_msg("%s", err.text);
    }
    for (int i = 0; i < N_LAST; i += chunk) {
        int count = N_LAST - i < chunk ? N_LAST - i : chunk;
        if (kin_head_eval(head, seq, n + i, ids + n + i, count, logits + i * N_VOCAB, count, &err) != 0) fail_msg("%s", err.text);
    }
}
#define eval(...) FROM_TEST(eval(__VA_ARGS__))

static void run(const char *path, const kin_runner_options *o, int chunk, float *logits) {
    kin_runner r;
    kin_err err;
    if (kin_runner_open(&r, path, o, &err) != 0) fail_msg("%s", err.text);
    assert_non_null(r.devices.cpu.kernels);
    eval(r.head, 0, chunk, logits);
    kin_runner_close(&r);
}
#define run(...) FROM_TEST(run(__VA_ARGS__))

static float expected[N_LAST * N_VOCAB], got[N_LAST * N_VOCAB];

static void every_chunking_of_a_prompt_gives_the_same_bits(void **state) {
    (void)state;
    for (int i = 0; i < N_FAMILIES; i++) {
        kin_runner_options o = usual();
        run(paths[i], &o, N_IDS, expected);
        static const int chunks[] = {1, 3, 16, 100};
        for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
            run(paths[i], &o, chunks[k], got);
            assert_memory_equal(got, expected, sizeof got);
        }
    }
}

static void every_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    static const int numbers[] = {1, 3, 8, 64};
    for (int i = 0; i < N_FAMILIES; i++) {
        kin_runner_options o = usual();
        run(paths[i], &o, 64, expected);
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            o.device.n_threads = numbers[k];
            o.device.repeats_small = true;
            // One thread gets the most work per call, and 128 rows use the fewest panels at once.
            run(paths[i], &o, numbers[k] == 1 ? 128 : 64, got);
            assert_memory_equal(got, expected, sizeof got);
        }
    }
}

// The order of additions is the same in all back-ends, inside kernels (testkit/bits/bits.h) and between the kernels of a layer.
static void logits_have_the_bits_of_the_table(void **state) {
    (void)state;
    int n_wrong = 0;
    for (int i = 0; i < N_FAMILIES; i++) {
        kin_runner_options o = usual();
        uint64_t hash = 0;
        run(paths[i], &o, 64, got);
        for (int j = 0; j < N_LAST; j++)
            hash = kin_bits_hash_f32(got + j * N_VOCAB, N_VOCAB / KIN_PANEL_ROWS * KIN_PANEL_ROWS, hash);
        if (hash == families[i].bits) continue;
        print_message("             %s, %s: 0x%016llx\n", families[i].arch, families[i].mix, (unsigned long long)hash);
        n_wrong++;
    }
    assert_int_equal(n_wrong, 0);
}

static void every_vector_unit_gives_the_same_bits(void **state) {
    (void)state;
    for (int i = 0; i < N_FAMILIES; i++) {
        kin_runner_options o = usual();
        run(paths[i], &o, 64, expected);
        for (int k = 0; kin_kernels_at(k); k++) {
            if (!kin_kernels_can_run(kin_kernels_at(k))) continue;
            setenv("KIN_CPU", kin_kernels_at(k)->name, 1);
            run(paths[i], &o, 64, got);
            unsetenv("KIN_CPU");
            assert_memory_equal(got, expected, sizeof got);
        }
    }
}

// Two other sequences occupy cells of the KV cache.
static void other_sequences_change_no_bit(void **state) {
    (void)state;
    kin_runner_options o = usual();
    o.n_ctx = 3 * N_CTX;
    kin_runner r;
    kin_err err;
    run(paths[0], &o, 50, expected);
    if (kin_runner_open(&r, paths[0], &o, &err) != 0) fail_msg("%s", err.text);
    if (kin_head_eval(r.head, 7, 0, ids + 3, 100, NULL, 0, &err) != 0) fail_msg("%s", err.text);
    if (kin_head_eval(r.head, 9, 0, ids + 9, 70, NULL, 0, &err) != 0) fail_msg("%s", err.text);
    eval(r.head, 1, 50, got);
    kin_runner_close(&r);
    assert_memory_equal(got, expected, sizeof got);
}

// Compares the results of kin's kernels with ggml's.
static void compare_with_ggml(int n_ff_exp, int n_expert, int n_expert_used) {
    char path[] = "/tmp/kin-test-one-XXXXXX";
    kin_model_spec spec = kin_model_spec_defaults();
    kin_err err;
    spec.arch = "qwen3moe";
    spec.mix = "q4_k";
    spec.n_layer = 2;
    spec.n_embd = 256;
    spec.n_ff_exp = n_ff_exp;
    spec.n_vocab = N_VOCAB;
    spec.n_expert = n_expert;
    spec.n_expert_used = n_expert_used;
    close(mkstemp(path));
    if (kin_model_gen(&spec, path, &err) != 0) fail_msg("%s", err.text);
    kin_runner_options o = usual();
    run(path, &o, 64, got);
    o.device.ggml_kernels = true;
    kin_runner r;
    if (kin_runner_open(&r, path, &o, &err) != 0) fail_msg("%s", err.text);
    eval(r.head, 0, 64, expected);
    kin_runner_close(&r);
    unlink(path);
    for (int i = 0; i < N_LAST; i++) assert_true(kin_logits_error(got + i * N_VOCAB, expected + i * N_VOCAB, N_VOCAB) < 0.05);
}
#define compare_with_ggml(...) FROM_TEST(compare_with_ggml(__VA_ARGS__))

// Q4_K cannot have 96 columns, so `down` gets another type.
static void experts_of_several_types_are_computed_right(void **state) {
    (void)state;
    compare_with_ggml(96, 4, 2);
}

static void a_single_expert_is_computed_right(void **state) {
    (void)state;
    compare_with_ggml(256, 1, 1);
}

// A cache file packed for other kernels is not used, because its layout differs.
static void a_cache_of_other_kernels_is_not_used(void **state) {
    (void)state;
    char dir[] = "/var/tmp/kin-test-one-XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    kin_runner_options o = usual();
    o.cache_dir = dir;
    run(paths[0], &o, 64, expected);
    for (int i = 0; i < 2; i++) {
        kin_runner r;
        kin_err err;
        o.flash = i == 1;
        if (kin_runner_open(&r, paths[0], &o, &err) != 0) fail_msg("%s", err.text);
        eval(r.head, 0, 64, got);
        kin_runner_close(&r);
        assert_true(kin_logits_error(got, expected, N_VOCAB) < 0.05);
    }
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static void an_unknown_vector_unit_is_refused_with_those_that_run(void **state) {
    (void)state;
    kin_runner_options o = usual();
    kin_runner r;
    kin_err err;
    setenv("KIN_CPU", "quantum", 1);
    assert_int_equal(kin_runner_open(&r, paths[0], &o, &err), KIN_FAIL);
    unsetenv("KIN_CPU");
    assert_non_null(strstr(err.text, "quantum"));
    assert_non_null(strstr(err.text, "scalar"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chunking_of_a_prompt_gives_the_same_bits),
        cmocka_unit_test(every_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(logits_have_the_bits_of_the_table),
        cmocka_unit_test(every_vector_unit_gives_the_same_bits),
        cmocka_unit_test(other_sequences_change_no_bit),
        cmocka_unit_test(experts_of_several_types_are_computed_right),
        cmocka_unit_test(a_single_expert_is_computed_right),
        cmocka_unit_test(a_cache_of_other_kernels_is_not_used),
        cmocka_unit_test(an_unknown_vector_unit_is_refused_with_those_that_run),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
