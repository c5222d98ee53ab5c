// How fast this browser computes, for the planner: products and attention of zeros, of so many matrices and caches that they do
// not stay in a processor's cache. Kernels do the same work for any values.
#include <ggml.h>
#include <stdlib.h>

#include "base/clock.h"
#include "kernels/kernels.h"
#include "kernels/panel.h"
#include "web/engine/threads.h"
#include "web/exports.h"

enum {
    WIDTH = 2048,
    N_HEAD = 32,
    N_HEAD_KV = 8,
    HEAD_DIM = 64,
    N_CELLS = 2048, // that a token's attention sees
    MOST_ROWS = 64,
    LEAST_NS = 15000000,
    N_SAME = 5,
    MOST_PASSES = 15,
    N_OPS = 300,
};

// Something to be done for one piece of the memory after the other.
typedef struct work {
    kin_threads_step step;
    void (*choose)(void *user, size_t piece);
    void *user;
    size_t n_pieces;
} work;

// Seconds for a piece. Browsers compile a function once more, better, after it has run for a while: until it gets no faster, and
// then the mean of the last passes, which is what a ring gets, too.
static double time_pieces(const work *w) {
    double least = -1, sum = 0;
    int n_same = 0;
    size_t piece = 0;
    for (int pass = 0; pass < MOST_PASSES && n_same < N_SAME; pass++) {
        kin_time begun = kin_clock_now(), now;
        size_t n = 0;
        do {
            w->choose(w->user, piece++ % w->n_pieces);
            kin_threads_run(w->step, w->user, 1);
            n++;
            now = kin_clock_now();
        } while (now - begun < LEAST_NS);
        double s = (double)(now - begun) / 1e9 / (double)n;
        bool is_same = least > 0 && s > 0.95 * least;
        n_same = is_same ? n_same + 1 : 1;
        sum = is_same ? sum + s : s;
        if (least < 0 || s < least) least = s;
    }
    return sum / n_same;
}

// ---- products

typedef struct product {
    const kin_kernels *kernels;
    kin_matrix w;
    uint8_t *weights;
    size_t matrix_bytes;
    kin_act *act; // [WIDTH / 256][n]
    float *x, *y; // f32 [n, WIDTH]
    int64_t n;
} product;

static void multiply(void *user, int i, int ith, int nth) {
    const product *p = user;
    int64_t panels = WIDTH / KIN_PANEL_ROWS;
    (void)i;
    p->kernels->matmul(&p->w, p->act, p->x, p->n, p->y, WIDTH, panels * ith / nth, panels * (ith + 1) / nth);
}

static void choose_matrix(void *user, size_t piece) {
    product *p = user;
    p->w.data = p->weights + piece * p->matrix_bytes;
}

double kin_web_product_s(int type, int n_rows, int n_threads, size_t bytes, int backend) {
    product p = {.kernels = kin_kernels_at(backend), .w = {.type = type, .columns = WIDTH, .rows = WIDTH}, .n = n_rows};
    if (!p.kernels || n_rows < 1 || !kin_kernel_has(type, WIDTH, WIDTH)) return -1;
    kin_act_kind kind = kin_kernel_act_kind(type);
    p.matrix_bytes = WIDTH * ggml_row_size((enum ggml_type)type, WIDTH);
    size_t n_matrices = bytes / p.matrix_bytes + 1;
    p.weights = calloc(n_matrices, p.matrix_bytes);
    p.act = calloc(1, kin_act_bytes(WIDTH, n_rows));
    p.x = calloc((size_t)n_rows * WIDTH, sizeof *p.x);
    p.y = calloc((size_t)n_rows * WIDTH, sizeof *p.y);
    double s = -1;
    if (p.weights && p.act && p.x && p.y) {
        kin_threads_set(n_threads);
        if (kind != KIN_ACT_F32) p.kernels->quantize(kind, WIDTH, n_rows, p.x, p.act, 0, WIDTH / KIN_ACT_COLUMNS * n_rows);
        s = time_pieces(&(work){multiply, choose_matrix, &p, n_matrices});
    }
    free(p.weights);
    free(p.act);
    free(p.x);
    free(p.y);
    return s < 0 ? s : s / (double)p.matrix_bytes;
}

// ---- attention

typedef struct attention {
    const kin_kernels *kernels;
    kin_attention a;
    int64_t n_tasks;
    uint8_t *caches; // K, then V, of one layer after the other
    size_t half_bytes;
    int32_t n_cells[MOST_ROWS], table[N_CELLS / KIN_KV_CELLS];
    const int32_t *tables[MOST_ROWS];
} attention;

static void attend(void *user, int i, int ith, int nth) {
    const attention *at = user;
    kin_attention a = at->a;
    (void)i;
    at->kernels->attend(&a, at->n_tasks * ith / nth, at->n_tasks * (ith + 1) / nth);
}

static void choose_cache(void *user, size_t piece) {
    attention *at = user;
    at->a.k = at->caches + 2 * piece * at->half_bytes;
    at->a.v = at->caches + (2 * piece + 1) * at->half_bytes;
}

static void fill_tables(attention *at, int n_rows) {
    for (int i = 0; i < N_CELLS / KIN_KV_CELLS; i++) at->table[i] = i;
    for (int i = 0; i < n_rows; i++) at->n_cells[i] = N_CELLS;
    for (int i = 0; i < n_rows; i++) at->tables[i] = at->table;
}

double kin_web_attend_s(int n_rows, int n_threads, size_t bytes) {
    if (n_rows < 1 || n_rows > MOST_ROWS) return -1;
    attention at = {.kernels = kin_kernels_at(0),
                    .a = {.kv = {KIN_TYPE_F16, N_HEAD_KV, HEAD_DIM},
                          .n_head = N_HEAD,
                          .scale = 0.125f,
                          .n_rows = n_rows,
                          .ldq = N_HEAD * HEAD_DIM,
                          .ldo = N_HEAD * HEAD_DIM,
                          .n_cells = at.n_cells,
                          .blocks = at.tables}};
    fill_tables(&at, n_rows);
    at.half_bytes = N_CELLS / KIN_KV_CELLS * kin_kv_block_bytes(&at.a.kv);
    size_t n_caches = bytes / (2 * at.half_bytes) + 1, row_bytes = N_HEAD * HEAD_DIM * sizeof(float);
    float *q = calloc((size_t)n_rows, row_bytes);
    at.caches = calloc(n_caches, 2 * at.half_bytes);
    at.a.q = q;
    at.a.out = calloc((size_t)n_rows, row_bytes);
    double s = -1;
    if (at.caches && q && at.a.out) {
        kin_threads_set(n_threads);
        at.n_tasks = kin_attention_plan(&at.a, n_threads);
        s = time_pieces(&(work){attend, choose_cache, &at, n_caches});
    }
    free(at.caches);
    free(q);
    free(at.a.out);
    return s < 0 ? s : s / (2 * (double)at.half_bytes);
}

static void nothing(void *user, int i, int ith, int nth) {
    (void)user, (void)i, (void)ith, (void)nth;
}

double kin_web_op_s(int n_threads) {
    kin_threads_set(n_threads);
    kin_threads_run(nothing, NULL, N_OPS);
    kin_time begun = kin_clock_now();
    kin_threads_run(nothing, NULL, N_OPS);
    return (double)(kin_clock_now() - begun) / 1e9 / N_OPS;
}
