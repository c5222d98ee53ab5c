// How fast this browser computes, for the planner: products of zeros, of so many matrices that they do not stay in a cache.
// Kernels do the same work for any values.
#include <ggml.h>
#include <stdlib.h>

#include "base/clock.h"
#include "kernels/kernels.h"
#include "web/engine/threads.h"
#include "web/exports.h"

enum { WIDTH = 2048, LEAST_NS = 15000000, N_SAME = 3, MOST_PASSES = 15, N_OPS = 300 };

typedef struct product {
    const kin_kernels *kernels;
    kin_matrix w;
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

// Browsers compile a function once more, better, after it has run for a while: until it gets no faster.
static double multiply_all(product *p, uint8_t *weights, size_t n_matrices, size_t matrix_bytes) {
    double least = -1;
    for (int pass = 0, n_same = 0; pass < MOST_PASSES && n_same < N_SAME; pass++) {
        kin_time begun = kin_clock_now(), now;
        int n = 0;
        do {
            p->w.data = weights + (size_t)n % n_matrices * matrix_bytes;
            kin_threads_run(multiply, p, 1);
            n++;
            now = kin_clock_now();
        } while (now - begun < LEAST_NS);
        double s = (double)(now - begun) / 1e9 / n;
        n_same = least > 0 && s > 0.95 * least ? n_same + 1 : 0;
        if (least < 0 || s < least) least = s;
    }
    return least;
}

double kin_web_product_s(int type, int n_rows, int n_threads, size_t bytes, int backend) {
    product p = {.kernels = kin_kernels_at(backend), .w = {.type = type, .columns = WIDTH, .rows = WIDTH}, .n = n_rows};
    if (!p.kernels || n_rows < 1 || !kin_kernel_has(type, WIDTH, WIDTH)) return -1;
    kin_act_kind kind = kin_kernel_act_kind(type);
    size_t matrix_bytes = WIDTH * ggml_row_size((enum ggml_type)type, WIDTH), n_matrices = bytes / matrix_bytes + 1;
    uint8_t *weights = calloc(n_matrices, matrix_bytes);
    p.act = calloc(1, kin_act_bytes(WIDTH, n_rows));
    p.x = calloc((size_t)n_rows * WIDTH, sizeof *p.x);
    p.y = calloc((size_t)n_rows * WIDTH, sizeof *p.y);
    double s = -1;
    if (weights && p.act && p.x && p.y) {
        kin_threads_set(n_threads);
        if (kind != KIN_ACT_F32) p.kernels->quantize(kind, WIDTH, n_rows, p.x, p.act, 0, WIDTH / KIN_ACT_COLUMNS * n_rows);
        s = multiply_all(&p, weights, n_matrices, matrix_bytes);
    }
    free(weights);
    free(p.act);
    free(p.x);
    free(p.y);
    return s < 0 ? s : s / (double)matrix_bytes;
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
