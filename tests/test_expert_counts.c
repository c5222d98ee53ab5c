// The counts of experts that are kept between runs: their bytes, and which ones are refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "pure/plan/expert_counts.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_have_these_bytes),
        cmocka_unit_test(what_was_encoded_is_decoded_to_a_32nd),
        cmocka_unit_test(other_and_damaged_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
