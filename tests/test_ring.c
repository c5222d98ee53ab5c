// A ring gives the results of one machine: the same bits if all members compute alike and activations travel as f32.
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

#include "testkit/head_eval.h"
#include "testkit/model_gen.h"
#include "testkit/thread_ring.h"
#include "tests/place.h"

enum { N_VOCAB = 300, N_LAYER = 12, N_IDS = 40, N_MADE = 8, CHUNK = 8, N_ROWS = N_IDS + N_MADE };

static int32_t ids[N_IDS];
static char model_path[] = "/tmp/kin-test-ring-XXXXXX";
static float want[N_ROWS * N_VOCAB];

static int make_model(void **state) {
    (void)state;
    kin_model_spec spec = kin_model_spec_defaults();
    kin_err err;
    spec.n_layer = N_LAYER;
    spec.n_embd = spec.n_ff = 256;
    spec.n_vocab = N_VOCAB;
    spec.mix = "q4_k_m";
    for (int i = 0; i < N_IDS; i++) ids[i] = (i * 37 + 5) % N_VOCAB;
    int fd = mkstemp(model_path);
    if (fd < 0 || close(fd) != 0 || kin_model_gen(&spec, model_path, &err) != 0) return -1;
    return 0;
}

static int remove_model(void **state) {
    (void)state;
    return unlink(model_path);
}

static int32_t largest(const float *logits) {
    int32_t best = 0;
    for (int32_t i = 1; i < N_VOCAB; i++) best = logits[i] > logits[best] ? i : best;
    return best;
}

// Returns the logits of the prompt and of N_MADE greedy tokens.
static void run(kin_thread_ring *ring, float *logits) {
    kin_head *head = kin_thread_ring_head(ring);
    kin_err err = {""};
    if (kin_head_eval(head, 0, 0, ids, N_IDS, logits, N_IDS, &err) != 0) fail_msg("%s", err.text);
    for (int i = 0; i < N_MADE; i++) {
        float *row = logits + (size_t)(N_IDS + i) * N_VOCAB;
        int32_t id = largest(row - N_VOCAB);
        if (kin_head_eval(head, 0, N_IDS + i, &id, 1, row, 1, &err) != 0) fail_msg("%s", err.text);
    }
}
#define run(...) FROM_TEST(run(__VA_ARGS__))

static kin_thread_ring *open_ring(int n, const kin_layer_share *shares) {
    kin_thread_ring_options o = {.n_members = n, .n_batch = 16, .n_chunk = CHUNK, .n_ctx = 128, .n_steps = 4};
    memcpy(o.shares, shares, (size_t)n * sizeof *shares);
    kin_thread_ring *ring;
    kin_err err;
    if (kin_thread_ring_open(&ring, model_path, &o, &err) != 0) fail_msg("%s", err.text);
    return ring;
}
#define open_ring(...) FROM_TEST(open_ring(__VA_ARGS__))

static void expect_same_bits(int n, const kin_layer_share *shares, int n_rounds) {
    static float got[N_ROWS * N_VOCAB];
    kin_thread_ring *ring = open_ring(n, shares);
    assert_int_equal(kin_thread_ring_n_rounds(ring), n_rounds);
    for (int again = 0; again < 2; again++) { // the second time after a clear
        run(ring, got);
        assert_memory_equal(got, want, sizeof got);
        kin_head_clear(kin_thread_ring_head(ring));
    }
    kin_thread_ring_close(ring);
}
#define expect_same_bits(...) FROM_TEST(expect_same_bits(__VA_ARGS__))

static void one_machine(void **state) {
    (void)state;
    const kin_layer_share all = {N_LAYER, 0, 0};
    kin_thread_ring *ring = open_ring(1, &all);
    run(ring, want);
    kin_thread_ring_close(ring);
    const kin_layer_share half = {N_LAYER / 2, 0, 0};
    expect_same_bits(1, &half, 2); // two rounds on one machine
}

static void rings_of_two_to_six_give_its_bits(void **state) {
    (void)state;
    for (int n = 2; n <= 6; n++) {
        kin_layer_share shares[6];
        for (int i = 0; i < n; i++) shares[i] = (kin_layer_share){(N_LAYER + n - 1 - i) / n, 0, 0};
        expect_same_bits(n, shares, 1);
    }
}

static void more_rounds_give_its_bits(void **state) {
    (void)state;
    const kin_layer_share two[] = {{3, 0, 0}, {3, 0, 0}}, four[] = {{1, 0, 0}, {1, 0, 0}, {1, 0, 0}},
                          six[] = {{1, 0, 0}, {1, 0, 0}};
    expect_same_bits(2, two, 2);
    expect_same_bits(3, four, 4);
    expect_same_bits(2, six, 6);
}

static void uneven_windows_and_last_rounds_give_its_bits(void **state) {
    (void)state;
    const kin_layer_share a[] = {{5, 0, 0}, {1, 0, 0}, {2, 0, 0}}, b[] = {{1, 0, 0}, {4, 0, 0}},
                          c[] = {{7, 0, 0}, {3, 0, 0}, {1, 0, 0}};
    expect_same_bits(3, a, 2);
    expect_same_bits(2, b, 3);
    expect_same_bits(3, c, 2);
}

static void relays_and_a_head_without_layers_give_its_bits(void **state) {
    (void)state;
    const kin_layer_share relay[] = {{4, 0, 0}, {0, 0, 0}, {4, 0, 0}}, bare[] = {{6, 0, 0}, {6, 0, 0}, {0, 0, 0}},
                          both[] = {{0, 0, 0}, {4, 0, 0}, {0, 0, 0}};
    expect_same_bits(3, relay, 2);
    expect_same_bits(3, bare, 1);
    expect_same_bits(3, both, 3);
}

static void check_wire(kin_activation_type type, double bound) {
    static float got[N_IDS * N_VOCAB];
    kin_thread_ring_options o = {.n_members = 3,
                                 .shares = {{4, 0, 0}, {4, 0, 0}, {4, 0, 0}},
                                 .n_batch = 16,
                                 .n_chunk = CHUNK,
                                 .n_ctx = 128,
                                 .n_steps = 4,
                                 .type = type};
    kin_thread_ring *ring;
    kin_err err;
    assert_int_equal(kin_thread_ring_open(&ring, model_path, &o, &err), 0);
    assert_int_equal(kin_head_eval(kin_thread_ring_head(ring), 0, 0, ids, N_IDS, got, N_IDS, &err), 0);
    kin_thread_ring_close(ring);
    double diff = 0, sum = 0;
    for (int i = 0; i < N_IDS * N_VOCAB; i++) {
        diff += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        sum += (double)want[i] * want[i];
    }
    print_message("relative L2 of rounded activations: %g\n", sqrt(diff / sum));
    assert_true(diff > 0 && sqrt(diff / sum) < bound); // quantized weights round activations to 8 bits: small changes grow
}
#define check_wire(...) FROM_TEST(check_wire(__VA_ARGS__))

static void f16_on_the_wire_stays_close(void **state) {
    (void)state;
    check_wire(KIN_ACTIVATION_F16, 5e-2);
}

static void q8_on_the_wire_stays_close(void **state) {
    (void)state;
    check_wire(KIN_ACTIVATION_Q8, 1e-1);
}

static void a_step_that_fails_leaves_no_trace(void **state) {
    (void)state;
    static float got[N_ROWS * N_VOCAB];
    const kin_layer_share shares[] = {{2, 0, 0}, {2, 0, 0}};
    int32_t wrong[N_IDS], many[N_IDS] = {0};
    kin_err err;
    kin_thread_ring *ring = open_ring(2, shares);
    kin_head *head = kin_thread_ring_head(ring);
    memcpy(wrong, ids, sizeof wrong);
    wrong[30] = N_VOCAB; // earlier chunks are in flight when it is found
    assert_int_equal(kin_head_eval(head, 0, 0, wrong, N_IDS, NULL, 0, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "not in the vocabulary"));
    for (int i = 0; i < 3; i++) assert_int_equal(kin_head_eval(head, 1, i * N_IDS, many, N_IDS, NULL, 0, &err), 0);
    assert_int_equal(kin_head_eval(head, 0, 0, ids, N_IDS, NULL, 0, &err), KIN_FAIL); // 128 cells: the context is full
    assert_non_null(strstr(err.text, "is full"));
    kin_head_truncate(head, 1, 0);
    run(ring, got);
    assert_memory_equal(got, want, sizeof got);
    kin_thread_ring_close(ring);
}

// More operations than buffers.
static void of_many_forgets_in_a_row_none_is_lost(void **state) {
    (void)state;
    static float got[N_ROWS * N_VOCAB];
    const kin_layer_share shares[] = {{2, 0, 0}, {2, 0, 0}, {2, 0, 0}};
    kin_err err;
    kin_thread_ring *ring = open_ring(3, shares);
    kin_head *head = kin_thread_ring_head(ring);
    assert_int_equal(kin_head_eval(head, 0, 0, ids, N_IDS, NULL, 0, &err), 0);
    for (int i = 0; i < 100; i++) kin_head_truncate(head, i % 3, 100 - i);
    kin_head_truncate(head, 0, 0);
    run(ring, got);
    assert_memory_equal(got, want, sizeof got);
    kin_thread_ring_close(ring);
}

// The number of the step that came back is a peer's claim.
static void a_device_that_answers_out_of_order_is_an_error(void **state) {
    (void)state;
    const int32_t seq = 0, pos[] = {0, 1};
    kin_thread_ring_options o = {
        .n_members = 2, .shares = {{6, 0, 0}, {6, 0, 0}}, .n_batch = 16, .n_ctx = 128, .n_steps = 4, .swaps = true};
    kin_thread_ring *ring;
    kin_err err;
    uint64_t number;
    assert_int_equal(kin_thread_ring_open(&ring, model_path, &o, &err), 0);
    kin_head *head = kin_thread_ring_head(ring);
    for (int i = 0; i < 2; i++) {
        kin_head_step step = {.n = 1, .tokens = &ids[i], .seq = &seq, .pos = &pos[i]};
        assert_int_equal(kin_head_send(head, &step, &number, &err), 0);
    }
    assert_int_equal(kin_head_receive(head, NULL, &number, &err), KIN_FAIL);
    assert_string_equal(err.text, "ring: step 2 came back before step 1");
    kin_thread_ring_close(ring);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_machine), // computes the result that the others compare with
        cmocka_unit_test(rings_of_two_to_six_give_its_bits),
        cmocka_unit_test(more_rounds_give_its_bits),
        cmocka_unit_test(uneven_windows_and_last_rounds_give_its_bits),
        cmocka_unit_test(relays_and_a_head_without_layers_give_its_bits),
        cmocka_unit_test(f16_on_the_wire_stays_close),
        cmocka_unit_test(q8_on_the_wire_stays_close),
        cmocka_unit_test(a_step_that_fails_leaves_no_trace),
        cmocka_unit_test(of_many_forgets_in_a_row_none_is_lost),
        cmocka_unit_test(a_device_that_answers_out_of_order_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
