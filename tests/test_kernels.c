// kin's CPU kernels: right results, and the same bits on every back-end and in every company.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/panel.h"
#include "ref/dequant.h"

enum { COLUMNS = 512, ROWS = 48, BATCH = 70, BLOCKS = COLUMNS / KIN_ACT_COLUMNS };

typedef struct world {
    kin_rng rng;
    uint8_t *raw, *packed; // [ROWS]
    float *x;              // [BATCH, COLUMNS]
} world;

// Random weights of a type: any bits, with scales that are small and normal numbers.
static void fill_raw(world *w) {
    for (size_t i = 0; i < (size_t)ROWS * BLOCKS; i++) {
        uint8_t *b = w->raw + i * 144;
        for (int j = 0; j < 144; j++) b[j] = (uint8_t)kin_rng_u64(&w->rng);
        b[1] = b[3] = 0x14; // about 2^-10
    }
}

static int setup(void **state) {
    world *w = calloc(1, sizeof *w);
    kin_rng_seed(&w->rng, 1);
    w->raw = malloc((size_t)ROWS * BLOCKS * 144);
    w->packed = malloc((size_t)ROWS * BLOCKS * 144);
    w->x = malloc(sizeof(float) * BATCH * COLUMNS);
    fill_raw(w);
    for (int i = 0; i < BATCH * COLUMNS; i++) w->x[i] = (float)(kin_rng_u64(&w->rng) % 2001) / 500.0f - 2;
    kin_kernel_pack(KIN_TYPE_Q4_K, COLUMNS, ROWS, w->raw, w->packed);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    free(w->raw);
    free(w->packed);
    free(w->x);
    free(w);
    return 0;
}

// y // f32 [n, ROWS]: rows [first, first + n) of the batch
static void multiply(const world *w, const kin_kernels *k, int first, int n, float *y) {
    kin_act *act = malloc(kin_act_bytes(COLUMNS, n));
    kin_matrix m = {.type = KIN_TYPE_Q4_K, .columns = COLUMNS, .rows = ROWS, .data = w->packed};
    k->quantize(KIN_ACT_256, COLUMNS, n, w->x + first * COLUMNS, act, 0, BLOCKS * n);
    k->matmul(&m, act, NULL, n, y, ROWS, 0, 1);
    k->matmul(&m, act, NULL, n, y, ROWS, 1, ROWS / KIN_PANEL_ROWS);
    free(act);
}

static void products_are_those_of_the_weights(void **state) {
    const world *w = *state;
    float y[ROWS], row[COLUMNS];
    multiply(w, kin_kernels_at(0), 0, 1, y);
    for (int r = 0; r < ROWS; r++) {
        double sum = 0, size = 0;
        kin_ref_dequant(KIN_TYPE_Q4_K, w->raw + (size_t)r * BLOCKS * 144, COLUMNS, row);
        for (int i = 0; i < COLUMNS; i++) {
            sum += (double)row[i] * (double)w->x[i];
            size += fabs((double)row[i] * (double)w->x[i]);
        }
        assert_true(fabs(sum - (double)y[r]) < 2e-3 * size);
    }
}

static void every_back_end_gives_the_same_bits(void **state) {
    const world *w = *state;
    static float expected[BATCH * ROWS], y[BATCH * ROWS];
    int n = 0;
    for (int i = 0; kin_kernels_at(i); i++) {
        if (!kin_kernels_can_run(kin_kernels_at(i))) continue;
        multiply(w, kin_kernels_at(i), 0, BATCH, n ? y : expected);
        if (n++) assert_memory_equal(y, expected, sizeof y);
    }
    assert_true(n >= 1);
}

static void a_row_has_the_same_bits_in_every_batch(void **state) {
    const world *w = *state;
    static float all[BATCH * ROWS], y[BATCH * ROWS];
    multiply(w, kin_kernels_at(0), 0, BATCH, all);
    for (int n = 1; n <= BATCH; n++) {
        int first = (BATCH - n) / 2;
        multiply(w, kin_kernels_at(0), first, n, y);
        assert_memory_equal(y, all + first * ROWS, sizeof(float) * (size_t)(n * ROWS));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_the_weights),
        cmocka_unit_test(every_back_end_gives_the_same_bits),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_batch),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
