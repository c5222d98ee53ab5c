// The KV cache, without a model: the cell of each token, the cells that it attends to, and the copies for shared prefixes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/kv.h"
#include "tests/place.h"

enum { N_CTX = 200, N_CELLS = 256, N_BLOCKS = 4, N_LAYER = 3, LOOK = 0x0000, HIDE = 0xfc00 };

static kin_hparams hparams(void) {
    kin_hparams hp = {0};
    hp.n_layer = N_LAYER;
    hp.n_embd = 64;
    hp.n_head = 4;
    hp.n_head_kv = 2;
    hp.head_dim = 16;
    return hp;
}

static const kin_device *on_cpu(const void *user, int il) {
    (void)il;
    return user;
}

static const kin_kv_options options = {
    .windows = {.n = 1, .at = {{.layer_begin = 1, .layer_end = N_LAYER}}}, .n_ctx = N_CTX, .type = GGML_TYPE_F16};

static kin_kv *open_kv(void) {
    static const kin_device cpu; // the cache only asks if the device is a GPU
    const kin_hparams hp = hparams();
    kin_kv *kv;
    kin_err err;
    if (kin_kv_open(&kv, &hp, &options, on_cpu, &cpu, &err) != 0) fail_msg("%s", err.text);
    return kv;
}
#define open_kv(...) FROM_TEST(open_kv(__VA_ARGS__))

// Places n tokens of one sequence at pos, pos + 1, ...
static int place(kin_kv *kv, int32_t seq, int32_t pos, int n, int64_t *cells) {
    int32_t seqs[N_CTX + 1], positions[N_CTX + 1];
    kin_err err;
    for (int i = 0; i < n; i++) {
        seqs[i] = seq;
        positions[i] = pos + i;
    }
    return kin_kv_place(kv, &(kin_batch){.n_tokens = n, .pos = positions, .seq = seqs}, cells, NULL, &err);
}

static int change(kin_kv *kv, int32_t seq, int32_t from, int32_t n, kin_err *err) {
    const kin_kv_op op = {seq, from, n};
    return kin_kv_place(kv, &(kin_batch){.ops = &op, .n_ops = 1}, NULL, NULL, err);
}

// Truncates the sequence to n tokens.
static void truncate_to(kin_kv *kv, int32_t seq, int32_t n) {
    kin_err err;
    assert_int_equal(change(kv, seq, seq, n, &err), 0);
}
#define truncate_to(...) FROM_TEST(truncate_to(__VA_ARGS__))

static void expect_cells(kin_kv *kv, int32_t seq, int32_t pos, int n, const int64_t *expected) {
    int64_t cells[N_CTX];
    assert_int_equal(place(kv, seq, pos, n, cells), 0);
    assert_memory_equal(cells, expected, (size_t)n * sizeof *cells);
}
#define expect_cells(...) FROM_TEST(expect_cells(__VA_ARGS__))

// Expects n tokens in consecutive cells from `first` on.
static void expect_run(kin_kv *kv, int32_t seq, int32_t pos, int n, int first) {
    int64_t expected[N_CTX];
    for (int i = 0; i < n; i++) expected[i] = first + i;
    expect_cells(kv, seq, pos, n, expected);
}
#define expect_run(...) FROM_TEST(expect_run(__VA_ARGS__))

static void expect_refused(kin_kv *kv, int32_t seq, int32_t pos, const char *words) {
    int64_t cell;
    kin_err err;
    assert_int_equal(kin_kv_place(kv, &(kin_batch){.n_tokens = 1, .pos = &pos, .seq = &seq}, &cell, NULL, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, words));
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

static void blocks_are_given_out_lowest_free_first(void **state) {
    (void)state;
    kin_kv *kv = open_kv();
    expect_run(kv, 0, 0, 60, 0);
    expect_run(kv, 7, 0, 3, 64);
    expect_cells(kv, 0, 60, 6, (int64_t[]){60, 61, 62, 63, 128, 129});
    expect_run(kv, 7, 3, 1, 67);
    truncate_to(kv, 7, 0);
    expect_run(kv, 9, 0, 2, 64);
    kin_kv_clear(kv);
    expect_run(kv, 3, 0, 2, 0);
    kin_kv_close(kv);
}

static void a_sequence_knows_its_blocks_in_order(void **state) {
    (void)state;
    int32_t table[N_BLOCKS];
    kin_kv *kv = open_kv();
    expect_run(kv, 5, 0, 1, 0);
    expect_run(kv, 8, 0, 64, 64);
    truncate_to(kv, 5, 0);
    expect_run(kv, 8, 64, 2, 0);
    kin_kv_table(kv, 8, table);
    assert_int_equal(table[0], 1);
    assert_int_equal(table[1], 0);
    kin_kv_close(kv);
}

static void a_mask_covers_the_blocks_up_to_the_highest_used_one(void **state) {
    (void)state;
    kin_kv *kv = open_kv();
    assert_int_equal(kin_kv_n_used(kv), 0);
    expect_run(kv, 0, 0, 64, 0);
    assert_int_equal(kin_kv_n_used(kv), 64);
    expect_run(kv, 1, 0, 1, 64);
    expect_run(kv, 0, 64, 1, 128);
    assert_int_equal(kin_kv_n_used(kv), 192);
    truncate_to(kv, 1, 0);
    assert_int_equal(kin_kv_n_used(kv), 192); // counts the free block below a used one
    truncate_to(kv, 0, 64);
    assert_int_equal(kin_kv_n_used(kv), 64);
    truncate_to(kv, 0, 0);
    assert_int_equal(kin_kv_n_used(kv), 0);
    kin_kv_close(kv);
}

static void a_batch_that_does_not_fit_changes_nothing(void **state) {
    (void)state;
    int64_t cells[N_CTX + 1];
    ggml_fp16_t before[N_CELLS], after[N_CELLS];
    const int32_t pos = N_CTX;
    const kin_batch probe = {.n_tokens = 1, .pos = &pos};
    kin_kv *kv = open_kv();
    assert_int_equal(place(kv, 0, 0, N_CTX + 1, cells), KIN_FAIL);
    assert_int_equal(kin_kv_n_used(kv), 0);
    assert_int_equal(place(kv, 0, 0, N_CTX - 2, cells), 0);
    kin_kv_mask(kv, &probe, NULL, 1, N_CELLS, 0, before);
    assert_int_equal(place(kv, 0, N_CTX - 2, 3, cells), KIN_FAIL);
    kin_kv_mask(kv, &probe, NULL, 1, N_CELLS, 0, after);
    assert_memory_equal(before, after, sizeof before);
    expect_run(kv, 0, N_CTX - 2, 2, N_CTX - 2);
    expect_refused(kv, 0, N_CTX, "the context of 200 tokens is full"); // cells are free, but the context has no more tokens
    kin_kv_clear(kv);
    for (int32_t seq = 0; seq < N_BLOCKS; seq++) expect_run(kv, seq, 0, 1, 64 * seq);
    expect_refused(kv, N_BLOCKS, 0, "the context of 200 tokens is full"); // each sequence occupies a block
    kin_kv_close(kv);
}

static void a_token_looks_at_its_own_sequence_up_to_itself(void **state) {
    (void)state;
    kin_kv *kv = open_kv();
    expect_run(kv, 0, 0, 3, 0);
    expect_run(kv, 5, 0, 2, 64);
    const int32_t pos[] = {0, 2, 1}, seq[] = {0, 0, 5};
    const kin_batch batch = {.n_tokens = 3, .pos = pos, .seq = seq};
    ggml_fp16_t expected[3][128], mask[3][128];
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 128; j++) expected[i][j] = HIDE;
    expected[0][0] = LOOK;
    expected[1][0] = expected[1][1] = expected[1][2] = LOOK;
    expected[2][64] = expected[2][65] = LOOK;
    kin_kv_mask(kv, &batch, NULL, 3, 128, 0, mask[0]);
    assert_memory_equal(mask, expected, sizeof mask);

    const int32_t rows[] = {2, 0}; // only the requested rows
    kin_kv_mask(kv, &batch, rows, 2, 128, 0, mask[0]);
    assert_memory_equal(mask[0], expected[2], sizeof mask[0]);
    assert_memory_equal(mask[1], expected[0], sizeof mask[1]);

    const kin_batch first = {.n_tokens = 3, .pos = pos}; // no sequence numbers: all 0
    kin_kv_mask(kv, &first, rows, 1, 128, 0, mask[0]);
    assert_memory_equal(mask[0], ((ggml_fp16_t[]){LOOK, LOOK, HIDE, HIDE, HIDE, HIDE}), 12);
    kin_kv_close(kv);
}

static void a_window_hides_all_but_the_last_tokens(void **state) {
    (void)state;
    kin_kv *kv = open_kv();
    int32_t pos[70];
    int64_t cells[70];
    assert_int_equal(place(kv, 0, 0, 70, cells), 0);
    for (int i = 0; i < 70; i++) pos[i] = i;
    const kin_batch batch = {.n_tokens = 70, .pos = pos};
    ggml_fp16_t mask[70][128];
    kin_kv_mask(kv, &batch, NULL, 70, 128, 8, mask[0]);
    for (int i = 0; i < 70; i++) {
        for (int k = 0; k < 70; k++) assert_int_equal(mask[i][cells[k]], k <= i && i - k < 8 ? LOOK : HIDE);
    }
    kin_kv_close(kv);
}

static void a_position_of_a_sequence_never_has_two_cells(void **state) {
    (void)state;
    const int32_t pos[] = {4, 5, 4}, seq[] = {1, 1, 1};
    int64_t cells[N_CTX];
    kin_err err;
    kin_kv *kv = open_kv();
    expect_run(kv, 1, 0, 4, 0);
    assert_int_equal(kin_kv_place(kv, &(kin_batch){.n_tokens = 3, .pos = pos, .seq = seq}, cells, NULL, &err), KIN_FAIL);
    assert_string_equal(err.text, "position 4 of sequence 1 is already in the KV cache");
    expect_refused(kv, 1, 3, "already in the KV cache");
    expect_run(kv, 1, 4, 1, 4); // nothing has changed
    truncate_to(kv, 1, 3);
    expect_run(kv, 1, 3, 1, 3);
    kin_kv_close(kv);
}

static void a_token_needs_all_those_before_it(void **state) {
    (void)state;
    kin_kv *kv = open_kv();
    expect_refused(kv, 0, 1, "tokens before position 1 of sequence 0 are not in the KV cache");
    expect_run(kv, 0, 0, 70, 0);
    expect_refused(kv, 0, 71, "tokens before position 71");
    truncate_to(kv, 0, 3);
    expect_refused(kv, 0, 70, "tokens before position 70");
    expect_run(kv, 0, 3, 1, 3);
    kin_kv_close(kv);
}

static void a_step_cannot_forget_its_own_tokens(void **state) {
    (void)state;
    const int32_t pos = 0, seq = 0;
    const kin_kv_op branches[] = {{1, 0, 1}, {0, 0, 0}}, all[] = {{1, 0, 1}, {-1, -1, 0}};
    kin_kv_copies copies;
    int64_t cell;
    kin_err err;
    kin_kv *kv = open_kv();
    kin_batch batch = {.n_tokens = 1, .pos = &pos, .seq = &seq, .ops = branches, .n_ops = 2};
    assert_int_equal(kin_kv_place(kv, &batch, &cell, &copies, &err), KIN_FAIL);
    assert_string_equal(err.text, "a step forgets tokens of its own");
    kin_kv_clear(kv);
    batch.ops = all;
    assert_int_equal(kin_kv_place(kv, &batch, &cell, &copies, &err), KIN_FAIL);
    kin_kv_close(kv);
}

static void a_change_comes_before_the_tokens_of_its_step(void **state) {
    (void)state;
    const int32_t pos[] = {2, 0}, seq[] = {0, 4};
    const kin_kv_op ops[] = {{0, 0, 2}, {4, 4, 0}};
    int64_t cells[2];
    kin_err err;
    kin_kv *kv = open_kv();
    expect_run(kv, 0, 0, 4, 0);
    expect_run(kv, 4, 0, 4, 64);
    assert_int_equal(kin_kv_place(kv, &(kin_batch){2, pos, seq, .ops = ops, .n_ops = 2}, cells, NULL, &err), 0);
    assert_int_equal(cells[0], 2);
    assert_int_equal(cells[1], 64);
    assert_int_equal(change(kv, -1, -1, 0, &err), 0);
    assert_int_equal(kin_kv_n_used(kv), 0);
    kin_kv_close(kv);
}

// ---- shared prefixes

static uint8_t *cell_bytes(const kin_kv *kv, int64_t cell) {
    return (uint8_t *)kin_kv_k(kv, 2)->data + (size_t)cell * kin_kv_k(kv, 2)->nb[1];
}

static void a_shared_prefix_takes_a_block_for_its_last_tokens_only(void **state) {
    (void)state;
    int32_t a[N_BLOCKS], b[N_BLOCKS];
    kin_err err;
    kin_kv *kv = open_kv();
    expect_run(kv, 0, 0, 70, 0); // blocks 0 and 1
    memset(cell_bytes(kv, 64), 0x5a, 6 * kin_kv_k(kv, 2)->nb[1]);
    assert_int_equal(change(kv, 1, 0, 67, &err), 0);
    kin_kv_table(kv, 0, a);
    kin_kv_table(kv, 1, b);
    assert_int_equal(b[0], a[0]);
    assert_int_equal(b[1], 2);
    assert_memory_equal(cell_bytes(kv, 128), cell_bytes(kv, 64), 3 * kin_kv_k(kv, 2)->nb[1]);
    expect_run(kv, 1, 67, 2, 131); // each sequence continues in its own block
    expect_run(kv, 0, 70, 1, 70);
    truncate_to(kv, 0, 0);
    expect_run(kv, 2, 0, 1, 64); // the shared block is still in use
    truncate_to(kv, 1, 0);
    expect_run(kv, 3, 0, 1, 0);
    kin_kv_close(kv);
}

// A sequence branches after its first new token, and the branch branches again. Each branch gets a copy of the shared cells in
// its own block.
static void a_sequence_branches_within_a_batch(void **state) {
    (void)state;
    const int32_t pos[] = {60, 61, 61, 62, 62}, seq[] = {0, 0, 1, 2, 0};
    const kin_kv_op ops[] = {{1, 0, 61}, {2, 1, 62}};
    const kin_batch batch = {5, pos, seq, .ops = ops, .n_ops = 2};
    const int64_t expected[] = {60, 61, 64 + 61, 128 + 62, 62};
    const kin_row_cell copied[] = {{0, 64 + 60, 64 + 60}, {2, 128 + 61, 128 + 61}, {0, 128 + 60, 128 + 60}};
    int64_t cells[5];
    kin_kv_copies copies;
    kin_err err;
    kin_kv *kv = open_kv();
    expect_run(kv, 0, 0, 60, 0);
    memset(cell_bytes(kv, 0), 0x5a, 60 * kin_kv_k(kv, 2)->nb[1]);
    assert_int_equal(kin_kv_place(kv, &batch, cells, &copies, &err), 0);
    assert_memory_equal(cells, expected, sizeof cells);
    assert_int_equal(copies.n, 3);
    assert_memory_equal(copies.at, copied, sizeof copied);
    for (int block = 1; block < 3; block++)
        assert_memory_equal(cell_bytes(kv, 64 * block), cell_bytes(kv, 0), 60 * kin_kv_k(kv, 2)->nb[1]);
    kin_kv_clear(kv);
    expect_run(kv, 0, 0, 60, 0);
    assert_int_equal(kin_kv_place(kv, &batch, cells, NULL, &err), KIN_FAIL);
    assert_string_equal(err.text, "a sequence branches off within a step that has no list of copies");
    assert_int_equal(kin_kv_n_tokens(kv, 0), 60);
    const kin_kv_op beyond = {3, 0, 62};
    assert_int_equal(kin_kv_place(kv, &(kin_batch){1, pos, seq, .ops = &beyond, .n_ops = 1}, cells, &copies, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "sequence 0 has fewer than 62 tokens"));
    assert_int_equal(kin_kv_n_tokens(kv, 0), 60);
    kin_kv_close(kv);
}

// Whole blocks are shared without a copy.
static void a_branch_behind_a_full_block_has_nothing_to_copy(void **state) {
    (void)state;
    const int32_t pos[] = {63, 64, 64}, seq[] = {0, 0, 1};
    const kin_kv_op op = {1, 0, 64};
    int64_t cells[3];
    kin_kv_copies copies;
    kin_err err;
    kin_kv *kv = open_kv();
    expect_run(kv, 0, 0, 63, 0);
    assert_int_equal(kin_kv_place(kv, &(kin_batch){3, pos, seq, .ops = &op, .n_ops = 1}, cells, &copies, &err), 0);
    assert_int_equal(copies.n, 0);
    assert_int_equal(kin_kv_n_used(kv), 3 * KIN_KV_CELLS);
    kin_kv_close(kv);
}

static void a_sequence_cut_within_a_shared_block_gets_its_own(void **state) {
    (void)state;
    ggml_fp16_t mask[N_CELLS];
    const int32_t pos = 11, seq = 0;
    kin_err err;
    kin_kv *kv = open_kv();
    expect_run(kv, 0, 0, 64, 0);
    memset(cell_bytes(kv, 0), 0x5a, 64 * kin_kv_k(kv, 2)->nb[1]);
    assert_int_equal(change(kv, 1, 0, 64, &err), 0);
    truncate_to(kv, 0, 10);
    assert_memory_equal(cell_bytes(kv, 64), cell_bytes(kv, 0), 10 * kin_kv_k(kv, 2)->nb[1]);
    expect_run(kv, 0, 10, 2, 74);
    expect_run(kv, 1, 64, 1, 128);
    kin_kv_mask(kv, &(kin_batch){.n_tokens = 1, .pos = &pos, .seq = &seq}, NULL, 1, N_CELLS, 0, mask);
    for (int i = 0; i < N_CELLS; i++) assert_int_equal(mask[i], i >= 64 && i < 76 ? LOOK : HIDE);
    kin_kv_close(kv);
}

static void a_full_cache_cuts_a_block_of_its_own_and_needs_room_for_one_that_is_shared(void **state) {
    (void)state;
    kin_err err;
    kin_kv *kv = open_kv();
    expect_run(kv, 0, 0, N_CTX, 0);
    truncate_to(kv, 0, N_CTX - 1); // the last block is its own
    expect_run(kv, 0, N_CTX - 1, 1, N_CTX - 1);
    truncate_to(kv, 0, 192);
    assert_int_equal(change(kv, 1, 0, 192, &err), 0);
    expect_run(kv, 2, 0, 1, 192);
    assert_int_equal(change(kv, 0, 0, 10, &err), KIN_FAIL);
    assert_string_equal(err.text, "the context of 200 tokens is full");
    expect_refused(kv, 0, 191, "position 191 of sequence 0 is already in the KV cache"); // nothing has changed
    truncate_to(kv, 1, 64);
    truncate_to(kv, 0, 10); // the blocks that only it has make room
    expect_run(kv, 0, 10, 2, 74);
    kin_kv_close(kv);
}

static void a_share_that_cannot_be_is_refused(void **state) {
    (void)state;
    kin_err err;
    kin_kv *kv = open_kv();
    expect_run(kv, 0, 0, 30, 0);
    assert_int_equal(change(kv, 1, 0, 31, &err), KIN_FAIL);
    assert_string_equal(err.text, "sequence 0 has fewer than 31 tokens in the KV cache");
    assert_int_equal(change(kv, 1, 9, 1, &err), KIN_FAIL);
    for (int32_t seq = 1; seq < N_BLOCKS; seq++) expect_run(kv, seq, 0, 1, 64 * seq);
    assert_int_equal(change(kv, 7, 0, 30, &err), KIN_FAIL); // no block for a copy
    assert_non_null(strstr(err.text, "the context of 200 tokens is full"));
    assert_int_equal(change(kv, 1, 0, 30, &err), 0); // sequence 1's own block becomes free
    kin_kv_close(kv);
}

// ---- random steps: each sequence sees the bytes that were written at its positions

enum { N_SEQ = 4 };

typedef struct text {
    uint8_t bytes[N_CTX]; // the byte written at each position
    int n;
} text;

static int64_t cell_of(const kin_kv *kv, int32_t seq, int pos) {
    int32_t table[N_BLOCKS];
    kin_kv_table(kv, seq, table);
    return (int64_t)table[pos / 64] * 64 + pos % 64;
}

static void expect_texts(const kin_kv *kv, const text *texts) {
    for (int32_t seq = 0; seq < N_SEQ; seq++) {
        for (int i = 0; i < texts[seq].n; i++) assert_int_equal(cell_bytes(kv, cell_of(kv, seq, i))[5], texts[seq].bytes[i]);
    }
}
#define expect_texts(...) FROM_TEST(expect_texts(__VA_ARGS__))

// Appends tokens. If they do not fit, nothing may change.
static void step_append(kin_kv *kv, text *t, int32_t seq, kin_rng *rng) {
    int64_t cells[N_CTX];
    int n = 1 + (int)(kin_rng_u64(rng) % 40);
    if (t->n + n > N_CTX || place(kv, seq, t->n, n, cells) != 0) return;
    for (int i = 0; i < n; i++) {
        t->bytes[t->n] = (uint8_t)kin_rng_u64(rng);
        cell_bytes(kv, cells[i])[5] = t->bytes[t->n++];
    }
}

static void step_change(kin_kv *kv, text *texts, int32_t seq, kin_rng *rng) {
    int32_t from = kin_rng_u64(rng) % 2 ? seq : (int32_t)(kin_rng_u64(rng) % N_SEQ);
    int n = (int)(kin_rng_u64(rng) % (unsigned)(texts[from].n + 1));
    kin_err err;
    if (change(kv, seq, from, n, &err) == 0) {
        texts[seq] = texts[from];
        texts[seq].n = n;
    } else if (seq != from) {
        texts[seq].n = 0;
    }
}

static void whatever_is_shared_each_sequence_keeps_its_own_text(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        kin_rng rng;
        kin_kv *kv = open_kv();
        text texts[N_SEQ] = {0};
        kin_rng_seed(&rng, seed);
        for (int step = 0; step < 300; step++) {
            int32_t seq = (int32_t)(kin_rng_u64(&rng) % N_SEQ);
            if (kin_rng_u64(&rng) % 2)
                step_append(kv, &texts[seq], seq, &rng);
            else
                step_change(kv, texts, seq, &rng);
            expect_texts(kv, texts);
        }
        for (int32_t seq = 0; seq < N_SEQ; seq++) truncate_to(kv, seq, 0);
        assert_int_equal(kin_kv_n_used(kv), 0); // no block is lost
        expect_run(kv, 0, 0, N_CTX, 0);
        kin_kv_close(kv);
    }
}

// ---- memory

static void tensors_are_keys_and_values_of_the_windows(void **state) {
    (void)state;
    const kin_hparams hp = hparams();
    kin_kv *kv = open_kv();
    assert_int_equal(kin_kv_bytes(&hp, &options), 2 * 2 * N_CELLS * 32 * sizeof(ggml_fp16_t));
    for (int il = 1; il < N_LAYER; il++) {
        struct ggml_tensor *const both[] = {kin_kv_k(kv, il), kin_kv_v(kv, il)};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(both[i]->type, GGML_TYPE_F16);
            assert_int_equal(both[i]->ne[0], 32);
            assert_int_equal(both[i]->ne[1], N_CELLS);
            const uint8_t *bytes = both[i]->data; // zeroed, because a masked cell's value is multiplied by 0 and must not be NaN
            for (size_t k = 0; k < ggml_nbytes(both[i]); k++) assert_int_equal(bytes[k], 0);
        }
        assert_ptr_not_equal(both[0]->data, both[1]->data);
    }
    assert_ptr_not_equal(kin_kv_k(kv, 1)->data, kin_kv_k(kv, 2)->data);
    kin_kv_close(kv);
    kin_kv_close(NULL);
}

// Pages are as large as those of the widest layer; a narrower layer's has zeros at its end.
static void layers_that_differ_in_width_keep_their_own_rows(void **state) {
    (void)state;
    static const kin_device cpu;
    enum { ROW = 32 * sizeof(ggml_fp16_t), BLOCK = 64 };
    kin_layer layers[N_LAYER] = {{.n_head_kv = 2}, {.n_head_kv = 1}, {.n_head_kv = 2}};
    kin_hparams hp = hparams();
    kin_kv *kv;
    kin_err err;
    hp.layers = layers;
    assert_int_equal(kin_kv_bytes(&hp, &options), 2 * N_CELLS * (ROW + ROW / 2));
    if (kin_kv_open(&kv, &hp, &options, on_cpu, &cpu, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_kv_k(kv, 1)->ne[0], 16);
    assert_int_equal(kin_kv_k(kv, 2)->ne[0], 32);
    assert_int_equal(kin_kv_page_bytes(kv), 2 * BLOCK * ROW);
    expect_run(kv, 0, 0, 3 * BLOCK, 0);
    for (int il = 1; il < N_LAYER; il++) {
        static uint8_t page[2 * BLOCK * ROW], got[2 * BLOCK * ROW];
        const size_t half = BLOCK * ROW / (il == 1 ? 2 : 1);
        for (size_t i = 0; i < sizeof page; i++) page[i] = i < 2 * half ? (uint8_t)(i * 7 % 100 + 1) : 0;
        kin_kv_page_set(kv, 0, 1, il, page);
        const uint8_t *k = kin_kv_k(kv, il)->data, *v = kin_kv_v(kv, il)->data;
        assert_memory_equal(k + half, page, half); // block 1
        assert_memory_equal(v + half, page + half, half);
        assert_int_equal(k[half - 1] | k[2 * half] | v[half - 1] | v[2 * half], 0); // its neighbours
        memset(got, 1, sizeof got);
        kin_kv_page_get(kv, 0, 1, il, got);
        assert_memory_equal(got, page, sizeof page);
        assert_true(kin_kv_page_is_finite(kv, il, page));
        memcpy(page + 2 * half - 2, &(uint16_t){0x7c00}, 2);
        assert_false(kin_kv_page_is_finite(kv, il, page));
    }
    kin_kv_close(kv);
}

// Layers whose values are within their keys have no tensor of values, and pages without them.
static void latent_layers_have_keys_alone(void **state) {
    (void)state;
    static const kin_device cpu;
    enum { WIDTH = 48, BLOCK = 64, BYTES = BLOCK * WIDTH * sizeof(ggml_fp16_t) };
    kin_layer layers[N_LAYER];
    kin_hparams hp = hparams();
    kin_kv *kv;
    kin_err err;
    for (int il = 0; il < N_LAYER; il++)
        layers[il] = (kin_layer){.n_head_kv = 1, .head_dim = WIDTH, .v_dim = 32, .is_latent = true};
    hp.layers = layers;
    assert_int_equal(kin_kv_bytes(&hp, &options), 2 * N_CELLS * WIDTH * sizeof(ggml_fp16_t));
    if (kin_kv_open(&kv, &hp, &options, on_cpu, &cpu, &err) != 0) fail_msg("%s", err.text);
    assert_null(kin_kv_v(kv, 1));
    assert_int_equal(kin_kv_page_bytes(kv), BYTES);
    expect_run(kv, 0, 0, BLOCK + 5, 0);
    static uint8_t page[BYTES], got[BYTES];
    for (size_t i = 0; i < BYTES; i++) page[i] = (uint8_t)(i * 7 % 100 + 1);
    kin_kv_page_set(kv, 0, 0, 1, page);
    kin_kv_page_get(kv, 0, 0, 1, got);
    assert_memory_equal(got, page, BYTES);
    assert_true(kin_kv_page_is_finite(kv, 1, page));
    memcpy(page + BYTES - 2, &(uint16_t){0x7c00}, 2);
    assert_false(kin_kv_page_is_finite(kv, 1, page));
    uint8_t *keys = kin_kv_k(kv, 1)->data;
    memset(keys + BYTES, 3, BYTES);
    assert_int_equal(change(kv, 1, 0, BLOCK + 2, &err), 0); // shares the first block and copies the second one
    expect_run(kv, 1, BLOCK + 2, 1, 2 * BLOCK + 2);
    assert_memory_equal(keys + 2 * BYTES, keys + BYTES, BYTES);
    kin_kv_close(kv);
}

static void heads_that_are_no_whole_blocks_are_refused(void **state) {
    (void)state;
    static const kin_device cpu;
    kin_hparams hp = hparams();
    kin_kv_options o = options;
    kin_kv *kv;
    kin_err err;
    hp.head_dim = 80; // two heads are whole blocks, but not each
    o.type = GGML_TYPE_Q8_0;
    assert_int_equal(kin_kv_open(&kv, &hp, &o, on_cpu, &cpu, &err), KIN_FAIL);
    assert_null(kv);
    assert_non_null(strstr(err.text, "multiple of 32 values, but this model's have 80"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_given_out_lowest_free_first),
        cmocka_unit_test(a_sequence_knows_its_blocks_in_order),
        cmocka_unit_test(a_mask_covers_the_blocks_up_to_the_highest_used_one),
        cmocka_unit_test(a_batch_that_does_not_fit_changes_nothing),
        cmocka_unit_test(a_token_looks_at_its_own_sequence_up_to_itself),
        cmocka_unit_test(a_window_hides_all_but_the_last_tokens),
        cmocka_unit_test(a_position_of_a_sequence_never_has_two_cells),
        cmocka_unit_test(a_token_needs_all_those_before_it),
        cmocka_unit_test(a_step_cannot_forget_its_own_tokens),
        cmocka_unit_test(a_change_comes_before_the_tokens_of_its_step),
        cmocka_unit_test(a_shared_prefix_takes_a_block_for_its_last_tokens_only),
        cmocka_unit_test(a_sequence_branches_within_a_batch),
        cmocka_unit_test(a_branch_behind_a_full_block_has_nothing_to_copy),
        cmocka_unit_test(a_sequence_cut_within_a_shared_block_gets_its_own),
        cmocka_unit_test(a_full_cache_cuts_a_block_of_its_own_and_needs_room_for_one_that_is_shared),
        cmocka_unit_test(a_share_that_cannot_be_is_refused),
        cmocka_unit_test(whatever_is_shared_each_sequence_keeps_its_own_text),
        cmocka_unit_test(tensors_are_keys_and_values_of_the_windows),
        cmocka_unit_test(layers_that_differ_in_width_keep_their_own_rows),
        cmocka_unit_test(latent_layers_have_keys_alone),
        cmocka_unit_test(heads_that_are_no_whole_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
