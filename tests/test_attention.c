// Attention over a KV cache in blocks: the results are right, and a row's bits are the same on every back-end, with any other
// rows in the batch, for every split into tasks, for any placement of its blocks, and whatever the cells outside its view hold.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/panel.h"
#include "testkit/sanitized.h"
#include "tests/place.h"

enum { MOST_SEQUENCES = 4, TABLE = 64 };

// Sequences with their cells in one cache, which is filled with NaN before anything is stored.
typedef struct context {
    kin_kv_layout kv;
    int n_head;
    int n_sequences, n_positions[MOST_SEQUENCES];
    int32_t tables[MOST_SEQUENCES][TABLE];
    float *k_rows[MOST_SEQUENCES], *v_rows[MOST_SEQUENCES]; // f32 [n_positions, n_head_kv * k_dim], v_dim
    float *q[MOST_SEQUENCES];                               // f32 [n_positions, n_head * k_dim]
    size_t k_bytes, v_bytes;
    void *k, *v;
} context;

typedef struct row {
    int sequence, position;
} row;

static const kin_kernels *best(void) {
    const kin_kernels *kernels = kin_kernels_choose(NULL);
    assert_non_null(kernels);
    return kernels;
}
#define best(...) FROM_TEST(best(__VA_ARGS__))

static void *allocate(size_t n) {
    void *p = malloc(n ? n : 1);
    assert_non_null(p);
    return p;
}
#define allocate(...) FROM_TEST(allocate(__VA_ARGS__))

static float *random_floats(kin_rng *rng, size_t n, float size) {
    float *x = allocate(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = size * (float)((int)(kin_rng_u64(rng) % 4001) - 2000) / 2000.0f;
    return x;
}

static void store(const context *w, const kin_kernels *kernels) {
    memset(w->k, 0xff, w->k_bytes); // NaN in every cell type
    memset(w->v, 0xff, w->v_bytes);
    for (int s = 0; s < w->n_sequences; s++) {
        const int n = w->n_positions[s];
        int32_t *cells = allocate((size_t)n * sizeof *cells);
        for (int i = 0; i < n; i++) cells[i] = w->tables[s][i / KIN_KV_CELLS] * KIN_KV_CELLS + i % KIN_KV_CELLS;
        kin_kv_rows rows = {.kv = w->kv,
                            .k = w->k,
                            .v = w->kv.v_in_k ? NULL : w->v,
                            .k_rows = w->k_rows[s],
                            .v_rows = w->v_rows[s],
                            .ldk = w->kv.n_head_kv * w->kv.k_dim,
                            .ldv = w->kv.n_head_kv * w->kv.v_dim,
                            .cells = cells};
        kernels->kv_store(&rows, 0, n / 3);
        kernels->kv_store(&rows, n / 3, n);
        free(cells);
    }
}
#define store(...) FROM_TEST(store(__VA_ARGS__))

// Assigns the blocks of all sequences in an order shuffled by `seed`. The values do not depend on it.
static void place(context *w, uint64_t seed) {
    int32_t order[MOST_SEQUENCES * TABLE];
    int n = 0, used = 0;
    kin_rng rng;
    kin_rng_seed(&rng, seed);
    for (int s = 0; s < w->n_sequences; s++) n += (w->n_positions[s] + KIN_KV_CELLS - 1) / KIN_KV_CELLS;
    for (int i = 0; i < n; i++) {
        int j = (int)(kin_rng_u64(&rng) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    for (int s = 0; s < w->n_sequences; s++)
        for (int i = 0; i * KIN_KV_CELLS < w->n_positions[s]; i++) w->tables[s][i] = order[used++];
    store(w, best());
}
#define place(...) FROM_TEST(place(__VA_ARGS__))

static void open_context(context *w, kin_kv_layout kv, int group, int n_sequences, const int *n_positions) {
    kin_rng rng;
    int n_blocks = 0;
    *w = (context){.kv = kv, .n_head = kv.n_head_kv * group, .n_sequences = n_sequences};
    kin_rng_seed(&rng, 7);
    for (int s = 0; s < n_sequences; s++) {
        const size_t n = (size_t)n_positions[s], k_width = (size_t)(kv.n_head_kv * kv.k_dim);
        w->n_positions[s] = n_positions[s];
        w->k_rows[s] = random_floats(&rng, n * k_width, 1);
        w->v_rows[s] = random_floats(&rng, n * (size_t)(kv.n_head_kv * kv.v_dim), 2);
        w->q[s] = random_floats(&rng, n * k_width * (size_t)group, 3);
        n_blocks += (n_positions[s] + KIN_KV_CELLS - 1) / KIN_KV_CELLS;
    }
    w->k_bytes = (size_t)n_blocks * kin_kv_block_bytes(&kv, true);
    w->v_bytes = (size_t)n_blocks * kin_kv_block_bytes(&kv, false);
    w->k = aligned_alloc(64, w->k_bytes);
    w->v = aligned_alloc(64, w->v_bytes);
    assert_true(w->k && w->v);
    place(w, 1);
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

static void close_context(context *w) {
    for (int s = 0; s < w->n_sequences; s++) {
        free(w->k_rows[s]);
        free(w->v_rows[s]);
        free(w->q[s]);
    }
    free(w->k);
    free(w->v);
}

// Parameters of a batch's computation.
typedef struct manner {
    const kin_kernels *kernels;
    int n_threads; // for the plan of tasks
    bool may_split;
    int step;   // tasks per call
    int window; // cells that a row sees; 0: all
    const int32_t *chosen, *chosen_blocks, *chosen_groups;
    int n_chosen, chosen_pool, chosen_step;
} manner;

static manner plain(void) {
    return (manner){.kernels = best(), .n_threads = 1, .step = 1000000};
}
#define plain(...) FROM_TEST(plain(__VA_ARGS__))

static void run(kin_attention *a, const manner *m) {
    int64_t n = kin_attention_plan(a, m->n_threads);
    if (m->may_split && m->n_threads > 1 && a->n_seen > KIN_SPAN_CELLS) assert_true(a->n_spans > 1);
    if (!m->may_split) assert_int_equal(a->n_spans, 1);
    for (int64_t end = n; end > 0; end -= m->step) m->kernels->attend(a, end < m->step ? 0 : end - m->step, end);
    if (a->n_spans == 1) return;
    m->kernels->attend_merge(a, a->n_rows / 2, a->n_rows);
    m->kernels->attend_merge(a, 0, a->n_rows / 2);
}

// Returns the floats in the result of a row.
static size_t out_width(const context *w) {
    return (size_t)(w->n_head * w->kv.v_dim);
}

// out // f32 [n, out_width]
static void attend(const context *w, const row *rows, int n, const manner *m, float *out) {
    const size_t width = (size_t)(w->n_head * w->kv.k_dim);
    float *q = allocate((size_t)n * width * sizeof *q);
    int32_t *n_cells = allocate((size_t)n * sizeof *n_cells), *first = allocate((size_t)n * sizeof *first);
    const int32_t **blocks = allocate((size_t)n * sizeof *blocks);
    for (int i = 0; i < n; i++) {
        memcpy(q + (size_t)i * width, w->q[rows[i].sequence] + (size_t)rows[i].position * width, width * sizeof *q);
        n_cells[i] = rows[i].position + 1;
        first[i] = m->window && n_cells[i] > m->window ? n_cells[i] - m->window : 0;
        blocks[i] = w->tables[rows[i].sequence];
    }
    size_t partial_bytes = kin_attention_partial_bytes(&w->kv, w->n_head, n, TABLE * KIN_KV_CELLS);
    kin_attention a = {.kv = w->kv,
                       .k = w->k,
                       .v = w->v,
                       .n_head = w->n_head,
                       .scale = 0.125f,
                       .n_rows = n,
                       .q = q,
                       .ldq = (int64_t)width,
                       .n_cells = n_cells,
                       .first_cells = m->window ? first : NULL,
                       .chosen = m->chosen,
                       .n_chosen = m->n_chosen,
                       .chosen_pool = m->chosen_pool,
                       .chosen_blocks = m->chosen_blocks,
                       .chosen_step = m->chosen_step,
                       .chosen_groups = m->chosen_groups,
                       .blocks = blocks,
                       .out = out,
                       .ldo = (int64_t)out_width(w),
                       .partial = m->may_split ? allocate(partial_bytes) : NULL,
                       .partial_bytes = partial_bytes};
    memset(out, 0xff, (size_t)n * out_width(w) * sizeof *out);
    run(&a, m);
    free(a.partial);
    free(q);
    free(n_cells);
    free(first);
    free(blocks);
}

// Fills `rows` with positions [begin, end) of a sequence and returns their number.
static int rows_of(int sequence, int begin, int end, row *rows) {
    for (int i = begin; i < end; i++) rows[i - begin] = (row){sequence, i};
    return end - begin;
}

static float *results(const context *w, const row *rows, int n, const manner *m) {
    float *out = allocate((size_t)n * out_width(w) * sizeof *out);
    attend(w, rows, n, m, out);
    return out;
}
#define results(...) FROM_TEST(results(__VA_ARGS__))

static void assert_same(const context *w, const float *a, const float *b, int n) {
    assert_memory_equal(a, b, (size_t)n * out_width(w) * sizeof *a);
}
#define assert_same(...) FROM_TEST(assert_same(__VA_ARGS__))

// ---- against double precision

// Computes one head's output for a row in double precision, from the stored rows.
static void reference(const context *w, row r, int head, int window, double *out) {
    const int dim = w->kv.k_dim, v_dim = w->kv.v_dim, kv_head = head / (w->n_head / w->kv.n_head_kv);
    const float *q = w->q[r.sequence] + (size_t)r.position * (size_t)(w->n_head * dim) + head * dim;
    double sum = 0;
    for (int d = 0; d < v_dim; d++) out[d] = 0;
    for (int c = window && r.position >= window ? r.position + 1 - window : 0; c <= r.position; c++) {
        const float *k = w->k_rows[r.sequence] + (size_t)(c * w->kv.n_head_kv + kv_head) * (size_t)dim;
        const float *v = w->v_rows[r.sequence] + (size_t)(c * w->kv.n_head_kv + kv_head) * (size_t)v_dim;
        double score = 0;
        for (int d = 0; d < dim; d++) score += (double)q[d] * (double)k[d];
        double p = exp(0.125 * score);
        for (int d = 0; d < v_dim; d++) out[d] += p * (double)v[d];
        sum += p;
    }
    for (int d = 0; d < v_dim; d++) out[d] /= sum;
}

static void check_row(const context *w, row r, int window, double tolerance) {
    manner m = plain();
    m.window = window;
    float *out = results(w, &r, 1, &m);
    double expected[KIN_KV_DIM];
    for (int head = 0; head < w->n_head; head++) {
        reference(w, r, head, window, expected);
        for (int d = 0; d < w->kv.v_dim; d++) {
            double error = fabs(expected[d] - (double)out[head * w->kv.v_dim + d]);
            if (!(error < tolerance)) fail_msg("row %d head %d [%d]: error %g", r.position, head, d, error);
        }
    }
    free(out);
}
#define check_row(...) FROM_TEST(check_row(__VA_ARGS__))

static void results_are_those_of_double_precision(void **state) {
    (void)state;
    const int dims[][2] = {{16, 16},   {64, 64},   {80, 80},   {96, 96},   {128, 128}, {192, 192},
                           {256, 256}, {512, 512}, {576, 512}, {576, 576}, {192, 128}, {64, 320}};
    const int positions[] = {0, 5, 63, 64, 511, 512, 600}, n = 601;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        for (int is_q8_0 = 0; is_q8_0 < 2; is_q8_0++) {
            context w;
            kin_kv_layout kv = {is_q8_0 ? KIN_TYPE_Q8_0 : KIN_TYPE_F16, 2, dims[i][0], dims[i][1], false, false};
            if (!kin_kv_has(&kv)) continue;
            open_context(&w, kv, 3, 1, &n);
            for (size_t j = 0; j < sizeof positions / sizeof *positions; j++) {
                check_row(&w, (row){0, positions[j]}, 0, is_q8_0 ? 4e-2 : 4e-3);
                check_row(&w, (row){0, positions[j]}, 100, is_q8_0 ? 4e-2 : 4e-3);
            }
            close_context(&w);
        }
    }
}

// ---- the same bits

static void every_back_end_gives_the_same_bits(void **state) {
    (void)state;
    enum { N = KIN_SANITIZED ? 50 : 150, BEGIN = 480 };
    const int dims[][2] = {{64, 64},   {80, 80},   {96, 96},   {128, 128}, {160, 160}, {192, 192}, {224, 224},
                           {256, 256}, {288, 288}, {512, 512}, {576, 512}, {576, 576}, {192, 128}, {96, 512}};
    const int n = BEGIN + N;
    row rows[N];
    rows_of(0, BEGIN, BEGIN + N, rows);
    for (size_t i = 0; i < 2 * sizeof dims / sizeof *dims; i++) {
        context w;
        kin_kv_layout kv = {i % 2 ? KIN_TYPE_Q8_0 : KIN_TYPE_F16, 2, dims[i / 2][0], dims[i / 2][1], false, false};
        if (!kin_kv_has(&kv)) continue;
        open_context(&w, kv, 4, 1, &n);
        void *k = allocate(w.k_bytes), *v = allocate(w.v_bytes);
        memcpy(k, w.k, w.k_bytes);
        memcpy(v, w.v, w.v_bytes);
        manner m = plain();
        float *expected = results(&w, rows, N, &m);
        for (int b = 0; (m.kernels = kin_kernels_at(b)); b++) {
            if (!kin_kernels_can_run(m.kernels)) continue;
            store(&w, m.kernels);
            assert_memory_equal(k, w.k, w.k_bytes);
            assert_memory_equal(v, w.v, w.v_bytes);
            float *out = results(&w, rows, N, &m);
            assert_same(&w, out, expected, N);
            free(out);
        }
        free(k);
        free(v);
        free(expected);
        close_context(&w);
    }
}

// Makes the values of each head the first ones of its key.
static void share_values_of_keys(context *w) {
    const int k_dim = w->kv.k_dim, v_dim = w->kv.v_dim;
    for (int s = 0; s < w->n_sequences; s++)
        for (int i = 0; i < w->n_positions[s] * w->kv.n_head_kv; i++)
            memcpy(w->v_rows[s] + i * v_dim, w->k_rows[s] + i * k_dim, (size_t)v_dim * sizeof(float));
    place(w, 1);
}

static void assert_values_in_keys(kin_kv_layout kv, int group, int window) {
    enum { N = KIN_SANITIZED ? 10 : 70, BEGIN = 500 };
    const int n = BEGIN + N, n_rows[] = {N, 1};
    row rows[N];
    context apart, within;
    rows_of(0, BEGIN, BEGIN + N, rows);
    open_context(&apart, kv, group, 1, &n);
    share_values_of_keys(&apart);
    kv.v_in_k = true;
    open_context(&within, kv, group, 1, &n);
    assert_int_equal(within.v_bytes, 0);
    assert_memory_equal(within.k, apart.k, apart.k_bytes);
    manner m = plain();
    m.window = window;
    for (int b = 0; (m.kernels = kin_kernels_at(b)); b++) {
        for (size_t i = 0; kin_kernels_can_run(m.kernels) && i < sizeof n_rows / sizeof *n_rows; i++) {
            float *expected = results(&apart, rows, n_rows[i], &m), *out = results(&within, rows, n_rows[i], &m);
            assert_same(&within, out, expected, n_rows[i]);
            free(expected);
            free(out);
        }
    }
    close_context(&apart);
    close_context(&within);
}
#define assert_values_in_keys(...) FROM_TEST(assert_values_in_keys(__VA_ARGS__))

static void values_within_keys_give_the_bits_of_values_beside_them(void **state) {
    (void)state;
    const int dims[][2] = {{48, 32}, {64, 64}, {96, 32}, {288, 256}, {576, 512}};
    for (size_t i = 0; i < 2 * sizeof dims / sizeof *dims; i++) {
        const kin_kv_layout kv = {
            i % 2 ? KIN_TYPE_Q8_0 : KIN_TYPE_F16, 1 + (i / 2) % 2, dims[i / 2][0], dims[i / 2][1], false, false};
        if (!kin_kv_has(&kv)) continue;
        assert_values_in_keys(kv, 16, 0);
        assert_values_in_keys(kv, 1, 100);
    }
}

// ---- keys by cell

static void keys_by_cell_give_the_bits_of_keys_by_block(void **state) {
    enum { N = KIN_SANITIZED ? 10 : 70, BEGIN = 500 };
    const int dims[][2] = {{48, 32}, {64, 64}, {288, 256}, {576, 512}}, n = BEGIN + N, n_rows[] = {N, 3, 1};
    row rows[N];
    (void)state;
    rows_of(0, BEGIN, BEGIN + N, rows);
    for (size_t i = 0; i < 2 * sizeof dims / sizeof *dims; i++) {
        kin_kv_layout kv = {i % 2 ? KIN_TYPE_Q8_0 : KIN_TYPE_F16, 1 + (i / 2) % 2, dims[i / 2][0], dims[i / 2][1], true, false};
        context by_block, by_cell;
        manner m = plain();
        if (!kin_kv_has(&kv)) continue;
        open_context(&by_block, kv, 5, 1, &n);
        kv.by_cell = true;
        open_context(&by_cell, kv, 5, 1, &n);
        assert_int_equal(by_cell.k_bytes, by_block.k_bytes);
        for (int b = 0; (m.kernels = kin_kernels_at(b)); b++) {
            if (!kin_kernels_can_run(m.kernels)) continue;
            store(&by_cell, m.kernels);
            for (size_t k = 0; k < sizeof n_rows / sizeof *n_rows; k++) {
                float *want = results(&by_block, rows, n_rows[k], &m), *got = results(&by_cell, rows, n_rows[k], &m);
                assert_same(&by_cell, got, want, n_rows[k]);
                free(want);
                free(got);
            }
        }
        close_context(&by_block);
        close_context(&by_cell);
    }
}

// Writes n of the positions before `end` to `chosen`, ascending.
static void choose_some(kin_rng *rng, int end, int n, int32_t *chosen) {
    for (int pos = 0, left = n; left > 0; pos++)
        if ((int)(kin_rng_u64(rng) % (uint64_t)(end - pos)) < left) chosen[n - left--] = pos;
}

// Returns the result of a row that sees only these positions, from a sequence that has no others.
static float *result_of_few(const context *w, row r, const int32_t *chosen, int n) {
    const size_t k_width = (size_t)(w->kv.n_head_kv * w->kv.k_dim), q_width = (size_t)(w->n_head * w->kv.k_dim);
    const size_t v_width = (size_t)(w->kv.n_head_kv * w->kv.v_dim);
    const manner m = plain();
    context few;
    open_context(&few, w->kv, w->n_head / w->kv.n_head_kv, 1, &n);
    for (int i = 0; i < n; i++) {
        memcpy(few.k_rows[0] + (size_t)i * k_width, w->k_rows[r.sequence] + (size_t)chosen[i] * k_width, k_width * sizeof(float));
        memcpy(few.v_rows[0] + (size_t)i * v_width, w->v_rows[r.sequence] + (size_t)chosen[i] * v_width, v_width * sizeof(float));
    }
    memcpy(few.q[0] + (size_t)(n - 1) * q_width, w->q[r.sequence] + (size_t)r.position * q_width, q_width * sizeof(float));
    store(&few, best());
    float *out = results(&few, &(row){0, n - 1}, 1, &m);
    close_context(&few);
    return out;
}
#define result_of_few(...) FROM_TEST(result_of_few(__VA_ARGS__))

// All kernels that this processor can run give each row the result that is wanted: want // [n], freed here
static void expect_rows(const context *w, const row *rows, int n, manner *m, float **want) {
    for (int b = 0; (m->kernels = kin_kernels_at(b)); b++) {
        if (!kin_kernels_can_run(m->kernels)) continue;
        float *got = results(w, rows, n, m);
        for (int i = 0; i < n; i++) assert_same(w, got + (size_t)i * out_width(w), want[i], 1);
        free(got);
    }
    for (int i = 0; i < n; i++) free(want[i]);
}
#define expect_rows(...) FROM_TEST(expect_rows(__VA_ARGS__))

// pool: of the places for chosen positions a row uses as many as kin_attention.chosen_pool says; 1: all
static void check_chosen(kin_kv_layout kv, int group, int n_chosen, int pool, int n_threads, bool may_split) {
    enum { ROWS = 6 };
    const row rows[ROWS] = {{0, 1290}, {1, 1299}, {0, 30}, {0, 31}, {0, 1299}, {0, 700}};
    const int n[] = {1300, 1300};
    int32_t *chosen = allocate((size_t)(ROWS * n_chosen) * sizeof *chosen);
    float *want[ROWS];
    context w;
    kin_rng rng;
    kin_rng_seed(&rng, 3);
    open_context(&w, kv, group, 2, n);
    memset(chosen, 0xff, (size_t)(ROWS * n_chosen) * sizeof *chosen); // places that are not used must not be read
    for (int i = 0; i < ROWS; i++) {
        const manner alone = plain();
        const int end = rows[i].position + 1, n_few = n_chosen - pool + 1 + end % pool;
        int32_t *of_row = chosen + i * n_chosen;
        if (end > n_chosen) choose_some(&rng, end, n_few, of_row);
        want[i] = end <= n_chosen ? results(&w, &rows[i], 1, &alone) : result_of_few(&w, rows[i], of_row, n_few);
    }
    manner m = {.n_threads = n_threads, .may_split = may_split, .step = n_threads, .chosen = chosen, .n_chosen = n_chosen};
    m.chosen_pool = pool > 1 ? pool : 0;
    expect_rows(&w, rows, ROWS, &m, want);
    free(chosen);
    close_context(&w);
}
#define check_chosen(...) FROM_TEST(check_chosen(__VA_ARGS__))

static void a_row_that_chooses_has_the_bits_of_a_sequence_of_the_chosen_cells(void **state) {
    (void)state;
    for (int is_q8_0 = 0; is_q8_0 < 2; is_q8_0++) {
        const kin_kv_layout kv = {is_q8_0 ? KIN_TYPE_Q8_0 : KIN_TYPE_F16, 1, 96, 64, true, true};
        check_chosen(kv, 4, 31, 1, 1, false);
        check_chosen(kv, 4, 600, 1, 1, false);
        check_chosen(kv, 4, 600, 1, 8, true);
        check_chosen(kv, 90, 512, 1, 3, false); // queries of two tiles
        check_chosen(kv, 4, 31, 4, 1, false);
        check_chosen(kv, 4, 603, 4, 8, true);
    }
}

// Chooses n blocks of `step` positions, the row's own among them. Writes the cache's blocks, and the positions up to the row's
// own; returns how many these are.
static int choose_some_blocks(const context *w, kin_rng *rng, row r, int n, int step, int32_t *blocks, int32_t *positions) {
    int32_t chosen[16];
    int n_positions = 0;
    const int parts = step / KIN_KV_CELLS;
    chosen[n - 1] = r.position / step;
    choose_some(rng, chosen[n - 1], n - 1, chosen);
    for (int i = 0; i < n * parts; i++) {
        const int first = chosen[i / parts] * step + i % parts * KIN_KV_CELLS;
        blocks[i] = first <= r.position ? w->tables[r.sequence][first / KIN_KV_CELLS] : -1; // it is not read
        for (int k = 0; k < KIN_KV_CELLS && first + k <= r.position; k++) positions[n_positions++] = first + k;
    }
    return n_positions;
}

static void check_chosen_blocks(kin_kv_layout kv, int group, int step, int n_threads, bool may_split) {
    enum { ROWS = 6, N_BLOCKS = 5 };
    const row rows[ROWS] = {{0, 1290}, {1, 1299}, {0, N_BLOCKS * 128}, {0, 30}, {0, 1279}, {0, 1280}};
    const int n[] = {1300, 1300}, n_chosen = N_BLOCKS * step, n_ids = n_chosen / KIN_KV_CELLS, n_head_kv = kv.n_head_kv;
    int32_t *blocks = allocate((size_t)(ROWS * n_head_kv * n_ids) * sizeof *blocks), positions[1300];
    context w;
    kin_rng rng;
    kin_rng_seed(&rng, 4);
    open_context(&w, kv, group, 2, n);
    const size_t width = out_width(&w), of_head = width / (size_t)n_head_kv;
    float *want = allocate(ROWS * width * sizeof *want);
    memset(blocks, 0xff, (size_t)(ROWS * n_head_kv * n_ids) * sizeof *blocks); // rows that see all do not read it
    for (int i = 0; i < ROWS * n_head_kv; i++) {
        const row r = rows[i / n_head_kv];
        const manner alone = plain();
        float *result;
        if (r.position < n_chosen) {
            result = results(&w, &r, 1, &alone);
        } else {
            const int n_seen = choose_some_blocks(&w, &rng, r, N_BLOCKS, step, blocks + i * n_ids, positions);
            result = result_of_few(&w, r, positions, n_seen);
        }
        memcpy(want + (size_t)i * of_head, result + (size_t)(i % n_head_kv) * of_head, of_head * sizeof *want);
        free(result);
    }
    manner m = {.n_threads = n_threads, .may_split = may_split, .step = n_threads, .n_chosen = n_chosen};
    m.chosen_blocks = blocks;
    m.chosen_step = step;
    for (int b = 0; (m.kernels = kin_kernels_at(b)); b++) {
        if (!kin_kernels_can_run(m.kernels)) continue;
        float *got = results(&w, rows, ROWS, &m);
        assert_same(&w, got, want, ROWS);
        free(got);
    }
    free(want);
    free(blocks);
    close_context(&w);
}
#define check_chosen_blocks(...) FROM_TEST(check_chosen_blocks(__VA_ARGS__))

static void heads_that_choose_blocks_have_the_bits_of_sequences_of_these(void **state) {
    (void)state;
    for (int is_q8_0 = 0; is_q8_0 < 2; is_q8_0++) {
        const kin_kv_layout kv = {is_q8_0 ? KIN_TYPE_Q8_0 : KIN_TYPE_F16, 2, 96, 64, false, false};
        check_chosen_blocks(kv, 4, 64, 1, false);
        check_chosen_blocks(kv, 4, 128, 1, false);
        check_chosen_blocks(kv, 4, 128, 8, true);
    }
}

static void check_chunks(const context *w, int n, manner m) {
    const int chunks[] = {1, 3, 16, 64};
    row *rows = allocate((size_t)n * sizeof *rows);
    rows_of(0, 0, n, rows);
    float *all = results(w, rows, n, &m);
    const size_t width = out_width(w);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        for (int begin = 0; begin < n; begin += chunks[i]) {
            int rows_here = n - begin < chunks[i] ? n - begin : chunks[i];
            float *out = results(w, rows + begin, rows_here, &m);
            assert_same(w, out, all + (size_t)begin * width, rows_here);
            free(out);
        }
    }
    free(all);
    free(rows);
}
#define check_chunks(...) FROM_TEST(check_chunks(__VA_ARGS__))

// Chooses n groups of the row's whole ones. Writes their positions, and those after the last whole group; returns how many these
// are.
static int choose_some_groups(kin_rng *rng, row r, int n, int step, int32_t *groups, int32_t *positions) {
    const int n_whole = (r.position + 1) / step;
    int n_positions = 0;
    choose_some(rng, n_whole, n, groups);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < step; k++) positions[n_positions++] = groups[i] * step + k;
    for (int pos = n_whole * step; pos <= r.position; pos++) positions[n_positions++] = pos;
    return n_positions;
}

static void check_chosen_groups(kin_kv_layout kv, int group, int n_chosen, int step, int n_threads, bool may_split) {
    enum { ROWS = 7 };
    const row rows[ROWS] = {{0, 1290}, {1, 1299}, {0, n_chosen + step - 2}, {0, n_chosen + step - 1}, {0, 30},
                            {0, 1279}, {1, 1281}};
    const int n[] = {1300, 1300}, n_groups = n_chosen / step;
    int32_t *groups = allocate((size_t)(ROWS * n_groups) * sizeof *groups), positions[1300];
    float *want[ROWS];
    context w;
    kin_rng rng;
    kin_rng_seed(&rng, 5);
    open_context(&w, kv, group, 2, n);
    memset(groups, 0xff, (size_t)(ROWS * n_groups) * sizeof *groups); // rows that see all do not read it
    for (int i = 0; i < ROWS; i++) {
        const manner alone = plain();
        const bool sees_all = (rows[i].position + 1) / step <= n_groups;
        const int n_seen = sees_all ? 0 : choose_some_groups(&rng, rows[i], n_groups, step, groups + i * n_groups, positions);
        want[i] = sees_all ? results(&w, &rows[i], 1, &alone) : result_of_few(&w, rows[i], positions, n_seen);
    }
    manner m = {.n_threads = n_threads, .may_split = may_split, .step = n_threads, .n_chosen = n_chosen};
    m.chosen_groups = groups;
    m.chosen_step = step;
    expect_rows(&w, rows, ROWS, &m, want);
    free(groups);
    close_context(&w);
}
#define check_chosen_groups(...) FROM_TEST(check_chosen_groups(__VA_ARGS__))

static void a_row_that_chooses_groups_has_the_bits_of_a_sequence_of_their_cells(void **state) {
    (void)state;
    for (int is_q8_0 = 0; is_q8_0 < 2; is_q8_0++) {
        const kin_kv_layout kv = {is_q8_0 ? KIN_TYPE_Q8_0 : KIN_TYPE_F16, 2, 96, 64, false, false};
        check_chosen_groups(kv, 4, 28, 4, 1, false);
        check_chosen_groups(kv, 12, 600, 4, 1, false);
        check_chosen_groups(kv, 12, 600, 4, 8, true);
        check_chosen_groups(kv, 4, 512, 16, 3, false);
        check_chosen_groups(kv, 90, 64, 64, 1, false); // queries of two tiles
    }
}

static void a_row_has_the_same_bits_in_every_chunk(void **state) {
    (void)state;
    const int groups[] = {1, 2, 4, 5, 7, 16, 71}, n = 600;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        context w;
        open_context(&w, (kin_kv_layout){i % 2 ? KIN_TYPE_Q8_0 : KIN_TYPE_F16, 1, 64, 64, false, false}, groups[i], 1, &n);
        manner m = plain();
        check_chunks(&w, n, m);
        m.window = 70;
        check_chunks(&w, 200, m);
        close_context(&w);
    }
}

static void check_splits(kin_kv_layout kv, int group, int begin, int n_rows) {
    const int n = begin + n_rows;
    context w;
    row rows[64];
    open_context(&w, kv, group, 1, &n);
    rows_of(0, begin, n, rows);
    for (int window = 0; window <= 700; window += 700) {
        manner m = plain();
        m.window = window;
        float *expected = results(&w, rows, n_rows, &m);
        for (int threads = 2; threads <= 16; threads *= 2) {
            for (int split = 0; split < 2; split++) {
                m = (manner){
                    .kernels = best(), .n_threads = threads, .may_split = split, .step = threads % 3 + 1, .window = window};
                float *out = results(&w, rows, n_rows, &m);
                assert_same(&w, out, expected, n_rows);
                free(out);
            }
        }
        free(expected);
    }
    close_context(&w);
}
#define check_splits(...) FROM_TEST(check_splits(__VA_ARGS__))

static void a_row_has_the_same_bits_for_every_split_into_tasks(void **state) {
    (void)state;
    check_splits((kin_kv_layout){KIN_TYPE_F16, 2, 64, 64, false, false}, 4, 1500, 24);
    check_splits((kin_kv_layout){KIN_TYPE_F16, 1, 576, 512, true, false}, 17, 600, 1); // queries of two tiles
}

static void queries_of_a_head_that_exceed_a_tile_are_several_tasks(void **state) {
    const int n_tasks[][2] = {{1, 1}, {14, 1}, {15, 2}, {128, 10}}; // for these queries
    const int32_t n_cells = 40;
    (void)state;
    for (size_t i = 0; i < sizeof n_tasks / sizeof *n_tasks; i++) {
        const int n_head = n_tasks[i][0];
        kin_attention a = {.kv = {KIN_TYPE_F16, 1, 576, 512, true, false}, .n_head = n_head, .n_rows = 1, .n_cells = &n_cells};
        a.blocks = (const int32_t *const[]){NULL};
        assert_int_equal(kin_attention_plan(&a, 2), n_tasks[i][1]);
        int64_t end = 0;
        for (int task = 0; task < n_tasks[i][1]; task++) {
            const kin_attention_part p = kin_attention_part_of(&a, task);
            assert_int_equal(p.begin, end);
            assert_in_range(p.width, 512, 14 * 512);
            end = p.begin + p.width;
        }
        assert_int_equal(end, n_head * 512);
    }
}

static void a_row_has_the_same_bits_wherever_its_blocks_stand(void **state) {
    (void)state;
    const int n[] = {700, 300};
    context w;
    row r = {0, 699};
    manner m = plain();
    open_context(&w, (kin_kv_layout){KIN_TYPE_F16, 2, 128, 128, false, false}, 4, 2, n);
    float *expected = results(&w, &r, 1, &m);
    for (uint64_t seed = 2; seed < 6; seed++) {
        place(&w, seed);
        float *out = results(&w, &r, 1, &m);
        assert_same(&w, out, expected, 1);
        free(out);
    }
    free(expected);
    close_context(&w);
}

static void a_row_has_the_same_bits_beside_rows_of_other_sequences(void **state) {
    (void)state;
    enum { N = 90 };
    const int n[] = {700, 64, 1, 150};
    context w;
    row rows[N];
    kin_rng rng;
    manner m = plain();
    open_context(&w, (kin_kv_layout){KIN_TYPE_F16, 2, 64, 64, false, false}, 4, 4, n);
    kin_rng_seed(&rng, 3);
    for (int i = 0; i < N; i++) {
        int s = (int)(kin_rng_u64(&rng) % 4);
        rows[i] = i % 3 ? (row){rows[i - 1].sequence, (rows[i - 1].position + 7) % n[rows[i - 1].sequence]}
                        : (row){s, (int)(kin_rng_u64(&rng) % (uint64_t)n[s])};
    }
    float *all = results(&w, rows, N, &m);
    for (int i = 0; i < N; i++) {
        float *out = results(&w, rows + i, 1, &m);
        assert_same(&w, out, all + (size_t)i * out_width(&w), 1);
        free(out);
    }
    free(all);
    close_context(&w);
}

static void what_unseen_cells_hold_changes_nothing(void **state) {
    (void)state;
    enum { N = 40, BEGIN = 90 };
    const int n = BEGIN + N;
    context w;
    row rows[N];
    rows_of(0, BEGIN, n, rows);
    open_context(&w, (kin_kv_layout){KIN_TYPE_F16, 2, 64, 64, false, false}, 1, 1, &n);
    manner m = plain();
    m.window = 80;
    float *expected = results(&w, rows, N, &m); // cells beyond position 129 are NaN
    for (int p = 0; p < n; p++) {
        if (p >= BEGIN - 75 && p < n - 20) continue; // keep the cells that rows 5 to 19 see
        for (int i = 0; i < w.kv.n_head_kv * w.kv.k_dim; i++)
            w.k_rows[0][p * 128 + i] = w.v_rows[0][p * 128 + i] = i % 2 ? NAN : INFINITY;
    }
    store(&w, m.kernels);
    float *out = results(&w, rows, N, &m);
    const size_t width = out_width(&w);
    for (int i = 5; i < N - 20; i++) assert_same(&w, out + (size_t)i * width, expected + (size_t)i * width, 1);
    for (size_t i = 0; i < N * width; i++) assert_true(isfinite(expected[i]));
    free(expected);
    free(out);
    close_context(&w);
}

static void a_row_that_sees_nothing_gets_zeros(void **state) {
    (void)state;
    const int n = 1;
    context w;
    float out[64];
    open_context(&w, (kin_kv_layout){KIN_TYPE_F16, 1, 64, 64, false, false}, 1, 1, &n);
    const int32_t n_cells = 0, *blocks = w.tables[0];
    kin_attention a = {.kv = w.kv,
                       .k = w.k,
                       .v = w.v,
                       .n_head = 1,
                       .scale = 1,
                       .n_rows = 1,
                       .q = w.q[0],
                       .ldq = 64,
                       .n_cells = &n_cells,
                       .blocks = &blocks,
                       .out = out,
                       .ldo = 64};
    best()->attend(&a, 0, kin_attention_plan(&a, 2));
    for (int i = 0; i < 64; i++) assert_true(out[i] == 0);
    close_context(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_double_precision),
        cmocka_unit_test(every_back_end_gives_the_same_bits),
        cmocka_unit_test(values_within_keys_give_the_bits_of_values_beside_them),
        cmocka_unit_test(keys_by_cell_give_the_bits_of_keys_by_block),
        cmocka_unit_test(a_row_that_chooses_has_the_bits_of_a_sequence_of_the_chosen_cells),
        cmocka_unit_test(heads_that_choose_blocks_have_the_bits_of_sequences_of_these),
        cmocka_unit_test(a_row_that_chooses_groups_has_the_bits_of_a_sequence_of_their_cells),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_chunk),
        cmocka_unit_test(a_row_has_the_same_bits_for_every_split_into_tasks),
        cmocka_unit_test(queries_of_a_head_that_exceed_a_tile_are_several_tasks),
        cmocka_unit_test(a_row_has_the_same_bits_wherever_its_blocks_stand),
        cmocka_unit_test(a_row_has_the_same_bits_beside_rows_of_other_sequences),
        cmocka_unit_test(what_unseen_cells_hold_changes_nothing),
        cmocka_unit_test(a_row_that_sees_nothing_gets_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
