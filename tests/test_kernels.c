// kin's CPU kernels: correct results, and the same bits on every back-end and in every batch.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <ggml.h>

#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/panel.h"
#include "testkit/bits/bits.h"
#include "tests/place.h"

enum { ROWS_MAX = 37, BATCH = 70, COLUMNS_MAX = 896 };

// ---- a matrix and a batch, with every kind of row

// A weight type, and how its blocks are filled.
typedef struct kind {
    int type;
    const char *name;
    int columns[3]; // widths to test; 0: none
    int d[2];       // offsets of f16 factors in a block; -1: none
} kind;

// clang-format off
#define COLUMNS_256 {256, 512, 768}
#define COLUMNS_32 {32, 288, 896}
#define COLUMNS_64 {64, 320, 896}
#define COLUMNS_128 {128, 384, 896}
#define COLUMNS_FLOAT {13, 208, 896}
// clang-format on

static const kind kinds[] = {
    {KIN_TYPE_Q4_K, "Q4_K", COLUMNS_256, {0, 2}},      {KIN_TYPE_Q6_K, "Q6_K", COLUMNS_256, {208, -1}},
    {KIN_TYPE_Q8_0, "Q8_0", COLUMNS_32, {0, -1}},      {KIN_TYPE_Q4_0, "Q4_0", COLUMNS_32, {0, -1}},
    {KIN_TYPE_F16, "F16", COLUMNS_FLOAT, {0, -1}},     {KIN_TYPE_BF16, "BF16", COLUMNS_FLOAT, {-1, -1}},
    {KIN_TYPE_F32, "F32", COLUMNS_FLOAT, {-1, -1}},    {KIN_TYPE_Q5_K, "Q5_K", COLUMNS_256, {0, 2}},
    {KIN_TYPE_Q3_K, "Q3_K", COLUMNS_256, {108, -1}},   {KIN_TYPE_Q2_K, "Q2_K", COLUMNS_256, {80, 82}},
    {KIN_TYPE_IQ4_XS, "IQ4_XS", COLUMNS_256, {0, -1}}, {KIN_TYPE_MXFP4, "MXFP4", COLUMNS_32, {-1, -1}},
    {KIN_TYPE_Q4_1, "Q4_1", COLUMNS_32, {0, 2}},       {KIN_TYPE_Q5_0, "Q5_0", COLUMNS_32, {0, -1}},
    {KIN_TYPE_Q5_1, "Q5_1", COLUMNS_32, {0, 2}},       {KIN_TYPE_IQ4_NL, "IQ4_NL", COLUMNS_32, {0, -1}},
    {KIN_TYPE_IQ3_S, "IQ3_S", COLUMNS_256, {0, -1}},   {KIN_TYPE_IQ3_XXS, "IQ3_XXS", COLUMNS_256, {0, -1}},
    {KIN_TYPE_IQ2_S, "IQ2_S", COLUMNS_256, {0, -1}},   {KIN_TYPE_IQ2_XS, "IQ2_XS", COLUMNS_256, {0, -1}},
    {KIN_TYPE_IQ1_S, "IQ1_S", COLUMNS_256, {0, -1}},   {KIN_TYPE_IQ2_XXS, "IQ2_XXS", COLUMNS_256, {0, -1}},
    {KIN_TYPE_IQ1_M, "IQ1_M", COLUMNS_256, {-1, -1}},  {KIN_TYPE_TQ1_0, "TQ1_0", COLUMNS_256, {52, -1}},
    {KIN_TYPE_TQ2_0, "TQ2_0", COLUMNS_256, {64, -1}},  {KIN_TYPE_NVFP4, "NVFP4", COLUMNS_64, {-1, -1}},
    {KIN_TYPE_Q2_0, "Q2_0", COLUMNS_64, {0, -1}},      {KIN_TYPE_Q1_0, "Q1_0", COLUMNS_128, {0, -1}},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

typedef struct context {
    const kind *kind;
    kin_rng rng;
    int columns, rows;
    size_t row_bytes, offset; // offset: distance of `packed` from aligned memory
    uint8_t *raw;             // [rows]
    uint8_t *packed;          // [rows], the kernels' input
    float *x;                 // [BATCH, columns]
} context;

// Returns, depending on the row, a normal number of either sign, zero, a subnormal or a large number.
static uint16_t some_f16(kin_rng *rng, int row) {
    uint16_t random = (uint16_t)kin_rng_u64(rng);
    switch (row / 5 % 4) {
    case 0: return (uint16_t)((random & 0x83ff) | 0x1400); // about 2^-10
    case 1: return 0;
    case 2: return random & 0x83ff;
    default: return (uint16_t)((random & 0x83ff) | 0x7800); // 32768 to 65504
    }
}

// The same in F32.
static uint32_t some_f32(kin_rng *rng, int row) {
    static const uint32_t exponents[] = {120, 0, 0, 160};
    uint32_t random = (uint32_t)kin_rng_u64(rng);
    return row / 5 % 4 == 1 ? 0 : (random & 0x807fffff) | exponents[row / 5 % 4] << 23;
}

static size_t block_bytes(int type) {
    return ggml_type_size((enum ggml_type)type);
}

// ggml's values of a row
static void dequantize(int type, const uint8_t *row, int n, float *y) {
    if (type == KIN_TYPE_F32)
        memcpy(y, row, sizeof *y * (size_t)n);
    else
        ggml_get_type_traits((enum ggml_type)type)->to_float(row, y, n);
}

static void put(uint8_t *p, uint32_t bits, int n) {
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(bits >> 8 * i);
}

static void fill_block(context *w, int row, uint8_t *b) {
    static const uint8_t patterns[] = {0xff, 0x00, 0x80, 0x7f};
    size_t n = block_bytes(w->kind->type);
    for (size_t i = 0; i < n; i++) b[i] = row % 5 < 4 && row % 3 == 0 ? patterns[row % 5] : (uint8_t)kin_rng_u64(&w->rng);
    for (int i = 0; i < 2 && w->kind->d[i] >= 0; i++) put(b + w->kind->d[i], some_f16(&w->rng, row), 2);
    if (w->kind->type == KIN_TYPE_F32) put(b, some_f32(&w->rng, row), 4);
    if (w->kind->type == KIN_TYPE_IQ1_M) b[55] &= 0xbf; // the factor is finite
    if (w->kind->type == KIN_TYPE_MXFP4) b[0] = (uint8_t)(row / 5 % 4 == 1 ? row % 3 : 90 + b[0] % 70);
    if (w->kind->type == KIN_TYPE_BF16) put(b, some_f32(&w->rng, row) >> 16, 2);
}

// Returns an activation. By row: small numbers, zeros, one very large number, the largest rounded value everywhere, subnormals.
static float some_x(kin_rng *rng, int row, int column) {
    uint64_t random = kin_rng_u64(rng);
    switch (row % 7) {
    case 1: return 0;
    case 2: return column % 256 == 77 ? 1e20f : (float)(random % 2001) - 1000;
    case 3: return row / 7 % 2 ? -1.5f : 1.5f;
    case 4: return random % 2 ? -3e-39f : 3e-39f; // subnormal
    default: return ((float)(random % 2001) - 1000) / 512;
    }
}

static context *new_context(const kind *k, int columns) {
    context *w = calloc(1, sizeof *w);
    // Rows do not fill the last panel. Matrices of floats are not packed: their addresses are as misaligned as in a file.
    bool packs = kin_kernel_packs(k->type);
    *w = (context){.kind = k, .columns = columns, .rows = ROWS_MAX, .offset = packs ? 0 : 2};
    kin_rng_seed(&w->rng, (uint64_t)(k->type * 1000 + columns));
    size_t n_blocks = (size_t)(columns / ggml_blck_size((enum ggml_type)k->type));
    w->row_bytes = n_blocks * block_bytes(k->type);
    w->raw = malloc(w->row_bytes * (size_t)w->rows);
    w->packed = (uint8_t *)malloc(w->row_bytes * (size_t)w->rows + w->offset) + w->offset;
    w->x = malloc(sizeof(float) * (size_t)(BATCH * columns));
    for (int r = 0; r < w->rows; r++)
        for (size_t i = 0; i < n_blocks; i++) fill_block(w, r, w->raw + (size_t)r * w->row_bytes + i * block_bytes(k->type));
    for (int i = 0; i < BATCH * columns; i++) w->x[i] = some_x(&w->rng, i / columns, i % columns);
    if (packs)
        kin_kernel_pack(k->type, columns, w->rows, w->raw, w->packed);
    else
        memcpy(w->packed, w->raw, w->row_bytes * (size_t)w->rows);
    return w;
}

static void free_context(context *w) {
    free(w->raw);
    free(w->packed - w->offset);
    free(w->x);
    free(w);
}

// Calls f for every type and width.
static void with_all(void (*f)(const context *w)) {
    for (int i = 0; i < N_KINDS; i++) {
        for (int j = 0; j < 3 && kinds[i].columns[j]; j++) {
            context *w = new_context(&kinds[i], kinds[i].columns[j]);
            f(w);
            free_context(w);
        }
    }
}

static const kin_kernels *best(void) {
    int i = 0;
    while (!kin_kernels_can_run(kin_kernels_at(i))) i++;
    return kin_kernels_at(i);
}

static int n_blocks(const context *w) {
    return (w->columns + KIN_ACT_COLUMNS - 1) / KIN_ACT_COLUMNS;
}

static int n_panels(const context *w) {
    return (w->rows + KIN_PANEL_ROWS - 1) / KIN_PANEL_ROWS;
}

// Multiplies rows [first, first + n) of the batch; panels [0, split) in a separate call. y: f32 [n, rows]
static void multiply_split(const context *w, const kin_kernels *k, int first, int n, int split, float *y) {
    kin_act *act = malloc(kin_act_bytes(w->columns, n));
    kin_matrix m = {.type = w->kind->type, .columns = w->columns, .rows = w->rows, .is_packed = true, .data = w->packed};
    kin_act_kind act_kind = kin_kernel_act_kind(w->kind->type);
    const float *x = w->x + first * w->columns;
    if (act_kind != KIN_ACT_F32) k->quantize(act_kind, w->columns, n, x, act, 0, n_blocks(w) * n);
    if (split) k->matmul(&m, act, x, n, y, w->rows, 0, split);
    k->matmul(&m, act, x, n, y, w->rows, split, n_panels(w));
    free(act);
}

static void multiply(const context *w, const kin_kernels *k, int first, int n, float *y) {
    multiply_split(w, k, first, n, 0, y);
}

static float y_0[BATCH * ROWS_MAX], y_1[BATCH * ROWS_MAX];

// Returns the results of the whole batch on the best back-end.
static const float *expected(const context *w) {
    multiply(w, best(), 0, BATCH, y_0);
    return y_0;
}

static void assert_same_rows(const context *w, const char *what, const float *y, const float *wanted, int n) {
    for (int i = 0; i < n; i++) {
        for (int r = 0; r < w->rows; r++) {
            if (memcmp(&y[i * w->rows + r], &wanted[i * w->rows + r], sizeof *y) == 0) continue;
            fail_msg("%s [%d], %s: row %d of x, row %d: %a instead of %a", w->kind->name, w->columns, what, i, r,
                     (double)y[i * w->rows + r], (double)wanted[i * w->rows + r]);
        }
    }
}

// ---- results

// Stores in z the values that the kernel multiplies with: x, or its rounded value d * q, whose error it checks.
static void rounded(const context *w, const float *x, double *z) {
    kin_act act[(COLUMNS_MAX + KIN_ACT_COLUMNS - 1) / KIN_ACT_COLUMNS];
    kin_act_kind act_kind = kin_kernel_act_kind(w->kind->type);
    if (act_kind != KIN_ACT_F32) best()->quantize(act_kind, w->columns, 1, x, act, 0, n_blocks(w));
    for (int c = 0; c < w->columns; c++) {
        const kin_act *a = &act[c / KIN_ACT_COLUMNS];
        z[c] = (double)x[c];
        if (act_kind == KIN_ACT_F32) continue;
        double d = (double)a->d[act_kind == KIN_ACT_32 ? c / 32 % 8 : 0];
        z[c] = d * a->q[c % KIN_ACT_COLUMNS];
        assert_true(fabs(z[c] - (double)x[c]) <= 0.501 * d + 0x1p-100);
    }
}

static void check_products(const context *w) {
    const float *y = expected(w);
    double z[COLUMNS_MAX], bound = (w->columns / 16 + 8) * 0x1p-24;
    float row[COLUMNS_MAX];
    for (int i = 0; i < BATCH; i++) {
        rounded(w, w->x + i * w->columns, z);
        for (int r = 0; r < w->rows; r++) {
            dequantize(w->kind->type, w->raw + (size_t)r * w->row_bytes, w->columns, row);
            double sum = 0, size = 0;
            for (int c = 0; c < w->columns; c++) {
                sum += (double)row[c] * z[c];
                size += fabs((double)row[c] * z[c]);
            }
            double got = (double)y[i * w->rows + r];
            if (fabs(sum - got) <= bound * size + 1e-30) continue;
            fail_msg("%s [%d]: row %d of x, row %d: %g instead of %g", w->kind->name, w->columns, i, r, got, sum);
        }
    }
}

static void products_are_those_of_the_weights(void **state) {
    (void)state;
    with_all(check_products);
}

// A single column of activations, of which the product is a weight times 127, rounded once: ggml's weight, unless that is a sum
// of two numbers, or was rounded itself.
static void check_weights(const context *w) {
    static float weights[ROWS_MAX][COLUMNS_MAX];
    float y[ROWS_MAX], x[COLUMNS_MAX] = {0};
    kin_act act[(COLUMNS_MAX + KIN_ACT_COLUMNS - 1) / KIN_ACT_COLUMNS];
    const kin_act_kind act_kind = kin_kernel_act_kind(w->kind->type);
    kin_matrix m = {.type = w->kind->type, .columns = w->columns, .rows = w->rows, .is_packed = true, .data = w->packed};
    for (int r = 0; r < w->rows; r++) dequantize(w->kind->type, w->raw + (size_t)r * w->row_bytes, w->columns, weights[r]);
    for (int c = 0; c < w->columns; c++) {
        x[c] = 127;
        if (act_kind != KIN_ACT_F32) best()->quantize(act_kind, w->columns, 1, x, act, 0, n_blocks(w));
        best()->matmul(&m, act, x, 1, y, w->rows, 0, n_panels(w));
        for (int r = 0; r < w->rows; r++) {
            const double wanted = 127 * (double)weights[r][c];
            double size = fabs(wanted);
            for (int k = 0; k < w->columns && w->kind->d[1] >= 0; k++) size = fmax(size, 127 * fabs((double)weights[r][k]));
            if (fabs((double)y[r] - wanted) <= 0x1p-23 * size) continue;
            fail_msg("%s [%d]: row %d, column %d: %a instead of %a", w->kind->name, w->columns, r, c, (double)y[r], wanted);
        }
        x[c] = 0;
    }
}
#define check_weights(...) FROM_TEST(check_weights(__VA_ARGS__))

static void weights_are_those_of_ggml(void **state) {
    (void)state;
    for (int i = 0; i < N_KINDS; i++) {
        context *w = new_context(&kinds[i], kinds[i].columns[1]);
        check_weights(w);
        free_context(w);
    }
}

// ---- bits

static void check_as_stored(const context *w) {
    const kin_act_kind act_kind = kin_kernel_act_kind(w->kind->type);
    kin_matrix m = {.type = w->kind->type, .columns = w->columns, .rows = w->rows, .data = w->raw};
    const float *wanted = expected(w);
    kin_act *act = malloc(kin_act_bytes(w->columns, BATCH));
    for (int i = 0; kin_kernels_at(i); i++) {
        const kin_kernels *k = kin_kernels_at(i);
        if (!kin_kernels_can_run(k)) continue;
        for (int at = 0, n = 1; at < BATCH; at += n, n = n < 4 ? n + 1 : BATCH - at) { // kernels differ for up to 4 rows
            const float *x = w->x + at * w->columns;
            if (act_kind != KIN_ACT_F32) k->quantize(act_kind, w->columns, n, x, act, 0, n_blocks(w) * n);
            k->matmul(&m, act, x, n, y_1, w->rows, 0, n_panels(w));
            assert_same_rows(w, k->name, y_1, wanted + at * w->rows, n);
        }
    }
    free(act);
}

static void rows_as_in_the_file_give_the_bits_of_packed_ones(void **state) {
    (void)state;
    with_all(check_as_stored);
}

static void check_back_ends(const context *w) {
    const float *wanted = expected(w);
    for (int i = 0; kin_kernels_at(i); i++) {
        if (!kin_kernels_can_run(kin_kernels_at(i))) continue;
        multiply(w, kin_kernels_at(i), 0, BATCH, y_1);
        assert_same_rows(w, kin_kernels_at(i)->name, y_1, wanted, BATCH);
    }
}

static void every_back_end_gives_the_same_bits(void **state) {
    (void)state;
    with_all(check_back_ends);
}

static void check_batches(const context *w) {
    const float *wanted = expected(w);
    for (int i = 0; kin_kernels_at(i); i++) {
        if (!kin_kernels_can_run(kin_kernels_at(i))) continue;
        for (int n = 1; n <= BATCH; n++) {
            int firsts[] = {0, n % 2 ? (BATCH - n) / 2 : BATCH - n};
            for (int j = 0; j < 2; j++) {
                multiply(w, kin_kernels_at(i), firsts[j], n, y_1);
                assert_same_rows(w, kin_kernels_at(i)->name, y_1, wanted + firsts[j] * w->rows, n);
            }
        }
    }
}
#define check_batches(...) FROM_TEST(check_batches(__VA_ARGS__))

static void a_row_has_the_same_bits_in_every_batch(void **state) {
    (void)state;
    for (int i = 0; i < N_KINDS; i++) {
        context *w = new_context(&kinds[i], kinds[i].columns[1]);
        check_batches(w);
        free_context(w);
    }
}

static void check_splits(const context *w) {
    const float *wanted = expected(w);
    for (int split = 0; split < n_panels(w); split++) {
        multiply_split(w, best(), 0, 5, split, y_1);
        assert_same_rows(w, "split", y_1, wanted, 5);
    }
}

static void every_split_of_the_panels_gives_the_same_bits(void **state) {
    (void)state;
    with_all(check_splits);
}

// tools/kernels checks the back-ends of other processors.
static void back_ends_compute_the_bits_of_the_table(void **state) {
    (void)state;
    for (int i = 0; kin_kernels_at(i); i++) {
        const kin_kernels *k = kin_kernels_at(i);
        for (int j = 0; kin_kernels_can_run(k) && kin_bits_at(j); j++) {
            const kin_bits_case *c = kin_bits_at(j);
            uint64_t got = c->compute(k, c->what);
            if (got != c->expected) fail_msg("%s: %s: %016llx", k->name, c->name, (unsigned long long)got);
        }
    }
}

static void columns_that_cannot_be_rounded_make_the_row_no_number(void **state) {
    (void)state;
    const float values[] = {INFINITY, -INFINITY, NAN};
    kin_act act;
    for (int i = 0; kin_kernels_at(i); i++) {
        for (int j = 0; kin_kernels_can_run(kin_kernels_at(i)) && j < 3; j++) {
            float x[KIN_ACT_COLUMNS] = {1, 2, 3};
            x[77] = values[j];
            kin_kernels_at(i)->quantize(KIN_ACT_256, KIN_ACT_COLUMNS, 1, x, &act, 0, 1);
            assert_true(isnan(act.d[0]));
            assert_int_equal(act.q[77], 0);
        }
    }
}

// ---- packing

static void check_slices(const context *w) {
    if (!kin_kernel_packs(w->kind->type)) return;
    size_t bytes = w->row_bytes * KIN_PANEL_ROWS;
    uint8_t *panel = malloc(bytes);
    for (int p = 0; p < w->rows / KIN_PANEL_ROWS; p++) {
        kin_kernel_pack(w->kind->type, w->columns, KIN_PANEL_ROWS, w->raw + (size_t)p * bytes, panel);
        assert_memory_equal(panel, w->packed + (size_t)p * bytes, bytes);
    }
    free(panel);
}

// Logits that were computed wrongly must not become finite; infinite ones are capped.
static void a_cap_keeps_what_is_no_number(void **state) {
    (void)state;
    for (int i = 0; kin_kernels_at(i); i++) {
        float x[19];
        if (!kin_kernels_can_run(kin_kernels_at(i))) continue;
        for (int k = 0; k < 19; k++) x[k] = k % 3 == 0 ? NAN : k % 3 == 1 ? -INFINITY : 1;
        kin_kernels_at(i)->cap(19, 1, 30, x);
        for (int k = 0; k < 19; k++) {
            if (k % 3 == 0) assert_true(isnan(x[k]));
            if (k % 3 == 1) assert_true(x[k] == -30);
            if (k % 3 == 2) assert_true(fabsf(x[k] - 30 * tanhf(1.0f / 30)) < 1e-5f);
        }
    }
}

static void a_slice_of_panels_packs_to_a_slice(void **state) {
    (void)state;
    with_all(check_slices);
}

static void only_whole_blocks_have_a_kernel(void **state) {
    (void)state;
    for (int i = 0; i < N_KINDS; i++) {
        int type = kinds[i].type, columns = kinds[i].columns[0];
        assert_true(kin_kernel_has(type, columns));
        assert_int_equal(kin_kernel_has(type, columns - 8), !kin_kernel_packs(type));
    }
    assert_false(kin_kernel_has(GGML_TYPE_Q8_1, 256)); // only for activations
    assert_int_equal(kin_kernel_act_kind(GGML_TYPE_Q8_1), KIN_ACT_NONE);
}

// ggml may learn new types: then this fails, and kernels are to be written.
static void every_type_of_weights_has_a_kernel(void **state) {
    (void)state;
    for (int type = 0; type < GGML_TYPE_COUNT; type++) {
        const struct ggml_type_traits *t = ggml_get_type_traits((enum ggml_type)type);
        if (type == GGML_TYPE_F32 || t->to_float) assert_true(kin_kernel_has(type, t->blck_size));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_the_weights),
        cmocka_unit_test(weights_are_those_of_ggml),
        cmocka_unit_test(rows_as_in_the_file_give_the_bits_of_packed_ones),
        cmocka_unit_test(every_back_end_gives_the_same_bits),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_batch),
        cmocka_unit_test(every_split_of_the_panels_gives_the_same_bits),
        cmocka_unit_test(back_ends_compute_the_bits_of_the_table),
        cmocka_unit_test(columns_that_cannot_be_rounded_make_the_row_no_number),
        cmocka_unit_test(a_cap_keeps_what_is_no_number),
        cmocka_unit_test(a_slice_of_panels_packs_to_a_slice),
        cmocka_unit_test(only_whole_blocks_have_a_kernel),
        cmocka_unit_test(every_type_of_weights_has_a_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
