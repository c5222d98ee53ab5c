// Measures this browser's speed for the planner: products, attention and the small operations of a layer of width 2048. All
// values are zero, because kernels do the same work for any values; there are enough layers and caches to exceed a processor's
// cache.
#include <ggml.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/kernels.h"
#include "kernels/panel.h"
#include "web/engine/threads.h"
#include "web/exports.h"

enum {
    WIDTH = 2048,
    WIDE = 8192, // of the feed-forward
    N_HEAD = 32,
    N_HEAD_KV = 8,
    HEAD_DIM = 64,
    N_CELLS = 2048, // cells that a token's attention sees
    MOST_ROWS = 64,
    LEAST_NS = 15000000,
    N_SAME = 5,
    MOST_PASSES = 15,
    COLD_BYTES = 48 << 20, // larger than most caches
};

// Work to be repeated for consecutive pieces of memory.
typedef struct work {
    kin_web_step step;
    int n_steps;
    void (*choose)(void *user, size_t piece);
    void *user;
    size_t n_pieces;
} work;

// Restores the state in which a token arrives: in a ring other members have computed since the last one, with weights that
// evicted everything else from the caches.
void kin_web_cool(void) {
    uint8_t *other = malloc(COLD_BYTES);
    if (!other) return;
    memset(other, 1, COLD_BYTES);
    __asm__ volatile("" : : "r"(other) : "memory");
    free(other);
}

// Returns seconds per piece. Browsers recompile a function with better code after it has run for a while: repeats until it gets
// no faster, and then takes the mean of the last passes, which is what a ring experiences.
static double time_pieces(const work *w) {
    double least = -1, sum = 0;
    int n_same = 0;
    size_t piece = 0;
    for (int pass = 0; pass < MOST_PASSES && n_same < N_SAME; pass++) {
        kin_web_cool();
        kin_time begun = kin_clock_now(), now;
        size_t n = 0;
        do {
            w->choose(w->user, piece++ % w->n_pieces);
            kin_web_team_each(w->step, w->user, w->n_steps);
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

// The matrices of a layer, in the order in memory.
static const struct shape {
    int64_t columns, rows;
} shapes[] = {{WIDTH, WIDTH}, {WIDTH, WIDTH / 4}, {WIDTH, WIDTH / 4}, {WIDTH, WIDTH},
              {WIDTH, WIDE},  {WIDTH, WIDE},      {WIDE, WIDTH}};

enum { N_SHAPES = sizeof shapes / sizeof *shapes };

typedef struct product {
    const kin_kernels *kernels;
    int type, n_products;   // n_products: per layer
    int64_t rows[N_SHAPES]; // of each matrix of a layer
    uint8_t *weights, *layer;
    size_t layer_bytes;
    kin_act *act; // [WIDE / 256][n]
    float *x, *y; // f32 [n, WIDE]
    int64_t n;
} product;

static size_t bytes_of(const product *p, int i) {
    return (size_t)p->rows[i] * ggml_row_size((enum ggml_type)p->type, shapes[i].columns);
}

// Chooses the matrices of a layer; for a prompt a single matrix, because reading does not count. If `bytes` is less than a layer,
// also a single matrix.
static void choose_matrices(product *p, size_t bytes) {
    for (int i = 0; i < N_SHAPES; i++) p->rows[i] = shapes[i].rows;
    for (int i = 0; i < N_SHAPES; i++) p->layer_bytes += bytes_of(p, i);
    if (p->n == 1 && bytes >= p->layer_bytes) {
        p->n_products = N_SHAPES;
        return;
    }
    int64_t rows = (int64_t)(bytes / ggml_row_size((enum ggml_type)p->type, WIDTH)) / KIN_PANEL_ROWS * KIN_PANEL_ROWS;
    if (p->n == 1 && rows < shapes[0].rows) p->rows[0] = rows > KIN_PANEL_ROWS ? rows : KIN_PANEL_ROWS;
    p->n_products = 1;
    p->layer_bytes = bytes_of(p, 0);
}

static void multiply(void *user, int i, int ith, int nth) {
    const product *p = user;
    kin_matrix w = {.type = p->type, .columns = shapes[i].columns, .rows = p->rows[i], .is_packed = true, .data = p->layer};
    for (int before = 0; before < i; before++) w.data = (const uint8_t *)w.data + bytes_of(p, before);
    int64_t panels = w.rows / KIN_PANEL_ROWS;
    p->kernels->matmul(&w, p->act, p->x, p->n, p->y, w.rows, panels * ith / nth, panels * (ith + 1) / nth);
}

static void choose_layer(void *user, size_t piece) {
    product *p = user;
    p->layer = p->weights + piece * p->layer_bytes;
}

double kin_web_product_s(int type, int n_rows, int n_threads, size_t bytes, int backend) {
    product p = {.kernels = kin_kernels_at(backend), .type = type, .n = n_rows};
    if (!p.kernels || n_rows < 1 || !kin_kernel_has(type, WIDTH)) return -1;
    kin_act_kind kind = kin_kernel_act_kind(type);
    choose_matrices(&p, bytes);
    size_t n_layers = bytes > p.layer_bytes ? bytes / p.layer_bytes : 1;
    p.weights = calloc(n_layers, p.layer_bytes);
    p.act = calloc(1, kin_act_bytes(WIDE, n_rows));
    p.x = calloc((size_t)n_rows * WIDE, sizeof *p.x);
    p.y = calloc((size_t)n_rows * WIDE, sizeof *p.y);
    double s = -1;
    if (p.weights && p.act && p.x && p.y) {
        kin_web_team_set(n_threads);
        if (kind != KIN_ACT_F32) p.kernels->quantize(kind, WIDE, n_rows, p.x, p.act, 0, WIDE / KIN_ACT_COLUMNS * n_rows);
        s = time_pieces(&(work){multiply, p.n_products, choose_layer, &p, n_layers});
    }
    free(p.weights);
    free(p.act);
    free(p.x);
    free(p.y);
    return s < 0 ? s : s / (double)p.layer_bytes;
}

void kin_web_set_variant(int type, int variant) {
    kin_kernels_variants[type] = (uint8_t)variant;
}

// ---- attention

typedef struct attention {
    const kin_kernels *kernels;
    kin_attention a;
    int64_t n_tasks;
    uint8_t *caches; // K, then V, of consecutive layers
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
                    .a = {.kv = {.type = KIN_TYPE_F16, .n_head_kv = N_HEAD_KV, .k_dim = HEAD_DIM, .v_dim = HEAD_DIM},
                          .n_head = N_HEAD,
                          .scale = 0.125f,
                          .n_rows = n_rows,
                          .ldq = N_HEAD * HEAD_DIM,
                          .ldo = N_HEAD * HEAD_DIM,
                          .n_cells = at.n_cells,
                          .blocks = at.tables}};
    fill_tables(&at, n_rows);
    at.half_bytes = N_CELLS / KIN_KV_CELLS * kin_kv_block_bytes(&at.a.kv, true);
    size_t n_caches = bytes / (2 * at.half_bytes) + 1, row_bytes = N_HEAD * HEAD_DIM * sizeof(float);
    float *q = calloc((size_t)n_rows, row_bytes);
    at.caches = calloc(n_caches, 2 * at.half_bytes);
    at.a.q = q;
    at.a.out = calloc((size_t)n_rows, row_bytes);
    double s = -1;
    if (at.caches && q && at.a.out) {
        kin_web_team_set(n_threads);
        at.n_tasks = kin_attention_plan(&at.a, n_threads);
        s = time_pieces(&(work){attend, 1, choose_cache, &at, n_caches});
    }
    free(at.caches);
    free(q);
    free(at.a.out);
    return s < 0 ? s : s / (2 * (double)at.half_bytes);
}

// ---- small operations

typedef struct small {
    const kin_kernels *kernels;
    float x[WIDE], y[WIDE], cos_sin[HEAD_DIM];
    kin_act act[WIDE / KIN_ACT_COLUMNS];
} small;

enum { NORM, ADD, ROTATE, ROUND, GATE, ROUND_WIDE, MEET };
// The nodes of a layer's graph. Products and attention are measured above; only the barriers remain of them here.
static const int nodes[] = {NORM, ROUND, MEET, ROTATE, MEET, ROUND, MEET, ADD, NORM, ROUND, GATE, ROUND_WIDE};
enum { N_NODES = sizeof nodes / sizeof *nodes };

static void round_row(small *s, int64_t columns, int ith, int nth) {
    int64_t n = columns / KIN_ACT_COLUMNS;
    s->kernels->quantize(KIN_ACT_256, columns, 1, s->x, s->act, n * ith / nth, n * (ith + 1) / nth);
}

static void compute_small(void *user, int i, int ith, int nth) {
    small *s = user;
    const kin_kernels *k = s->kernels;
    int begin = WIDE / nth / 16 * 16 * ith, end = ith + 1 == nth ? WIDE : WIDE / nth / 16 * 16 * (ith + 1);
    int node = nodes[i % N_NODES];
    if (node == NORM && ith == 0) k->rms_norm(WIDTH, s->x, s->x, 1e-5f, s->y);
    if (node == ADD && ith == 0) k->add(WIDTH, s->y, s->x);
    if (node == ROTATE)
        for (int head = ith; head < N_HEAD + N_HEAD_KV; head += nth) k->rope(false, HEAD_DIM, s->cos_sin, s->y + head * HEAD_DIM);
    if (node == ROUND) round_row(s, WIDTH, ith, nth);
    if (node == GATE) k->gate(KIN_GATE_SILU, end - begin, s->x + begin, s->y + begin, s->y + begin);
    if (node == ROUND_WIDE) round_row(s, WIDE, ith, nth);
}

static void choose_none(void *user, size_t piece) {
    (void)user, (void)piece;
}

double kin_web_op_s(int n_threads) {
    static small s; // zeros
    s.kernels = kin_kernels_at(0);
    kin_web_team_set(n_threads);
    return time_pieces(&(work){compute_small, N_NODES, choose_none, &s, 1}) / N_NODES;
}
