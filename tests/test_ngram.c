// Embeddings of the last tokens: which rows a token reads, reading them from the file, and the tokens of sequences that the head
// remembers.
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
#include "pipeline/ngram_reader.h"
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

// ---- the head's reader

enum { MOST = 80 };

typedef struct sequence {
    int32_t tokens[MOST];
    int n;
} sequence;

static const char path_of_ngrams[] = KIN_SOURCE_DIR "/tests/golden/qwen4exp.q8_0.gguf";

// Adds n tokens to a sequence in one step, and compares their embeddings with those of its tokens.
static void add_tokens(kin_ngram_reader *r, const kin_model *m, sequence *s, int32_t seq, int n, int seed) {
    const kin_ngram *ngram = &m->hp.ngram;
    const int n_rows = kin_ngram_n_rows(ngram), width = kin_ngram_width(ngram);
    int32_t pos[MOST], of[MOST];
    float got[MOST * N_EMBD], want[N_EMBD];
    kin_err err;
    assert_true(s->n + n <= MOST && width <= N_EMBD);
    for (int i = 0; i < n; i++) {
        pos[i] = s->n + i;
        of[i] = seq;
        s->tokens[s->n + i] = (seed * 31 + pos[i] * 7) % 200;
    }
    if (kin_ngram_reader_read(r, n, s->tokens + s->n, of, pos, got, &err) != 0) fail_msg("%s", err.text);
    for (int i = 0; i < n; i++, s->n++) {
        uint64_t rows[KIN_NGRAM_HEADS];
        int32_t ids[KIN_NGRAM_TOKENS];
        for (int k = 0; k < ngram->size; k++) ids[k] = s->n >= k ? s->tokens[s->n - k] : -1;
        kin_ngram_rows(ngram, ids, rows);
        for (int k = 0; k < n_rows; k++)
            assert_int_equal(kin_row_read(m->gguf, m->ngram_embd, rows[k], want + k * ngram->dim, &err), 0);
        assert_memory_equal(got + i * width, want, (size_t)width * sizeof *want);
    }
}

static void the_head_remembers_the_tokens_of_its_sequences(void **state) {
    static sequence a, b, c;
    kin_ngram_reader *r;
    kin_model m;
    kin_err err;
    (void)state;
    if (kin_model_open(&m, path_of_ngrams, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_ngram_reader_open(&r, &m, MOST, &err), 0);
    for (int i = 0; i < 4; i++) add_tokens(r, &m, &a, 2, 1 + i, 1);
    b = a; // begins with its first tokens
    b.n = 7;
    assert_int_equal(kin_ngram_reader_change(r, &(kin_kv_op){.seq = 5, .from = 2, .n = 7}, &err), 0);
    add_tokens(r, &m, &b, 5, 3, 2);
    a.n = 6; // rejected drafts
    assert_int_equal(kin_ngram_reader_change(r, &(kin_kv_op){.seq = 2, .from = 2, .n = 6}, &err), 0);
    add_tokens(r, &m, &a, 2, 5, 3);
    add_tokens(r, &m, &b, 5, 5, 4);
    for (c.n = 0; c.n < KIN_KV_CELLS; c.n++) c.tokens[c.n] = c.n * 3 % 200; // a page that was loaded
    assert_int_equal(kin_ngram_reader_note(r, 2, 0, c.tokens, c.n, &err), 0);
    add_tokens(r, &m, &c, 2, 4, 5);
    c.n = 0; // another text of the same number
    assert_int_equal(kin_ngram_reader_change(r, &(kin_kv_op){.seq = -1}, &err), 0);
    add_tokens(r, &m, &c, 2, 2, 6);
    kin_ngram_reader_close(r);
    kin_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_follow_from_the_last_tokens),
        cmocka_unit_test(nothing_counts_before_the_end_of_a_text),
        cmocka_unit_test(products_wrap_at_64_bits),
        cmocka_unit_test(cached_rows_are_those_of_the_file),
        cmocka_unit_test(the_head_remembers_the_tokens_of_its_sequences),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
