// An indexer's scores, which have the same bits on every back-end, and the choice of the greatest ones.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/panel.h"
#include "tests/place.h"

enum { CELLS = KIN_KV_CELLS, MOST_HEADS = 64, MOST_DIM = 128 };

static void fill(kin_rng *rng, size_t n, float *x) {
    for (size_t i = 0; i < n; i++) x[i] = (float)((int)(kin_rng_u64(rng) % 4001) - 2000) / 1000.0f;
}

// A query and a block of keys, as they are and as the cache has them.
typedef struct query {
    kin_index_query x;
    float q[MOST_HEADS * MOST_DIM], weights[MOST_HEADS], keys[CELLS * MOST_DIM];
    uint16_t k[CELLS * MOST_DIM];
} query;

// n_keys: of the block; of KIN_POOLED_KEYS they are adjacent
static void make_query(query *q, int n_head, int dim, int n_keys) {
    kin_rng rng;
    int32_t cells[CELLS];
    kin_rng_seed(&rng, (uint64_t)(n_head * 1000 + dim));
    fill(&rng, (size_t)(n_head * dim), q->q);
    fill(&rng, (size_t)n_head, q->weights);
    fill(&rng, (size_t)(CELLS * dim), q->keys);
    for (int i = 0; i < CELLS; i++) cells[i] = i;
    q->x = (kin_index_query){n_head, dim, q->q, q->weights, 0, n_keys};
    const kin_kv_rows rows = {.kv = {KIN_TYPE_F16, 1, dim, dim, true, false},
                              .k = q->k,
                              .k_rows = q->keys,
                              .v_rows = q->keys,
                              .ldk = dim,
                              .ldv = dim,
                              .cells = cells};
    kin_kernels_choose(NULL)->kv_store(&rows, 0, CELLS);
    for (int d = 0; d < dim && n_keys < CELLS; d++) memmove(q->k + d * n_keys, q->k + d * CELLS, (size_t)n_keys * sizeof *q->k);
}

static double score_of(const query *q, int cell) {
    double sum = 0;
    for (int h = 0; h < q->x.n_head; h++) {
        double product = 0;
        for (int d = 0; d < q->x.dim; d++) product += (double)q->q[h * q->x.dim + d] * (double)q->keys[cell * q->x.dim + d];
        sum += (product > (double)q->x.least ? product : (double)q->x.least) * (double)q->weights[h];
    }
    return sum;
}

static void check_scores(int n_head, int dim, float least, int n_keys) {
    query *q = malloc(sizeof *q);
    float want[CELLS], got[CELLS];
    assert_non_null(q);
    make_query(q, n_head, dim, n_keys);
    q->x.least = least;
    kin_kernels_choose(NULL)->index_scores(&q->x, q->k, want);
    for (int c = 0; c < n_keys; c++) {
        const double error = fabs((double)want[c] - score_of(q, c));
        if (!(error < 2e-3 * sqrt(n_head * dim))) fail_msg("%d heads of %d, cell %d: error %g", n_head, dim, c, error);
    }
    const kin_kernels *kernels;
    for (int i = 0; (kernels = kin_kernels_at(i)); i++) {
        if (!kin_kernels_can_run(kernels)) continue;
        kernels->index_scores(&q->x, q->k, got);
        assert_memory_equal(got, want, (size_t)n_keys * sizeof *want);
    }
    free(q);
}
#define check_scores(...) FROM_TEST(check_scores(__VA_ARGS__))

static void scores_are_those_of_double_precision_on_every_back_end(void **state) {
    (void)state;
    check_scores(64, 128, 0, CELLS);
    check_scores(32, 128, 0, CELLS);
    check_scores(7, 48, 0, CELLS);
    check_scores(1, 16, 0, CELLS);
    check_scores(1, 128, -INFINITY, CELLS);
    check_scores(5, 48, -INFINITY, CELLS);
    check_scores(4, 128, 0, KIN_POOLED_KEYS);
    check_scores(7, 48, 0, KIN_POOLED_KEYS);
}

// ---- the greatest

typedef struct scored {
    float score;
    int32_t at;
} scored;

// NaN last; of equal ones the first number first.
static int compare_scores(const void *a, const void *b) {
    const scored *x = a, *y = b;
    const float p = isnan(x->score) ? -INFINITY : x->score, q = isnan(y->score) ? -INFINITY : y->score;
    if (isnan(x->score) != isnan(y->score)) return isnan(x->score) ? 1 : -1;
    if (p != q) return p < q ? 1 : -1;
    return x->at < y->at ? -1 : 1;
}

static int compare_numbers(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void check_greatest(const float *scores, int n_scores, int n, int step) {
    static kin_greatest g;
    scored *all = malloc((size_t)n_scores * sizeof *all);
    int32_t *want = malloc((size_t)n * sizeof *want), *got = malloc((size_t)n * sizeof *got);
    assert_true(all && want && got);
    for (int i = 0; i < n_scores; i++) all[i] = (scored){scores[i], i};
    qsort(all, (size_t)n_scores, sizeof *all, compare_scores);
    for (int i = 0; i < n; i++) want[i] = all[i].at;
    qsort(want, (size_t)n, sizeof *want, compare_numbers);
    memset(&g, 0x5a, sizeof g);
    kin_greatest_begin(&g, n);
    for (int at = 0; at < n_scores; at += step)
        kin_greatest_add(&g, at, n_scores - at < step ? n_scores - at : step, scores + at);
    kin_greatest_end(&g, got);
    assert_memory_equal(got, want, (size_t)n * sizeof *want);
    free(all);
    free(want);
    free(got);
}
#define check_greatest(...) FROM_TEST(check_greatest(__VA_ARGS__))

// Scores of `levels` different values, so that many are equal; every 50th is NaN or infinite.
static float *make_scores(int n, int levels, uint64_t seed) {
    static const float special[] = {NAN, -NAN, INFINITY, -INFINITY, -0.0f};
    float *scores = malloc((size_t)n * sizeof *scores);
    kin_rng rng;
    assert_non_null(scores);
    kin_rng_seed(&rng, seed);
    for (int i = 0; i < n; i++) {
        scores[i] = ((float)(kin_rng_u64(&rng) % (uint64_t)levels) - (float)levels / 3) * 0.37f;
        if (kin_rng_u64(&rng) % 50 == 0) scores[i] = special[kin_rng_u64(&rng) % 5];
    }
    return scores;
}

static void the_greatest_scores_are_chosen_and_of_equal_ones_the_first(void **state) {
    static const int sizes[][2] = {{1, 1},        {17, 16},      {52, 16},     {3000, 2048},
                                   {20000, 2048}, {40000, 4096}, {4096, 4096}, {30000, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int levels = 1; levels < 1 << 22; levels *= 40) {
            float *scores = make_scores(sizes[i][0], levels, i);
            check_greatest(scores, sizes[i][0], sizes[i][1], 64);
            check_greatest(scores, sizes[i][0], sizes[i][1], 1000);
            free(scores);
        }
    }
}

// Whatever the order, also one in which each score is among the greatest so far.
static void ascending_and_descending_scores_are_chosen_alike(void **state) {
    enum { N = 25000 };
    float *up = malloc(N * sizeof *up), *down = malloc(N * sizeof *down);
    (void)state;
    assert_true(up && down);
    for (int i = 0; i < N; i++) {
        up[i] = (float)i - 100.5f;
        down[N - 1 - i] = up[i];
    }
    check_greatest(up, N, 2048, 64);
    check_greatest(down, N, 2048, 64);
    free(up);
    free(down);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_of_double_precision_on_every_back_end),
        cmocka_unit_test(the_greatest_scores_are_chosen_and_of_equal_ones_the_first),
        cmocka_unit_test(ascending_and_descending_scores_are_chosen_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
