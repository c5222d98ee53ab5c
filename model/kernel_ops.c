#include <string.h>

#include "model/kernel_ops_impl.h"

enum {
    CHUNKS_PER_THREAD = 8, // so that a delayed thread leaves little work to wait for
#ifdef __wasm__
    CHUNKS_OF_FEW_ROWS = 2, // without a prefetch instruction the processor's own prefetcher starts again with each chunk (8 took
                            // 1.04 to 1.10 times as long per token with two threads, Zen 5)
#else
    CHUNKS_OF_FEW_ROWS = CHUNKS_PER_THREAD,
#endif
    MOST_PANELS = 16, // per chunk: 288 KiB of Q4_K with 2048 columns, which stay in the second-level cache for all tiles
};

// ---- threads

// The pool's threads meet at barriers between two nodes. ThreadSanitizer does not see these (OpenMP's runtime is not
// instrumented), so it is told here that each node begins after all threads have finished the previous one.
#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
static void acquire(void *at) {
    __tsan_acquire(at);
}
static void release(void *at) {
    __tsan_release(at);
}
#else
static void acquire(void *at) {
    (void)at;
}
static void release(void *at) {
    (void)at;
}
#endif

// ---- nodes

struct kin_op *kin_op_new(kin_graph *g, kin_op_code code) {
    kin_assert(g->n_ops < g->max_ops);
    struct kin_op *op = &g->ops[g->n_ops++];
    *op = (struct kin_op){.code = code, .kernels = g->kernels, .hp = g->hp, .graph = g->ops, .sums = g->sums};
    return op;
}

enum ggml_status kin_ops_compute(kin_graph *g, ggml_backend_t backend) {
    release(g->ops);
    enum ggml_status status = ggml_backend_graph_compute(backend, g->gf);
    acquire(g->ops);
    return status;
}

size_t kin_op_bytes(void) {
    return sizeof(struct kin_op);
}

// Not instrumented, because `op` is read before the acquire.
__attribute__((no_sanitize_thread)) static void run_node(struct ggml_tensor *y, int i_thread, int n_threads, void *user) {
    (void)i_thread;
    struct kin_op *op = user;
    acquire(op->graph);
    op->run(y, op, n_threads);
    release(op->graph);
}

struct ggml_tensor *kin_op_node(kin_graph *g, enum ggml_type type, int64_t ne0, int64_t ne1, struct ggml_tensor **args,
                                int n_args, kin_op_run run, struct kin_op *op) {
    kin_assert(n_args <= KIN_OP_ARGS);
    op->run = run;
    return ggml_custom_4d(g->ctx, type, ne0, ne1, 1, 1, args, n_args, run_node, GGML_N_TASKS_MAX, op);
}

struct ggml_tensor *kin_op_inplace(kin_graph *g, struct ggml_tensor *y, struct ggml_tensor **args, int n_args, kin_op_run run,
                                   struct kin_op *op) {
    op->run = run;
    return ggml_custom_inplace(g->ctx, y, args, n_args, run_node, GGML_N_TASKS_MAX, op);
}

bool kin_op_take(struct kin_op *op, int n_threads, int n, int *i) {
    *i = atomic_fetch_add_explicit(&op->next, 1, memory_order_relaxed);
    if (*i < n) return true;
    if (atomic_fetch_add(&op->done, 1) + 1 == n_threads) {
        atomic_store(&op->next, 0);
        atomic_store(&op->done, 0);
    }
    return false;
}

bool kin_op_take_ahead(struct kin_op *op, int n_threads, int n, kin_op_chunk *c) {
    if (c->has_next)
        c->i = c->next;
    else if (c->has_ended || !kin_op_take(op, n_threads, n, &c->i))
        return false;
    bool is_near_end = c->i + 2 * n_threads >= n; // the last chunks go to whichever thread is free first
    c->has_next = !is_near_end && kin_op_take(op, n_threads, n, &c->next);
    c->has_ended = !is_near_end && !c->has_next;
    return true;
}

bool kin_ops_fit(const kin_hparams *hp, int kv_type) {
    const kin_kv_layout kv = {.type = kv_type, .n_head_kv = hp->n_head_kv, .head_dim = hp->head_dim};
    return hp->n_embd % 16 == 0 && kin_kv_has(&kv) && hp->n_expert <= KIN_ROUTE_EXPERTS;
}

static char packed_mark; // only its address is used

void kin_ops_mark_packed(struct ggml_tensor *w) {
    w->extra = &packed_mark;
}

bool kin_ops_is_packed(const struct ggml_tensor *w) {
    return w->extra == &packed_mark;
}

bool kin_ops_multiply(const struct ggml_tensor *w) {
    return kin_kernel_has((int)w->type, w->ne[0], w->ne[1]) && kin_kernel_packs((int)w->type) == kin_ops_is_packed(w);
}

bool kin_ops_gate(const struct ggml_tensor *gate, const struct ggml_tensor *up) {
    if (!up) return kin_ops_multiply(gate) && gate->ne[1] % (2 * KIN_PANEL_ROWS) == 0;
    return kin_ops_multiply(gate) && kin_ops_multiply(up) && gate->ne[1] % KIN_PANEL_ROWS == 0 &&
           kin_kernel_act_kind((int)gate->type) == kin_kernel_act_kind((int)up->type);
}

bool kin_ops_take_experts(const kin_matrix *gate, const kin_matrix *up, const kin_matrix *down) {
    const kin_matrix *const all[] = {gate, up, down};
    for (int i = 0; i < 3; i++) {
        if (!kin_kernel_has(all[i]->type, all[i]->columns, all[i]->rows)) return false;
    }
    return gate->rows % KIN_PANEL_ROWS == 0 && kin_kernel_act_kind(gate->type) == kin_kernel_act_kind(up->type);
}

// ---- norms

static void run_norm(struct ggml_tensor *y, struct kin_op *op, int n_threads) {
    const struct ggml_tensor *x = y->src[0], *weight = y->src[1];
    int64_t n = y->ne[0];
    for (int i; kin_op_take(op, n_threads, (int)y->ne[1], &i);) {
        const float *in = (const float *)x->data + i * n;
        float *out = (float *)y->data + i * n;
        if (op->hp->centers_norms) op->kernels->center(n, in, out);
        op->kernels->rms_norm(n, op->hp->centers_norms ? out : in, weight->data, op->hp->rms_eps, out);
    }
}

struct ggml_tensor *kin_op_norm(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *weight) {
    struct ggml_tensor *args[] = {x, weight};
    return kin_op_node(g, GGML_TYPE_F32, x->ne[0], x->ne[1], args, 2, run_norm, kin_op_new(g, KIN_OP_NORM));
}

// ---- rounded activations

static int64_t n_blocks(int64_t columns) {
    return (columns + KIN_ACT_COLUMNS - 1) / KIN_ACT_COLUMNS;
}

static void run_round(struct ggml_tensor *act, struct kin_op *op, int n_threads) {
    const struct ggml_tensor *x = act->src[0];
    int64_t columns = x->ne[0], n = x->ne[1], blocks = n_blocks(columns), n_tiles = (n + KIN_OP_TILE - 1) / KIN_OP_TILE;
    for (int i; kin_op_take(op, n_threads, (int)(n_tiles * blocks), &i);) {
        int64_t row = i / blocks * KIN_OP_TILE, block = i % blocks, rows = kin_op_tile_rows(n, row);
        op->kernels->quantize(op->kind[0], columns, rows, (const float *)x->data + row * columns,
                              (kin_act *)act->data + row * blocks, block * rows, (block + 1) * rows);
    }
}

struct ggml_tensor *kin_op_rounded(kin_graph *g, struct ggml_tensor *x, kin_act_kind kind) {
    if (kind == KIN_ACT_F32) return x;
    for (int i = 0; i < g->n_rounded; i++) {
        if (g->rounded[i].x == x && g->rounded[i].kind == kind) return g->rounded[i].act;
    }
    struct kin_op *op = kin_op_new(g, KIN_OP_ROUND);
    op->kind[0] = kind;
    struct ggml_tensor *act = kin_op_node(g, GGML_TYPE_I8, (int64_t)kin_act_bytes(x->ne[0], x->ne[1]), 1, &x, 1, run_round, op);
    if (g->n_rounded == KIN_GRAPH_ROUNDED) g->n_rounded = 0; // older ones are not used again
    g->rounded[g->n_rounded++] = (kin_graph_rounded){x, kind, act};
    return act;
}

// ---- products

kin_matrix kin_op_matrix(const struct ggml_tensor *w, int64_t i_expert, int64_t begin, int64_t end) {
    int64_t first = begin * KIN_PANEL_ROWS, last = end * KIN_PANEL_ROWS;
    const uint8_t *data = (const uint8_t *)w->data + (size_t)i_expert * w->nb[2] + (size_t)first * w->nb[1];
    return (kin_matrix){
        .type = (int)w->type, .columns = w->ne[0], .rows = (last < w->ne[1] ? last : w->ne[1]) - first, .data = data};
}

static void multiply_tile(const struct kin_op *op, const kin_matrix *w, kin_act_kind kind, const void *input, int64_t row,
                          int64_t rows, float *y, int64_t ldy) {
    const kin_act *act = kind == KIN_ACT_F32 ? NULL : (const kin_act *)input + row * n_blocks(w->columns);
    const float *x = kind == KIN_ACT_F32 ? (const float *)input + row * w->columns : NULL;
    op->kernels->matmul(w, act, x, rows, y, ldy, 0, (w->rows + KIN_PANEL_ROWS - 1) / KIN_PANEL_ROWS);
}

void kin_op_multiply(const struct kin_op *op, const kin_matrix *w, kin_act_kind kind, const void *input, int64_t n, float *y,
                     int64_t ldy) {
    kin_matrix m = *w;
    for (int64_t row = 0; row < n; row += KIN_OP_TILE) {
        m.next = row + KIN_OP_TILE < n ? w->data : w->next;
        multiply_tile(op, &m, kind, input, row, kin_op_tile_rows(n, row), y + row * ldy, ldy);
    }
}

void kin_op_multiply_gated(const struct kin_op *op, const kin_op_pair *pair, kin_act_kind kind, const void *input, int64_t n,
                           float *y, int64_t ldy) {
    float other[KIN_OP_TILE * KIN_OP_GATED_PANELS * KIN_PANEL_ROWS];
    kin_matrix g = pair->gate, u = pair->up;
    const int64_t width = u.rows;
    kin_assert(kin_op_tile_rows(n, 0) * width <= (int64_t)(sizeof other / sizeof *other));
    g.next = u.data;
    for (int64_t row = 0; row < n; row += KIN_OP_TILE) {
        int64_t rows = kin_op_tile_rows(n, row);
        u.next = row + KIN_OP_TILE < n ? g.data : pair->up.next;
        multiply_tile(op, &g, kind, input, row, rows, y + row * ldy, ldy);
        multiply_tile(op, &u, kind, input, row, rows, other, width);
        if (pair->gate_bias) kin_op_add_rows(op, rows, width, pair->gate_bias, 0, y + row * ldy, ldy);
        if (pair->up_bias) kin_op_add_rows(op, rows, width, pair->up_bias, 0, other, width);
        for (int64_t i = 0; i < rows; i++) {
            float *h = y + (row + i) * ldy;
            op->kernels->gate(op->gate, width, h, other + i * width, h);
        }
    }
}

int64_t kin_op_chunk_panels(int64_t n_panels, int n_threads) {
    int64_t n = n_panels / (n_threads * CHUNKS_PER_THREAD);
    return n < 1 ? 1 : n > MOST_PANELS ? MOST_PANELS : n;
}

// Returns the panels per chunk of a node with n_rows rows. A single tile reads each panel once, so chunks may be long, which is
// better because prefetching starts again with each; a single thread needs only one chunk.
static int64_t chunk_panels(int64_t n_panels, int64_t n_rows, int n_threads) {
    if (n_rows > KIN_OP_TILE) return kin_op_chunk_panels(n_panels, n_threads);
    int64_t n = n_threads == 1 ? n_panels : n_panels / (n_threads * CHUNKS_OF_FEW_ROWS);
    return n < 1 ? 1 : n;
}

// The weights of a chunk. The panels of all weights are numbered consecutively.
typedef struct span {
    int weight, at;     // its number, and its place among the node's sources
    int64_t column;     // of its first row's result
    int64_t begin, end; // panels
} span;

void kin_op_add_rows(const struct kin_op *op, int64_t n_rows, int64_t n, const float *x, int64_t ldx, float *y, int64_t ldy) {
    for (int64_t i = 0; i < n_rows; i++) op->kernels->add(n, x + i * ldx, y + i * ldy);
}

static int64_t n_chunks_of(const struct ggml_tensor *weight, int64_t step) {
    return (kin_op_panels(weight) + step - 1) / step;
}

// Sources of kin_op_linear: for each weight the weight, its input, and its bias if it has one; then the residual.
static span find_span(const struct ggml_tensor *y, const struct kin_op *op, int64_t step, int64_t chunk) {
    span s = {0};
    for (int64_t n; chunk >= (n = n_chunks_of(y->src[s.at], step)); chunk -= n) {
        s.column += y->src[s.at]->ne[1];
        s.at += 2 + op->has_bias[s.weight++];
    }
    int64_t panels = kin_op_panels(y->src[s.at]);
    s.begin = chunk * step;
    s.end = s.begin + step < panels ? s.begin + step : panels;
    return s;
}

static kin_matrix matrix_of(const struct ggml_tensor *y, span s) {
    return kin_op_matrix(y->src[s.at], 0, s.begin, s.end);
}

static void multiply_span(struct ggml_tensor *y, struct kin_op *op, span s, const void *next) {
    kin_matrix m = matrix_of(y, s);
    m.next = next;
    int64_t n = y->ne[1], ldy = y->ne[0], first = s.begin * KIN_PANEL_ROWS;
    float *to = (float *)y->data + s.column + first;
    kin_op_multiply(op, &m, op->kind[s.weight], y->src[s.at + 1]->data, n, to, ldy);
    if (op->has_bias[s.weight]) kin_op_add_rows(op, n, m.rows, (const float *)y->src[s.at + 2]->data + first, 0, to, ldy);
    if (op->has_residual && s.weight == 0) {
        const struct ggml_tensor *residual = y->src[2 + op->has_bias[0]];
        kin_op_add_rows(op, n, m.rows, (const float *)residual->data + first, residual->ne[0], to, ldy);
    }
}

static void run_linear(struct ggml_tensor *y, struct kin_op *op, int n_threads) {
    int64_t panels = (y->ne[0] + KIN_PANEL_ROWS - 1) / KIN_PANEL_ROWS, step = chunk_panels(panels, y->ne[1], n_threads), n = 0;
    for (int i = 0, at = 0; i < op->n_weights; i++) {
        n += n_chunks_of(y->src[at], step);
        at += 2 + op->has_bias[i];
    }
    for (kin_op_chunk c = {0}; kin_op_take_ahead(op, n_threads, (int)n, &c);) {
        const void *next = c.has_next ? matrix_of(y, find_span(y, op, step, c.next)).data : NULL;
        multiply_span(y, op, find_span(y, op, step, c.i), next);
    }
}

struct ggml_tensor *kin_op_linear(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *const *weights,
                                  struct ggml_tensor *const *bias, int n_weights, struct ggml_tensor *residual) {
    struct ggml_tensor *args[KIN_OP_ARGS + 1];
    kin_act_kind kinds[KIN_OP_MATRICES];
    int n_args = 0;
    int64_t n_out = 0;
    kin_assert(n_weights <= KIN_OP_MATRICES);
    for (int i = 0; i < n_weights; i++) {
        kinds[i] = kin_kernel_act_kind((int)weights[i]->type);
        args[n_args++] = weights[i];
        args[n_args++] = kin_op_rounded(g, x, kinds[i]);
        if (bias && bias[i]) args[n_args++] = bias[i];
        n_out += weights[i]->ne[1];
    }
    if (residual) args[n_args++] = residual;
    struct kin_op *op = kin_op_new(g, KIN_OP_LINEAR);
    op->n_weights = n_weights;
    for (int i = 0; i < n_weights; i++) {
        op->kind[i] = kinds[i];
        op->has_bias[i] = bias && bias[i];
    }
    op->has_residual = residual != NULL;
    return kin_op_node(g, GGML_TYPE_F32, n_out, x->ne[1], args, n_args, run_linear, op);
}

// Sources of kin_op_gated: gate, up (or gate again, if it contains both), their input. With few rows memory is the limit, and in
// a browser, which has no prefetch instruction, the processor's own prefetcher starts again at each change between the two
// matrices: so chunks are then as long as those of other products. (One row of Q4_K in Chromium, from memory: 4 panels per chunk
// 9.8 GB/s, 8 10.2, 16 and more 10.5.)
static void run_gated(struct ggml_tensor *y, struct kin_op *op, int n_threads) {
    const struct ggml_tensor *gate = y->src[0], *up = y->src[1], *input = y->src[2];
    const int64_t panels = kin_op_panels(gate) / (op->is_stacked ? 2 : 1), most = kin_op_gated_panels(y->ne[1]);
    const int64_t usual = chunk_panels(panels, y->ne[1], n_threads), step = usual < most ? usual : most;
    const int64_t up_at = op->is_stacked ? panels : 0;
    for (kin_op_chunk c = {0}; kin_op_take_ahead(op, n_threads, (int)((panels + step - 1) / step), &c);) {
        int64_t begin = c.i * step, end = begin + step < panels ? begin + step : panels;
        kin_op_pair pair = {.gate = kin_op_matrix(gate, 0, begin, end), .up = kin_op_matrix(up, 0, up_at + begin, up_at + end)};
        if (c.has_next) pair.up.next = kin_op_matrix(gate, 0, c.next * step, panels).data;
        kin_op_multiply_gated(op, &pair, op->kind[0], input->data, y->ne[1], (float *)y->data + begin * KIN_PANEL_ROWS, y->ne[0]);
    }
}

struct ggml_tensor *kin_op_gated(kin_graph *g, kin_gate kind, struct ggml_tensor *x, struct ggml_tensor *gate,
                                 struct ggml_tensor *up) {
    kin_act_kind act_kind = kin_kernel_act_kind((int)gate->type);
    kin_assert(!up || act_kind == kin_kernel_act_kind((int)up->type));
    struct ggml_tensor *args[] = {gate, up ? up : gate, kin_op_rounded(g, x, act_kind)};
    struct kin_op *op = kin_op_new(g, KIN_OP_GATED);
    op->kind[0] = act_kind;
    op->gate = kind;
    op->is_stacked = !up;
    return kin_op_node(g, GGML_TYPE_F32, up ? gate->ne[1] : gate->ne[1] / 2, x->ne[1], args, 3, run_gated, op);
}

// Sources: y, the residual.
static void run_add(struct ggml_tensor *out, struct kin_op *op, int n_threads) {
    const struct ggml_tensor *y = out->src[0], *residual = out->src[1];
    int64_t n = out->ne[0];
    for (int i; kin_op_take(op, n_threads, (int)out->ne[1], &i);) {
        float *to = (float *)out->data + i * n;
        memcpy(to, (const float *)residual->data + i * n, (size_t)n * sizeof *to);
        if (op->scale == 1)
            op->kernels->add(n, (const float *)y->data + i * n, to);
        else
            op->kernels->add_scaled(n, op->scale, (const float *)y->data + i * n, to);
    }
}

struct ggml_tensor *kin_op_add(kin_graph *g, struct ggml_tensor *y, float scale, struct ggml_tensor *residual) {
    struct ggml_tensor *args[] = {y, residual};
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->scale = scale;
    return kin_op_node(g, GGML_TYPE_F32, y->ne[0], y->ne[1], args, 2, run_add, op);
}

// Sources: x, the gate.
static void run_scale_sigmoid(struct ggml_tensor *x, struct kin_op *op, int n_threads) {
    const float *gate = x->src[1]->data;
    for (int i; kin_op_take(op, n_threads, (int)x->ne[1], &i);) {
        float *row = (float *)x->data + i * x->ne[0];
        op->kernels->scale_sigmoid(x->ne[0], gate[i], row, row);
    }
}

struct ggml_tensor *kin_op_scale_sigmoid(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *gate) {
    return kin_op_inplace(g, x, &gate, 1, run_scale_sigmoid, kin_op_new(g, KIN_OP_OTHER));
}

// ---- sums

// Sources: the residual. A single thread talks to the other devices; the addition is short.
static void run_sum(struct ggml_tensor *y, struct kin_op *op, int n_threads) {
    const float *residual = y->src[1]->data;
    int64_t n = y->ne[0] * y->ne[1];
    kin_graph_sums *s = op->sums;
    float *x = y->data;
    for (int i; kin_op_take(op, n_threads, 1, &i);) {
        if (!s->failed) s->failed = s->sum.add(s->sum.user, x, (int)y->ne[1], (int)y->ne[0], &s->err) != 0;
        for (int64_t k = 0; k < n; k++) x[k] += residual[k];
    }
}

struct ggml_tensor *kin_op_sum(kin_graph *g, struct ggml_tensor *y, struct ggml_tensor *residual) {
    struct ggml_tensor *sum = kin_op_inplace(g, y, &residual, 1, run_sum, kin_op_new(g, KIN_OP_OTHER));
    ggml_set_name(sum, "sum");
    return sum;
}
