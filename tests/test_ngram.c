// Embeddings of the last tokens: which rows a token reads, and reading them from the file.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/row_cache.h"
#include "model/ngram.h"
#include "model/row.h"
#include "tests/small_model.h"

// Two heads for two tokens, two for three. The multipliers are small where a product is checked by hand.
static const kin_ngram small = {.size = 3,
                                .n_heads = 2,
                                .dim = 16,
                                .eos = 9,
                                .multipliers = {3, 5, 7},
                                .first = {0, 100, 200, 300},
                                .n_rows = {11, 13, 17, 19}};

static void check_rows(const kin_ngram *n, const int32_t *ids, const uint64_t *want) {
    uint64_t rows[4];
    kin_ngram_rows(n, ids, rows);
    assert_memory_equal(rows, want, sizeof rows);
}

static void rows_follow_from_the_last_tokens(void **state) {
    (void)state;
    // 4 * 3 = 12, xor 6 * 5 = 30: 18; xor 8 * 7 = 56: 42
    check_rows(&small, (const int32_t[]){4, 6, 8}, (const uint64_t[]){18 % 11, 100 + 18 % 13, 200 + 42 % 17, 300 + 42 % 19});
}

static void nothing_counts_before_the_end_of_a_text(void **state) {
    uint64_t all_ended[4];
    (void)state;
    kin_ngram_rows(&small, (const int32_t[]){4, 9, 9}, all_ended);
    check_rows(&small, (const int32_t[]){4, 9, 8}, all_ended);
    check_rows(&small, (const int32_t[]){4, -1, -1}, all_ended);
    // 12 xor 6 * 5 xor 9 * 7 = 63: 45
    check_rows(&small, (const int32_t[]){4, 6, -1}, (const uint64_t[]){18 % 11, 100 + 18 % 13, 200 + 45 % 17, 300 + 45 % 19});
    // the token itself may end a text: 9 * 3 = 27 xor 30: 5; xor 56: 61
    check_rows(&small, (const int32_t[]){9, 6, 8}, (const uint64_t[]){5, 100 + 5, 200 + 61 % 17, 300 + 61 % 19});
}

static void products_wrap_at_64_bits(void **state) {
    kin_ngram large = small;
    (void)state;
    large.multipliers[0] = 0x8000000000000001u; // times 3: 2^63 + 3
    large.multipliers[1] = 0x8000000000000000u; // times 1: 2^63, which cancels
    large.multipliers[2] = 0;
    check_rows(&large, (const int32_t[]){3, 1, 1}, (const uint64_t[]){3, 103, 203, 303});
}

static void cached_rows_are_those_of_the_file(void **state) {
    const kin_gguf_tensor *t = model.token_embd;
    const uint64_t rows[] = {5, 0, 299, 5, 5, 0};
    enum { N = sizeof rows / sizeof *rows };
    float got[N * N_EMBD], want[N_EMBD];
    kin_row_cache *cache;
    kin_err err;
    (void)state;
    assert_int_equal(kin_row_cache_open(&cache, model.gguf, t, &err), 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(kin_row_cache_read(cache, rows, N, got, &err), 0);
        for (int i = 0; i < N; i++) {
            assert_int_equal(kin_row_read(model.gguf, t, rows[i], want, &err), 0);
            assert_memory_equal(got + i * N_EMBD, want, sizeof want);
        }
        assert_int_equal(kin_row_cache_n_read(cache), 3); // none is read twice
    }
    kin_row_cache_close(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_follow_from_the_last_tokens),
        cmocka_unit_test(nothing_counts_before_the_end_of_a_text),
        cmocka_unit_test(products_wrap_at_64_bits),
        cmocka_unit_test(cached_rows_are_those_of_the_file),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
