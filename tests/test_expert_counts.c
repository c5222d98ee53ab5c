// The counts of experts that are kept between runs: their bytes, and which ones are refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pure/plan/expert_counts.h"
#include "testkit/expert_trace.h"
#include "tests/place.h"

enum { N_LAYER = 2, N_EXPERT = 3, N = N_LAYER * N_EXPERT, N_BYTES = 24 + 2 * N + 8 };

static const uint8_t golden[N_BYTES] = {
    'k',  'i',  'n',  'e',  'x',  'p',  'c',  '1',                          // magic
    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,                         // model
    2,    0,    0,    0,    3,    0,    0,    0,                            // layers, experts
    0,    0,    32,   0,    16,   0,    0xff, 0xff, 0x01, 0x7d, 0x01, 0x00, // 0, 1, 0.5, much, 1000.03125, 0.03
    0xd3, 0xa7, 0xb9, 0x7e, 0x17, 0xf0, 0x0d, 0xd5,                         // hash
};

static kin_expert_counts shape(float *counts) {
    return (kin_expert_counts){UINT64_C(0x1122334455667788), N_LAYER, N_EXPERT, counts};
}

static void encode(uint8_t bytes[N_BYTES]) {
    float counts[N] = {0, 1, 0.5f, 1e9f, 1000.03125f, 0.03f};
    const kin_expert_counts c = shape(counts);
    assert_int_equal(kin_expert_counts_bytes(N_LAYER, N_EXPERT), N_BYTES);
    kin_expert_counts_encode(&c, bytes);
}

static void counts_have_these_bytes(void **state) {
    uint8_t bytes[N_BYTES];
    (void)state;
    encode(bytes);
    assert_memory_equal(bytes, golden, N_BYTES);
}

static void what_was_encoded_is_decoded_to_a_32nd(void **state) {
    static const float want[N] = {0, 1, 0.5f, 2047.96875f, 1000.03125f, 0.03125f};
    float counts[N];
    kin_expert_counts c = shape(counts);
    kin_err err;
    (void)state;
    assert_int_equal(kin_expert_counts_decode(&c, golden, N_BYTES, &err), 0);
    for (int i = 0; i < N; i++) assert_true(counts[i] == want[i]);
}

static void expect_refused(kin_expert_counts c, const uint8_t *bytes, size_t n, const char *why) {
    uint8_t *exact = malloc(n + 1); // so that a sanitizer sees reads beyond the end
    kin_err err;
    memcpy(exact, bytes, n);
    for (int i = 0; i < N; i++) c.counts[i] = 7;
    assert_int_equal(kin_expert_counts_decode(&c, exact, n, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, why));
    for (int i = 0; i < N; i++) assert_true(c.counts[i] == 7);
    free(exact);
}

static void other_and_damaged_counts_are_refused(void **state) {
    float counts[2 * N];
    uint8_t bytes[N_BYTES];
    (void)state;
    kin_expert_counts c = shape(counts);
    for (size_t i = 0; i < N_BYTES; i++) {
        memcpy(bytes, golden, N_BYTES);
        bytes[i] ^= 4;
        expect_refused(c, bytes, N_BYTES, i < 8 ? "another format or version" : i < 24 ? "of another model" : "damaged");
    }
    for (size_t n = 0; n < N_BYTES; n++)
        expect_refused(c, golden, n, n < 8 ? "another format or version" : n < 24 ? "of another model" : "damaged");
    c.model++;
    expect_refused(c, golden, N_BYTES, "of another model");
    c = shape(counts);
    c.n_expert++;
    expect_refused(c, golden, N_BYTES, "of another model");
}

// ---- predicting hits

static const double quarters[] = {0.25, 0.5, 0.75};

// Counts the uses of a generated routing, and predicts hits from them. Returns the routing's own hits with LFU in `real`.
static void predict(kin_trace_kind kind, int n_tokens, double hits[3], double real[3]) {
    kin_expert_trace t = {.n_layer = 6, .n_expert = 64, .n_used = 8, .n_tokens = n_tokens + 400};
    const int n_all = t.n_layer * t.n_expert;
    float *counts = calloc((size_t)n_all, sizeof *counts);
    const kin_expert_counts c = {0, t.n_layer, t.n_expert, counts};
    kin_err err;
    assert_int_equal(kin_expert_trace_make(&t, kind, 5, &err), 0);
    for (int i = 0; i < n_tokens * t.n_layer * t.n_used; i++) counts[i / t.n_used % t.n_layer * t.n_expert + t.chosen[i]] += 1;
    assert_int_equal(kin_expert_counts_hits(&c, quarters, hits, 3, &err), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(kin_expert_trace_replay(&t, KIN_EXPERTS_LFU, n_all * (i + 1) / 4, n_tokens, &real[i], &err), 0);
    kin_expert_trace_free(&t);
    free(counts);
}
#define predict(...) FROM_TEST(predict(__VA_ARGS__))

static void hits_are_predicted_where_experts_are_preferred_and_where_they_are_not(void **state) {
    double hits[3], real[3];
    (void)state;
    for (int n_tokens = 100; n_tokens <= 1000; n_tokens += 900) {
        predict(KIN_TRACE_SKEWED, n_tokens, hits, real);
        for (int i = 0; i < 3; i++) assert_true(fabs(hits[i] - real[i]) < 0.07);
        assert_true(hits[0] > 0.5);
        predict(KIN_TRACE_FLAT, n_tokens, hits, real);
        for (int i = 0; i < 3; i++) assert_true(fabs(hits[i] - quarters[i]) < 0.03);
    }
}

static void layers_that_were_not_counted_do_not_change_the_prediction(void **state) {
    float counts[N] = {60, 10, 0};
    kin_expert_counts c = shape(counts);
    double one[3], both[3];
    kin_err err;
    (void)state;
    assert_int_equal(kin_expert_counts_hits(&c, quarters, both, 3, &err), 0);
    c.n_layer = 1;
    assert_int_equal(kin_expert_counts_hits(&c, quarters, one, 3, &err), 0);
    assert_memory_equal(one, both, sizeof one);
    counts[0] = counts[1] = 1; // less than one use of the mean expert
    assert_int_equal(kin_expert_counts_hits(&c, quarters, one, 3, &err), KIN_ABSENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_have_these_bytes),
        cmocka_unit_test(what_was_encoded_is_decoded_to_a_32nd),
        cmocka_unit_test(other_and_damaged_counts_are_refused),
        cmocka_unit_test(hits_are_predicted_where_experts_are_preferred_and_where_they_are_not),
        cmocka_unit_test(layers_that_were_not_counted_do_not_change_the_prediction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
