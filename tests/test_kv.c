// The KV cache's book-keeping: which cell a token gets, and which cells it may look at. No model is needed for it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/kv.h"

enum { N_CTX = 100, N_LAYER = 3, LOOK = 0x0000, HIDE = 0xfc00 };

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
    static const kin_device cpu; // only whether it is a GPU is asked for
    const kin_hparams hp = hparams();
    kin_kv *kv;
    kin_err err;
    if (kin_kv_open(&kv, &hp, &options, on_cpu, &cpu, &err) != 0) fail_msg("%s", err.text);
    return kv;
}

// Tokens of one sequence at pos, pos + 1, ...
static int place(kin_kv *kv, int32_t seq, int32_t pos, int n, int64_t *cells) {
    int32_t seqs[N_CTX + 1], positions[N_CTX + 1];
    kin_err err;
    for (int i = 0; i < n; i++) {
        seqs[i] = seq;
        positions[i] = pos + i;
    }
    return kin_kv_place(kv, &(kin_batch){.n_tokens = n, .pos = positions, .seq = seqs}, cells, &err);
}

static void expect_cells(kin_kv *kv, int32_t seq, int32_t pos, int n, const int64_t *expected) {
    int64_t cells[N_CTX];
    assert_int_equal(place(kv, seq, pos, n, cells), 0);
    assert_memory_equal(cells, expected, (size_t)n * sizeof *cells);
}

static void cells_are_given_out_lowest_free_first(void **state) {
    (void)state;
    kin_kv *kv = open_kv();
    expect_cells(kv, 0, 0, 4, (int64_t[]){0, 1, 2, 3});
    expect_cells(kv, 7, 0, 3, (int64_t[]){4, 5, 6});
    kin_kv_remove(kv, 0, 1, 3); // cells 1 and 2
    kin_kv_remove(kv, 7, 1, 2); // cell 5
    expect_cells(kv, 0, 4, 4, (int64_t[]){1, 2, 5, 7});
    kin_kv_remove(kv, 0, 0, 100);
    expect_cells(kv, 9, 0, 2, (int64_t[]){0, 1});
    kin_kv_clear(kv);
    expect_cells(kv, 0, 0, 2, (int64_t[]){0, 1});
    kin_kv_close(kv);
}

static void attention_looks_at_steps_of_64_up_to_the_highest_used_cell(void **state) {
    (void)state;
    int64_t cells[N_CTX];
    kin_kv *kv = open_kv();
    assert_int_equal(kin_kv_n_ctx(kv), N_CTX);
    assert_int_equal(kin_kv_n_used(kv), 0);
    assert_int_equal(place(kv, 0, 0, 1, cells), 0);
    assert_int_equal(kin_kv_n_used(kv), 64);
    assert_int_equal(place(kv, 0, 1, 63, cells), 0);
    assert_int_equal(kin_kv_n_used(kv), 64);
    assert_int_equal(place(kv, 0, 64, 1, cells), 0);
    assert_int_equal(kin_kv_n_used(kv), N_CTX); // not 128: there are no more
    kin_kv_remove(kv, 0, 0, 10);
    assert_int_equal(kin_kv_n_used(kv), N_CTX); // a hole below is looked at
    kin_kv_remove(kv, 0, 64, 65);
    assert_int_equal(kin_kv_n_used(kv), 64);
    kin_kv_remove(kv, 0, 0, 64);
    assert_int_equal(kin_kv_n_used(kv), 0);
    kin_kv_close(kv);
}

static void a_batch_that_does_not_fit_changes_nothing(void **state) {
    (void)state;
    int64_t cells[N_CTX + 1];
    ggml_fp16_t before[N_CTX], after[N_CTX];
    const int32_t pos = N_CTX;
    const kin_batch probe = {.n_tokens = 1, .pos = &pos};
    kin_kv *kv = open_kv();
    assert_int_equal(place(kv, 0, 0, N_CTX + 1, cells), KIN_FAIL);
    assert_int_equal(place(kv, 0, 0, N_CTX - 2, cells), 0);
    kin_kv_mask(kv, &probe, NULL, 1, N_CTX, before);
    assert_int_equal(place(kv, 0, N_CTX - 2, 3, cells), KIN_FAIL);
    kin_kv_mask(kv, &probe, NULL, 1, N_CTX, after);
    assert_memory_equal(before, after, sizeof before);
    expect_cells(kv, 0, N_CTX - 2, 2, (int64_t[]){N_CTX - 2, N_CTX - 1});
    assert_int_equal(place(kv, 1, 0, 1, cells), KIN_FAIL);
    kin_kv_remove(kv, 0, 50, 51);
    expect_cells(kv, 1, 0, 1, (int64_t[]){50});
    kin_kv_close(kv);
}

static void a_token_looks_at_its_own_sequence_up_to_itself(void **state) {
    (void)state;
    int64_t cells[N_CTX];
    kin_kv *kv = open_kv();
    assert_int_equal(place(kv, 0, 0, 2, cells), 0);
    assert_int_equal(place(kv, 5, 0, 2, cells), 0);
    assert_int_equal(place(kv, 0, 2, 1, cells), 0);
    // cells: 0@0 0@1 5@0 5@1 0@2, then free ones
    const int32_t pos[] = {0, 2, 1}, seq[] = {0, 0, 5};
    const kin_batch batch = {.n_tokens = 3, .pos = pos, .seq = seq};
    static const ggml_fp16_t expected[3][6] = {
        {LOOK, HIDE, HIDE, HIDE, HIDE, HIDE},
        {LOOK, LOOK, HIDE, HIDE, LOOK, HIDE},
        {HIDE, HIDE, LOOK, LOOK, HIDE, HIDE},
    };
    ggml_fp16_t mask[3][6];
    kin_kv_mask(kv, &batch, NULL, 3, 6, mask[0]);
    assert_memory_equal(mask, expected, sizeof mask);

    const int32_t rows[] = {2, 0}; // only the rows asked for
    kin_kv_mask(kv, &batch, rows, 2, 6, mask[0]);
    assert_memory_equal(mask[0], expected[2], sizeof mask[0]);
    assert_memory_equal(mask[1], expected[0], sizeof mask[1]);

    const kin_batch first = {.n_tokens = 3, .pos = pos}; // no sequence numbers: all 0
    kin_kv_mask(kv, &first, rows, 1, 6, mask[0]);
    assert_memory_equal(mask[0], ((ggml_fp16_t[]){LOOK, LOOK, HIDE, HIDE, HIDE, HIDE}), sizeof mask[0]);
    kin_kv_close(kv);
}

static void a_position_of_a_sequence_never_has_two_cells(void **state) {
    (void)state;
    const int32_t pos[] = {4, 5, 4}, seq[] = {1, 1, 1}, other[] = {1, 1, 2};
    int64_t cells[N_CTX];
    kin_err err;
    kin_kv *kv = open_kv();
    assert_int_equal(place(kv, 0, 0, 8, cells), 0);
    assert_int_equal(place(kv, 0, 7, 1, cells), KIN_FAIL);
    assert_int_equal(place(kv, 0, 6, 4, cells), KIN_FAIL);
    assert_int_equal(kin_kv_place(kv, &(kin_batch){.n_tokens = 3, .pos = pos, .seq = seq}, cells, &err), KIN_FAIL);
    assert_string_equal(err.text, "position 4 of sequence 1 is in the KV cache already");
    expect_cells(kv, 0, 8, 1, (int64_t[]){8}); // nothing was changed
    assert_int_equal(kin_kv_place(kv, &(kin_batch){.n_tokens = 3, .pos = pos, .seq = other}, cells, &err), 0);
    assert_int_equal(kin_kv_place(kv, &(kin_batch){.n_tokens = 1, .pos = pos + 2, .seq = other + 2}, cells, &err), KIN_FAIL);
    kin_kv_remove(kv, 0, 7, 8);
    expect_cells(kv, 0, 7, 1, (int64_t[]){7});
    kin_kv_close(kv);
}

static void a_range_of_all_sequences_leaves_the_other_positions(void **state) {
    (void)state;
    int64_t cells[N_CTX];
    kin_kv *kv = open_kv();
    assert_int_equal(place(kv, 0, 0, 4, cells), 0);
    assert_int_equal(place(kv, 7, 0, 4, cells), 0);
    kin_kv_remove(kv, -1, 2, 4);
    expect_cells(kv, 0, 2, 2, (int64_t[]){2, 3});
    expect_cells(kv, 7, 2, 1, (int64_t[]){6});
    assert_int_equal(place(kv, 7, 0, 1, cells), KIN_FAIL); // it is still there
    kin_kv_remove(kv, -1, 0, INT32_MAX);
    expect_cells(kv, 1, 0, 2, (int64_t[]){0, 1});
    kin_kv_close(kv);
}

// ---- any sequence of steps, against a list of what must be there

typedef struct entry {
    int32_t seq, pos; // seq -1: free
} entry;

static int lowest_free(const entry *cells) {
    int i = 0;
    while (i < N_CTX && cells[i].seq >= 0) i++;
    return i;
}

static void step_add(kin_kv *kv, entry *cells, kin_rng *rng) {
    int32_t seq = (int32_t)(kin_rng_u64(rng) % 3), pos = (int32_t)(kin_rng_u64(rng) % 50);
    int n = 1 + (int)(kin_rng_u64(rng) % 12), n_free = 0;
    int64_t got[N_CTX];
    bool is_there = false;
    for (int i = 0; i < N_CTX; i++) {
        n_free += cells[i].seq < 0;
        is_there = is_there || (cells[i].seq == seq && cells[i].pos >= pos && cells[i].pos < pos + n);
    }
    bool fits = n <= n_free && !is_there;
    assert_int_equal(place(kv, seq, pos, n, got), fits ? 0 : KIN_FAIL);
    for (int i = 0; i < n && fits; i++) {
        int at = lowest_free(cells);
        assert_int_equal(got[i], at);
        cells[at] = (entry){seq, pos + i};
    }
}

static void step_remove(kin_kv *kv, entry *cells, kin_rng *rng) {
    int32_t seq = (int32_t)(kin_rng_u64(rng) % 4) - 1, begin = (int32_t)(kin_rng_u64(rng) % 50), end = begin + 10;
    kin_kv_remove(kv, seq, begin, end);
    for (int i = 0; i < N_CTX; i++) {
        if ((seq < 0 || cells[i].seq == seq) && cells[i].pos >= begin && cells[i].pos < end) cells[i].seq = -1;
    }
}

static void expect_mask(const kin_kv *kv, const entry *cells, kin_rng *rng) {
    int32_t seq = (int32_t)(kin_rng_u64(rng) % 3), pos = (int32_t)(kin_rng_u64(rng) % 60);
    ggml_fp16_t mask[N_CTX];
    int n_used = 0;
    kin_kv_mask(kv, &(kin_batch){.n_tokens = 1, .pos = &pos, .seq = &seq}, NULL, 1, N_CTX, mask);
    for (int i = 0; i < N_CTX; i++) {
        assert_int_equal(mask[i], cells[i].seq == seq && cells[i].pos <= pos ? LOOK : HIDE);
        if (cells[i].seq >= 0) n_used = i + 1;
    }
    int rounded = (n_used + 63) / 64 * 64;
    assert_int_equal(kin_kv_n_used(kv), rounded < N_CTX ? rounded : N_CTX);
}

static void any_sequence_of_steps_agrees_with_a_plain_list(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        kin_rng rng;
        kin_kv *kv = open_kv();
        entry cells[N_CTX];
        kin_rng_seed(&rng, seed);
        for (int i = 0; i < N_CTX; i++) cells[i].seq = -1;
        for (int step = 0; step < 500; step++) {
            if (kin_rng_u64(&rng) % 5 < 2)
                step_add(kv, cells, &rng);
            else
                step_remove(kv, cells, &rng);
            expect_mask(kv, cells, &rng);
        }
        kin_kv_close(kv);
    }
}

// ---- memory

static void tensors_are_keys_and_values_of_the_windows(void **state) {
    (void)state;
    const kin_hparams hp = hparams();
    kin_kv *kv = open_kv();
    assert_int_equal(kin_kv_bytes(&hp, &options), 2 * 2 * N_CTX * 32 * sizeof(ggml_fp16_t));
    for (int il = 1; il < N_LAYER; il++) {
        struct ggml_tensor *const both[] = {kin_kv_k(kv, il), kin_kv_v(kv, il)};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(both[i]->type, GGML_TYPE_F16);
            assert_int_equal(both[i]->ne[0], 32);
            assert_int_equal(both[i]->ne[1], N_CTX);
            const uint8_t *bytes = both[i]->data; // zero: a masked cell's value must not be NaN, it is multiplied by 0
            for (size_t k = 0; k < ggml_nbytes(both[i]); k++) assert_int_equal(bytes[k], 0);
        }
        assert_ptr_not_equal(both[0]->data, both[1]->data);
    }
    assert_ptr_not_equal(kin_kv_k(kv, 1)->data, kin_kv_k(kv, 2)->data);
    kin_kv_close(kv);
    kin_kv_close(NULL);
}

static void rows_that_are_no_whole_blocks_are_refused(void **state) {
    (void)state;
    static const kin_device cpu;
    kin_hparams hp = hparams();
    kin_kv_options o = options;
    kin_kv *kv;
    kin_err err;
    hp.head_dim = 18; // rows of 36
    o.type = GGML_TYPE_Q8_0;
    assert_int_equal(kin_kv_open(&kv, &hp, &o, on_cpu, &cpu, &err), KIN_FAIL);
    assert_null(kv);
    assert_non_null(strstr(err.text, "multiple of 32 (here 36)"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_given_out_lowest_free_first),
        cmocka_unit_test(attention_looks_at_steps_of_64_up_to_the_highest_used_cell),
        cmocka_unit_test(a_batch_that_does_not_fit_changes_nothing),
        cmocka_unit_test(a_token_looks_at_its_own_sequence_up_to_itself),
        cmocka_unit_test(a_position_of_a_sequence_never_has_two_cells),
        cmocka_unit_test(a_range_of_all_sequences_leaves_the_other_positions),
        cmocka_unit_test(any_sequence_of_steps_agrees_with_a_plain_list),
        cmocka_unit_test(tensors_are_keys_and_values_of_the_windows),
        cmocka_unit_test(rows_that_are_no_whole_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
