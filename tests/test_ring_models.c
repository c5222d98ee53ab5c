// Rings over the golden models, the demo model, and with GPU layers in one member's window.
//
// On the CPU: the bits of one machine, for every family and weight type there. With a GPU layer: within the tolerance of the
// golden tests.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "testkit/golden.h"
#include "testkit/head_eval.h"
#include "testkit/small_models.h"
#include "testkit/thread_ring.h"
#include "tests/place.h"

#define GOLDEN_DIR KIN_SOURCE_DIR "/../shared/golden"
#define DEMO KIN_SOURCE_DIR "/assets/demo.gguf"

enum { N_MADE = 16, CHUNK = 4 };

// "Once upon a time, there was a little": the likeliest token is so far ahead that a GPU finds it, too
static const int32_t demo_prompt[] = {1405, 489, 514, 258, 410, 11, 378, 283, 258, 389};

typedef struct run {
    int32_t ids[N_MADE];
    float *logits; // [n_prompt + N_MADE, n_vocab]
} run;

static int32_t largest(const float *row, int n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) best = row[i] > row[best] ? i : best;
    return best;
}

static run run_ring(const char *path, const int32_t *prompt, int n_prompt, int n_members, const kin_layer_share *shares) {
    kin_thread_ring_options o = {
        .n_members = n_members, .n_batch = CHUNK, .n_chunk = CHUNK, .n_ctx = 256, .n_steps = 4, .gpu = true};
    memcpy(o.shares, shares, (size_t)n_members * sizeof *shares);
    kin_thread_ring *ring;
    kin_err err;
    run r;
    if (kin_thread_ring_open(&ring, path, &o, &err) != 0) fail_msg("%s: %s", path, err.text);
    kin_head *head = kin_thread_ring_head(ring);
    int n_vocab = kin_thread_ring_model(ring)->hp.n_vocab;
    r.logits = malloc((size_t)(n_prompt + N_MADE) * (size_t)n_vocab * sizeof *r.logits);
    assert_non_null(r.logits);
    if (kin_head_eval(head, 0, 0, prompt, n_prompt, r.logits, n_prompt, &err) != 0) fail_msg("%s", err.text);
    for (int i = 0; i < N_MADE; i++) {
        float *row = r.logits + (size_t)(n_prompt + i) * (size_t)n_vocab;
        r.ids[i] = largest(row - n_vocab, n_vocab);
        if (kin_head_eval(head, 0, n_prompt + i, &r.ids[i], 1, row, 1, &err) != 0) fail_msg("%s", err.text);
    }
    kin_thread_ring_close(ring);
    return r;
}
#define run_ring(...) FROM_TEST(run_ring(__VA_ARGS__))

static int layers_of(const char *path) {
    kin_model model;
    kin_err err;
    if (kin_model_open(&model, path, &err) != 0) fail_msg("%s", err.text);
    int n = model.hp.n_layer;
    kin_model_close(&model);
    return n;
}
#define layers_of(...) FROM_TEST(layers_of(__VA_ARGS__))

static void expect_bits(const char *path, const int32_t *prompt, int n_prompt, int n_vocab) {
    int n_layer = layers_of(path);
    const kin_layer_share one = {n_layer, 0, 0},
                          rings[][3] = {{{1, 0, 0}, {1, 0, 0}, {1, 0, 0}}, {{n_layer - 1, 0, 0}, {0, 0, 0}, {1, 0, 0}}};
    run want = run_ring(path, prompt, n_prompt, 1, &one);
    for (int i = 0; i < 2; i++) {
        run got = run_ring(path, prompt, n_prompt, 3, rings[i]);
        assert_memory_equal(got.ids, want.ids, sizeof want.ids);
        assert_memory_equal(got.logits, want.logits, (size_t)(n_prompt + N_MADE) * (size_t)n_vocab * sizeof(float));
        free(got.logits);
    }
    free(want.logits);
}
#define expect_bits(...) FROM_TEST(expect_bits(__VA_ARGS__))

// only: the beginning of the names of the models meant; NULL: all
static void expect_bits_of(const char *dir, const char *only) {
    static kin_golden models[KIN_GOLDEN_MAX_MODELS];
    kin_err err;
    int n = kin_golden_load(dir, models, &err);
    if (n <= 0) skip(); // optional data
    for (int i = 0; i < n; i++) {
        char path[1024];
        if (only && strncmp(models[i].name, only, strlen(only)) != 0) continue;
        snprintf(path, sizeof path, "%s/%.63s.gguf", dir, models[i].name);
        expect_bits(path, models[i].ids, models[i].n_prompt, models[i].n_vocab);
        print_message("             %s\n", models[i].name);
    }
}
#define expect_bits_of(...) FROM_TEST(expect_bits_of(__VA_ARGS__))

static void golden_models_give_the_bits_of_one_machine(void **state) {
    (void)state;
    expect_bits_of(GOLDEN_DIR, NULL);
}

// Layers that differ in width, blocks that read the same input, gates of heads.
static void golden_models_of_later_families_give_the_bits_of_one_machine(void **state) {
    (void)state;
    expect_bits_of(KIN_SOURCE_DIR "/tests/golden", NULL);
}

// Heads of two widths, values made of keys, experts beside a dense block.
static void gemma4_with_experts_gives_the_bits_of_one_machine(void **state) {
    (void)state;
    expect_bits_of(GOLDEN_DIR "-families", "gemma4-26b.");
}

// Layers that read keys and values of others, and are given inputs made of the tokens.
static void gemma4_with_shared_keys_gives_the_bits_of_one_machine(void **state) {
    (void)state;
    expect_bits_of(GOLDEN_DIR "-families", "gemma4-e2b.");
}

enum { N_SMALL_PROMPT = 130 }; // more than a window

// Whatever crosses the border between two devices: inputs of the layers behind it; behind the layers whose keys and values others
// read, these; in several rounds, of a layer of the same device.
static void any_border_of_shared_keys_gives_the_bits_of_one_machine(void **state) {
    char path[] = "/tmp/kin-test-ring-models-XXXXXX";
    int32_t prompt[N_SMALL_PROMPT];
    const int n_layer = kin_small_model_n_layer(KIN_SMALL_SHARED);
    const size_t bytes = (N_SMALL_PROMPT + N_MADE) * KIN_SMALL_VOCAB * sizeof(float);
    const kin_layer_share one = {n_layer, 0, 0};
    kin_err err;
    (void)state;
    for (int i = 0; i < N_SMALL_PROMPT; i++) prompt[i] = (i * 37 + i / 5) % KIN_SMALL_VOCAB;
    if (kin_small_model_make(KIN_SMALL_SHARED, path, &err) != 0) fail_msg("%s", err.text);
    run want = run_ring(path, prompt, N_SMALL_PROMPT, 1, &one);
    for (int i = 1; i < n_layer; i++) {
        const kin_layer_share two[] = {{i, 0, 0}, {n_layer - i, 0, 0}}, rounds[] = {{1, 0, 0}, {0, 0, 0}, {i, 0, 0}};
        run got[] = {run_ring(path, prompt, N_SMALL_PROMPT, 2, two), run_ring(path, prompt, N_SMALL_PROMPT, 3, rounds)};
        for (int k = 0; k < 2; k++) {
            assert_memory_equal(got[k].ids, want.ids, sizeof want.ids);
            assert_memory_equal(got[k].logits, want.logits, bytes);
            free(got[k].logits);
        }
    }
    free(want.logits);
    unlink(path);
}

static int n_vocab_of(const char *path) {
    kin_model model;
    kin_err err;
    if (kin_model_open(&model, path, &err) != 0) fail_msg("%s", err.text);
    int n = model.hp.n_vocab;
    kin_model_close(&model);
    return n;
}
#define n_vocab_of(...) FROM_TEST(n_vocab_of(__VA_ARGS__))

static void the_demo_model_gives_the_bits_of_one_machine(void **state) {
    (void)state;
    expect_bits(DEMO, demo_prompt, sizeof demo_prompt / sizeof *demo_prompt, n_vocab_of(DEMO));
}

static bool has_gpu(void) {
    kin_devices devices;
    kin_err err;
    kin_device_options o = kin_device_options_defaults();
    o.gpu = true;
    if (kin_devices_open(&devices, &o, &err) != 0) return false;
    kin_devices_close(&devices);
    return true;
}

static void gpu_layers_in_one_window_give_the_same_tokens(void **state) {
    (void)state;
    if (!has_gpu()) skip();
    const int n_prompt = sizeof demo_prompt / sizeof *demo_prompt, n_layer = layers_of(DEMO), n_vocab = n_vocab_of(DEMO);
    const kin_layer_share one = {n_layer, 0, 0}, shares[] = {{2, 1, 0}, {2, 0, 0}};
    run want = run_ring(DEMO, demo_prompt, n_prompt, 1, &one), got = run_ring(DEMO, demo_prompt, n_prompt, 2, shares);
    double worst = 0;
    for (int i = 0; i < n_prompt; i++) {
        double diff = 0, sum = 0;
        for (int k = 0; k < n_vocab; k++) {
            double w = want.logits[i * n_vocab + k], d = got.logits[i * n_vocab + k] - w;
            diff += d * d;
            sum += w * w;
        }
        worst = fmax(worst, sqrt(diff / sum));
    }
    print_message("             relative L2 against the CPU: %.2e\n", worst);
    assert_true(worst < 0.1); // the CPU rounds activations to 8 bits before every product, the GPU does not
    assert_memory_equal(got.ids, want.ids, sizeof want.ids);
    free(want.logits);
    free(got.logits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_models_give_the_bits_of_one_machine),
        cmocka_unit_test(golden_models_of_later_families_give_the_bits_of_one_machine),
        cmocka_unit_test(gemma4_with_experts_gives_the_bits_of_one_machine),
        cmocka_unit_test(gemma4_with_shared_keys_gives_the_bits_of_one_machine),
        cmocka_unit_test(any_border_of_shared_keys_gives_the_bits_of_one_machine),
        cmocka_unit_test(the_demo_model_gives_the_bits_of_one_machine),
        cmocka_unit_test(gpu_layers_in_one_window_give_the_same_tokens),
    };
    setenv("GGML_VK_VISIBLE_DEVICES", "0", 0); // before ggml loads its backends: see test_golden_gpu.c
    setenv("GGML_VK_DISABLE_F16", "1", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
