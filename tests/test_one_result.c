// A token's logits have the same bits in every company: whatever batch its neighbours came in, however many threads computed, and
// whichever vector unit did. (Streamed weights: test_streaming_model.c. A ring: test_ring.c.)
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
#include "testkit/model_gen.h"
#include "testkit/runner.h"

enum { N_VOCAB = 300, N_IDS = 600, N_CTX = 704, N_LAST = 4 }; // more than one span of attention

static int32_t ids[N_IDS];

typedef struct family {
    const char *arch, *mix;
} family;

// All types with kernels, dense layers and experts, both ways of rotating, norms of heads.
static const family families[] = {
    {"llama", "q4_k_m"}, {"qwen3", "q8_0"}, {"qwen2", "q4_0"}, {"qwen3moe", "q4_k_m"}, {"llama", "f16"}};
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
        s.n_ff = 512;
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
    return o;
}

// The logits after the last N_LAST tokens // f32 [N_LAST, N_VOCAB], fed in chunks of `chunk`.
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

static void run(const char *path, const kin_runner_options *o, int chunk, float *logits) {
    kin_runner r;
    kin_err err;
    if (kin_runner_open(&r, path, o, &err) != 0) fail_msg("%s", err.text);
    assert_non_null(r.devices.cpu.kernels);
    eval(r.head, 0, chunk, logits);
    kin_runner_close(&r);
}

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
    for (int i = 0; i < N_FAMILIES; i++) {
        kin_runner_options o = usual();
        run(paths[i], &o, 64, expected);
        for (int n = 1; n <= 8; n += n < 4 ? 2 : 5) {
            o.device.n_threads = n;
            run(paths[i], &o, 64, got);
            assert_memory_equal(got, expected, sizeof got);
        }
    }
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

// Two conversations, token by token in turns, share batches of cells with nobody but themselves.
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
        cmocka_unit_test(every_vector_unit_gives_the_same_bits),
        cmocka_unit_test(other_sequences_change_no_bit),
        cmocka_unit_test(an_unknown_vector_unit_is_refused_with_those_that_run),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
