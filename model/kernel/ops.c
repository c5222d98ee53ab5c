#include <string.h>

#include "model/kernel/ops_impl.h"

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
static void acquire(const void *at) {
    __tsan_acquire((void *)at);
}
static void release(const void *at) {
    __tsan_release((void *)at);
}
#else
static void acquire(const void *at) {
    (void)at;
}
static void release(const void *at) {
    (void)at;
}
#endif

// ---- nodes

struct kin_op *kin_op_new(kin_graph *g, kin_op_code code) {
    kin_assert(g->n_ops < g->max_ops);
    struct kin_op *op = &g->ops[g->n_ops++];
    *op = (struct kin_op){.code = code, .kernels = g->kernels, .hp = g->hp, .graph = g, .sums = g->sums};
    return op;
}

size_t kin_op_bytes(void) {
    return sizeof(struct kin_op);
}

// ---- a node by ggml's threads

// Takes the next of n chunks. Returns false if none is left; this thread then must not ask again in this run. The last thread to
// find none resets the counter for the next run.
static bool claim_chunk(struct kin_op *op, int n_threads, int n, int *i) {
    *i = atomic_fetch_add_explicit(&op->next, 1, memory_order_relaxed);
    if (*i < n) return true;
    if (atomic_fetch_add(&op->n_done, 1) + 1 == n_threads) {
        atomic_store(&op->next, 0);
        atomic_store(&op->n_done, 0);
    }
    return false;
}

static int count_chunks(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    const kin_expert_source *source = op->graph->experts;
    if (op->is_guess && (!source->is_due || !source->is_due(source->user, op->il))) return 0;
    return op->run->count(y, op, n_threads);
}

// Not instrumented, because `op` is read before the acquire.
__attribute__((no_sanitize_thread)) static void run_node(struct ggml_tensor *y, int i_thread, int n_threads, void *user) {
    (void)i_thread;
    struct kin_op *op = user;
    _Alignas(16) char state[KIN_TEAM_STATE];
    kin_team_chunk c = {.next = -1, .state = state, .is_new = true};
    acquire(op->graph);
    const int n = count_chunks(y, op, n_threads);
    for (; claim_chunk(op, n_threads, n, &c.i); c.is_new = false) op->run->compute(y, op, n_threads, &c);
    release(op->graph);
}

struct ggml_tensor *kin_op_node(kin_graph *g, enum ggml_type type, int64_t ne0, int64_t ne1, struct ggml_tensor **args,
                                int n_args, const kin_op_run *run, struct kin_op *op) {
    kin_assert(n_args <= KIN_OP_ARGS);
    op->run = run;
    struct ggml_tensor *y = ggml_custom_4d(g->ctx, type, ne0, ne1, 1, 1, args, n_args, run_node, GGML_N_TASKS_MAX, op);
    y->extra = op;
    return y;
}

struct ggml_tensor *kin_op_inplace(kin_graph *g, struct ggml_tensor *y, struct ggml_tensor **args, int n_args,
                                   const kin_op_run *run, struct kin_op *op) {
    op->run = run;
    struct ggml_tensor *to = ggml_custom_inplace(g->ctx, y, args, n_args, run_node, GGML_N_TASKS_MAX, op);
    to->extra = op;
    return to;
}

// ---- graphs by a team

typedef struct graph_job {
    struct ggml_tensor **nodes;
    int n_threads;
    const kin_graph *graph;
    int n_begun;               // nodes
    struct ggml_tensor *again; // the job ends after the last of them, and the nodes since this one are computed again
} graph_job;

static const struct kin_op *op_of(const struct ggml_tensor *node) {
    return node->op == GGML_OP_CUSTOM ? node->extra : NULL;
}

static kin_team_step plan_node(void *user, int i) {
    graph_job *j = user;
    const struct ggml_tensor *y = j->nodes[i];
    const struct kin_op *op = op_of(y);
    j->n_begun = i + 1;
    if (!op) return (kin_team_step){0};
    return (kin_team_step){
        .n_chunks = count_chunks(y, op, j->n_threads),
        .claims_ahead = op->run->claims_ahead,
        .result_bytes = j->graph->keeps_all && op->run->result_bytes ? op->run->result_bytes(y, op, j->n_threads) : 0,
    };
}

static void compute_chunk(void *user, const kin_team_chunk *c) {
    const graph_job *j = user;
    struct ggml_tensor *y = j->nodes[c->step];
    const struct kin_op *op = op_of(y);
    op->run->compute(y, op, j->n_threads, c);
}

static void publish_chunk(void *user, const kin_team_chunk *c) {
    const graph_job *j = user;
    const struct ggml_tensor *y = j->nodes[c->step];
    const struct kin_op *op = op_of(y);
    const kin_op_area a = op->run->area(y, op, j->n_threads, c->i);
    const float *from = (const float *)c->result + a.result_at;
    for (int64_t row = 0; row < a.n_rows; row++)
        memcpy(a.at + row * a.ld, from + row * a.result_ld, (size_t)a.width * sizeof *from);
}

// Called between two nodes.
static bool job_stops(void *user) {
    graph_job *j = user;
    const kin_compute *c = j->graph->compute;
    const struct ggml_tensor *last = j->n_begun > 0 ? j->nodes[j->n_begun - 1] : NULL;
    const struct kin_op *op = last ? op_of(last) : NULL;
    if (op && op->run->again) j->again = op->run->again(last, op);
    return j->again || (c && c->stops && c->stops(c->stops_user));
}

static bool computes_nothing(const struct ggml_tensor *node) {
    switch (node->op) {
    case GGML_OP_NONE:
    case GGML_OP_VIEW:
    case GGML_OP_RESHAPE:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE: return true;
    default: return false;
    }
}

static bool is_for_team(struct ggml_tensor *const *nodes, int n_nodes) {
    for (int i = 0; i < n_nodes; i++)
        if (!op_of(nodes[i]) && !computes_nothing(nodes[i])) return false;
    return true;
}

// A job cannot go back, so each repetition is another one.
enum ggml_status kin_ops_run(const kin_graph *g, kin_team *team, struct ggml_tensor **nodes, int n_nodes) {
    graph_job job = {.n_threads = g->active_threads > 0 ? g->active_threads : kin_team_size(team), .graph = g};
    kin_team_job steps = {.n_threads = job.n_threads,
                          .plan = plan_node,
                          .compute = compute_chunk,
                          .publish = publish_chunk,
                          .stops = job_stops,
                          .user = &job};
    kin_err err;
    if (kin_team_reserve(team, n_nodes, &err) != 0) return GGML_STATUS_ALLOC_FAILED;
    for (int first = 0;;) {
        job.nodes = nodes + first;
        job.n_begun = 0;
        job.again = NULL;
        steps.n_steps = n_nodes - first;
        const bool is_done = kin_team_run(team, &steps);
        if (!job.again) return is_done ? GGML_STATUS_SUCCESS : GGML_STATUS_ABORTED;
        for (first = 0; nodes[first] != job.again;) first++;
    }
}

// Returns the kin_graph that these nodes belong to, or NULL if none is kin's.
static const kin_graph *graph_of(struct ggml_tensor *const *nodes, int n_nodes) {
    for (int i = 0; i < n_nodes; i++)
        if (op_of(nodes[i])) return op_of(nodes[i])->graph;
    return NULL;
}

static enum ggml_status compute_graph(ggml_backend_t backend, struct ggml_cgraph *gf) {
    struct ggml_tensor **nodes = ggml_graph_nodes(gf);
    const int n = ggml_graph_n_nodes(gf);
    const kin_graph *g = graph_of(nodes, n);
    if (g && g->kernels && g->compute && g->compute->team) {
        kin_assert(is_for_team(nodes, n));
        return kin_ops_run(g, g->compute->team, nodes, n);
    }
    if (g) release(g);
    enum ggml_status status = ggml_backend_graph_compute(backend, gf);
    if (g) acquire(g);
    return status;
}

enum ggml_status kin_ops_compute(kin_graph *g, ggml_backend_t backend) {
    if (g->compute && g->compute->pace) return g->compute->pace(compute_graph, backend, g->gf);
    return compute_graph(backend, g->gf);
}

static int check_heads(const kin_hparams *hp, int il, int kv_type, kin_err *why) {
    const kin_layer layer = kin_layer_of(hp, il);
    const kin_kv_layout kv = kin_layer_kv(&layer, kv_type);
    if (layer.is_compressed || kin_kv_has(&kv)) return 0;
    const int step = kv_type == GGML_TYPE_Q8_0 ? 32 : 16;
    const bool keys_fit = kv.k_dim >= step && kv.k_dim <= KIN_KV_DIM && kv.k_dim % step == 0;
    return kin_err_set(why, "heads of %d values, as in layer %d, do not fit them: %d to %d in steps of %d do",
                       keys_fit ? kv.v_dim : kv.k_dim, il, step, KIN_KV_DIM, step);
}

static int check_width(int width, const char *of, kin_err *why) {
    return width % 16 == 0 ? 0 : kin_err_set(why, "%s of %d values do not fit them: multiples of 16 do", of, width);
}

int kin_ops_check(const kin_hparams *hp, int kv_type, kin_err *why) {
    for (int il = 0; il < hp->n_layer; il++)
        if (check_heads(hp, il, kv_type, why) != 0) return KIN_FAIL;
    if (check_width(hp->n_embd, "hidden states", why) != 0 || check_width(hp->latent.n_query, "latent queries", why) != 0 ||
        check_width(hp->n_input, "inputs of layers", why) != 0)
        return KIN_FAIL;
    if (hp->n_expert <= KIN_ROUTE_EXPERTS) return 0;
    return kin_err_set(why, "%d experts do not fit them: at most %d do", hp->n_expert, KIN_ROUTE_EXPERTS);
}

static char packed_mark; // only its address is used

void kin_ops_mark_packed(struct ggml_tensor *w) {
    w->extra = &packed_mark;
}

bool kin_ops_is_packed(const struct ggml_tensor *w) {
    return w->extra == &packed_mark;
}

// ---- norms

// Sources: x, the weight, the bias if there is one. A chunk is a row.
static int count_rows(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1];
}

static void norm_row(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *x = y->src[0], *weight = y->src[1];
    int64_t n = y->ne[0];
    (void)n_threads;
    const float *in = (const float *)x->data + c->i * n;
    float *out = (float *)y->data + c->i * n;
    if (op->hp->centers_norms) op->kernels->center(n, in, out);
    op->kernels->rms_norm(n, op->hp->centers_norms ? out : in, weight->data, op->eps, out);
    const float *bias = y->src[2] ? y->src[2]->data : NULL;
    for (int64_t i = 0; bias && i < n; i++) out[i] += bias[i];
}

static const kin_op_run norm = {.count = count_rows, .compute = norm_row};

struct ggml_tensor *kin_op_norm(kin_graph *g, float eps, struct ggml_tensor *x, struct ggml_tensor *weight,
                                struct ggml_tensor *bias) {
    struct kin_op *op = kin_op_new(g, KIN_OP_NORM);
    op->eps = eps;
    struct ggml_tensor *args[] = {x, weight, bias};
    return kin_op_node(g, GGML_TYPE_F32, x->ne[0], x->ne[1], args, bias ? 3 : 2, &norm, op);
}

// ---- rounded activations

static int64_t n_blocks(int64_t columns) {
    return (columns + KIN_ACT_COLUMNS - 1) / KIN_ACT_COLUMNS;
}

// Returns the number of blocks of one matrix, in tiles of rows.
static int64_t n_tile_blocks(const struct ggml_tensor *x) {
    return (x->ne[1] + KIN_OP_TILE - 1) / KIN_OP_TILE * n_blocks(x->ne[0]);
}

static int count_blocks(const struct ggml_tensor *act, const struct kin_op *op, int n_threads) {
    const struct ggml_tensor *x = act->src[0];
    (void)op, (void)n_threads;
    return (int)(n_tile_blocks(x) * x->ne[2]);
}

static void round_block(struct ggml_tensor *act, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *x = act->src[0];
    const int64_t columns = x->ne[0], n = x->ne[1], blocks = n_blocks(columns), matrix = c->i / n_tile_blocks(x);
    const int64_t i = c->i % n_tile_blocks(x), row = i / blocks * KIN_OP_TILE, block = i % blocks,
                  rows = kin_op_tile_rows(n, row);
    const int64_t first = matrix * n + row; // in all matrices
    (void)n_threads;
    op->kernels->quantize(op->kind[0], columns, rows, (const float *)x->data + first * columns,
                          (kin_act *)act->data + first * blocks, block * rows, (block + 1) * rows);
}

static const kin_op_run rounding = {.count = count_blocks, .compute = round_block};

struct ggml_tensor *kin_op_rounded(kin_graph *g, struct ggml_tensor *x, kin_act_kind kind) {
    if (kind == KIN_ACT_F32) return x;
    for (int i = 0; i < g->n_rounded; i++) {
        if (g->rounded[i].x == x && g->rounded[i].kind == kind) return g->rounded[i].act;
    }
    struct kin_op *op = kin_op_new(g, KIN_OP_ROUND);
    op->kind[0] = kind;
    struct ggml_tensor *act =
        kin_op_node(g, GGML_TYPE_I8, (int64_t)kin_act_bytes(x->ne[0], x->ne[1] * x->ne[2]), 1, &x, 1, &rounding, op);
    if (g->n_rounded == KIN_GRAPH_ROUNDED) g->n_rounded = 0; // older ones are not used again
    g->rounded[g->n_rounded++] = (kin_graph_rounded){x, kind, act};
    return act;
}

// ---- products

kin_matrix kin_op_matrix(const struct ggml_tensor *w, int64_t i_expert, int64_t begin, int64_t end) {
    int64_t first = begin * KIN_PANEL_ROWS, last = end * KIN_PANEL_ROWS;
    const uint8_t *data = (const uint8_t *)w->data + (size_t)i_expert * w->nb[2] + (size_t)first * w->nb[1];
    return (kin_matrix){.type = (int)w->type,
                        .columns = w->ne[0],
                        .rows = (last < w->ne[1] ? last : w->ne[1]) - first,
                        .is_packed = kin_ops_is_packed(w),
                        .data = data};
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

static void apply_gate(const struct kin_op *op, int64_t n, const float *gate, const float *up, float *y) {
    if (op->gate_limit > 0)
        op->kernels->gate_limited(op->gate, op->gate_limit, n, gate, up, y);
    else
        op->kernels->gate(op->gate, n, gate, up, y);
}

void kin_op_multiply_gated(const struct kin_op *op, const kin_op_pair *pair, int64_t n, float *y, int64_t ldy) {
    float other[KIN_OP_TILE * KIN_OP_GATED_PANELS * KIN_PANEL_ROWS];
    kin_matrix g = pair->gate, u = pair->up;
    const int64_t width = u.rows;
    kin_assert(kin_op_tile_rows(n, 0) * width <= (int64_t)(sizeof other / sizeof *other));
    g.next = u.data;
    for (int64_t row = 0; row < n; row += KIN_OP_TILE) {
        int64_t rows = kin_op_tile_rows(n, row);
        u.next = row + KIN_OP_TILE < n ? g.data : pair->up.next;
        multiply_tile(op, &g, op->kind[0], pair->input[0], row, rows, y + row * ldy, ldy);
        multiply_tile(op, &u, op->kind[1], pair->input[1], row, rows, other, width);
        if (pair->gate_bias) kin_op_add_rows(op, rows, width, pair->gate_bias, 0, y + row * ldy, ldy);
        if (pair->up_bias) kin_op_add_rows(op, rows, width, pair->up_bias, 0, other, width);
        for (int64_t i = 0; i < rows; i++) {
            float *h = y + (row + i) * ldy;
            apply_gate(op, width, h, other + i * width, h);
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

static int64_t linear_step(const struct ggml_tensor *y, int n_threads) {
    return chunk_panels((y->ne[0] + KIN_PANEL_ROWS - 1) / KIN_PANEL_ROWS, y->ne[1], n_threads);
}

static int count_spans(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    int64_t step = linear_step(y, n_threads), n = 0;
    for (int i = 0, at = 0; i < op->n_weights; i++) {
        n += n_chunks_of(y->src[at], step);
        at += 2 + op->has_bias[i];
    }
    return (int)n;
}

static kin_op_area area_of(const struct ggml_tensor *y, int64_t column, int64_t width) {
    return (kin_op_area){(float *)y->data + column, y->ne[0], y->ne[1], width, 0, width};
}

static kin_op_area linear_area(const struct ggml_tensor *y, const struct kin_op *op, int n_threads, int chunk) {
    const span s = find_span(y, op, linear_step(y, n_threads), chunk);
    return area_of(y, s.column + s.begin * KIN_PANEL_ROWS, matrix_of(y, s).rows);
}

static size_t linear_bytes(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op;
    return (size_t)(linear_step(y, n_threads) * KIN_PANEL_ROWS * y->ne[1]) * sizeof(float);
}

static void multiply_span(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int64_t step = linear_step(y, n_threads), n = y->ne[1];
    const span s = find_span(y, op, step, c->i);
    kin_matrix m = matrix_of(y, s);
    m.next = c->next < 0 ? NULL : matrix_of(y, find_span(y, op, step, c->next)).data;
    const int64_t first = s.begin * KIN_PANEL_ROWS, ldy = c->result ? m.rows : y->ne[0];
    float *to = c->result ? c->result : (float *)y->data + s.column + first;
    kin_op_multiply(op, &m, op->kind[s.weight], y->src[s.at + 1]->data, n, to, ldy);
    if (op->has_bias[s.weight]) kin_op_add_rows(op, n, m.rows, (const float *)y->src[s.at + 2]->data + first, 0, to, ldy);
    if (op->has_residual && s.weight == 0) {
        const struct ggml_tensor *residual = y->src[2 + op->has_bias[0]];
        kin_op_add_rows(op, n, m.rows, (const float *)residual->data + first, residual->ne[0], to, ldy);
    }
}

static const kin_op_run linear = {
    .count = count_spans, .compute = multiply_span, .result_bytes = linear_bytes, .area = linear_area, .claims_ahead = true};

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
    return kin_op_node(g, GGML_TYPE_F32, n_out, x->ne[1], args, n_args, &linear, op);
}

// Sources of kin_op_gated: gate, up (or gate again, if it contains both), the input of each. With few rows memory is the limit,
// and in a browser, which has no prefetch instruction, the processor's own prefetcher starts again at each change between the two
// matrices: so chunks are then as long as those of other products. (One row of Q4_K in Chromium, from memory: 4 panels per chunk
// 9.8 GB/s, 8 10.2, 16 and more 10.5.)
static int64_t gated_panels(const struct ggml_tensor *y, const struct kin_op *op) {
    return kin_op_panels(y->src[0]) / (op->is_stacked ? 2 : 1);
}

static int64_t gated_step(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    const int64_t usual = chunk_panels(gated_panels(y, op), y->ne[1], n_threads), most = kin_op_gated_panels(y->ne[1]);
    return usual < most ? usual : most;
}

static int count_gated(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    const int64_t step = gated_step(y, op, n_threads);
    return (int)((gated_panels(y, op) + step - 1) / step);
}

static kin_op_area gated_area(const struct ggml_tensor *y, const struct kin_op *op, int n_threads, int chunk) {
    const int64_t step = gated_step(y, op, n_threads) * KIN_PANEL_ROWS, begin = chunk * step, left = y->ne[0] - begin;
    return area_of(y, begin, left < step ? left : step);
}

static size_t gated_bytes(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    return (size_t)(gated_step(y, op, n_threads) * KIN_PANEL_ROWS * y->ne[1]) * sizeof(float);
}

static void multiply_gated(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *gate = y->src[0], *up = y->src[1];
    const int64_t panels = gated_panels(y, op), step = gated_step(y, op, n_threads), up_at = op->is_stacked ? panels : 0;
    const int64_t begin = c->i * step, end = begin + step < panels ? begin + step : panels;
    kin_op_pair pair = {.gate = kin_op_matrix(gate, 0, begin, end),
                        .up = kin_op_matrix(up, 0, up_at + begin, up_at + end),
                        .input = {y->src[2]->data, y->src[3]->data}};
    if (c->next >= 0) pair.up.next = kin_op_matrix(gate, 0, c->next * step, panels).data;
    float *to = c->result ? c->result : (float *)y->data + begin * KIN_PANEL_ROWS;
    kin_op_multiply_gated(op, &pair, y->ne[1], to, c->result ? pair.gate.rows : y->ne[0]);
}

static const kin_op_run gated = {
    .count = count_gated, .compute = multiply_gated, .result_bytes = gated_bytes, .area = gated_area, .claims_ahead = true};

// Sources: y, whose rows are gates, then as many values.
static void gate_row(struct ggml_tensor *h, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *y = h->src[0];
    const int64_t n = h->ne[0];
    const float *gate = (const float *)y->data + c->i * y->ne[0];
    (void)n_threads;
    apply_gate(op, n, gate, gate + n, (float *)h->data + c->i * n);
}

static const kin_op_run gates = {.count = count_rows, .compute = gate_row};

struct ggml_tensor *kin_op_gated(kin_graph *g, kin_gate kind, float limit, struct ggml_tensor *x, struct ggml_tensor *gate,
                                 struct ggml_tensor *up) {
    const bool apart = !up && gate->ne[1] % (2 * KIN_PANEL_ROWS) != 0; // the rows of up begin within a panel
    struct ggml_tensor *y = apart ? kin_op_linear(g, x, &gate, NULL, 1, NULL) : NULL;
    const kin_act_kind gate_kind = kin_kernel_act_kind((int)gate->type);
    const kin_act_kind up_kind = up ? kin_kernel_act_kind((int)up->type) : gate_kind;
    struct ggml_tensor *args[] = {gate, up ? up : gate, NULL, NULL};
    if (!apart) args[2] = kin_op_rounded(g, x, gate_kind);
    if (!apart) args[3] = kin_op_rounded(g, x, up_kind);
    struct kin_op *op = kin_op_new(g, apart ? KIN_OP_OTHER : KIN_OP_GATED);
    op->kind[0] = gate_kind;
    op->kind[1] = up_kind;
    op->gate = kind;
    op->gate_limit = limit;
    op->is_stacked = !up;
    const int64_t n_ff = up ? gate->ne[1] : gate->ne[1] / 2;
    if (apart) return kin_op_node(g, GGML_TYPE_F32, n_ff, x->ne[1], &y, 1, &gates, op);
    return kin_op_node(g, GGML_TYPE_F32, n_ff, x->ne[1], args, 4, &gated, op);
}

// Sources: y, the residual.
static void add_row(struct ggml_tensor *out, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *y = out->src[0], *residual = out->src[1];
    int64_t n = out->ne[0];
    float *to = (float *)out->data + c->i * n;
    (void)n_threads;
    memcpy(to, (const float *)residual->data + c->i * n, (size_t)n * sizeof *to);
    if (op->scale == 1)
        op->kernels->add(n, (const float *)y->data + c->i * n, to);
    else
        op->kernels->add_scaled(n, op->scale, (const float *)y->data + c->i * n, to);
}

static const kin_op_run addition = {.count = count_rows, .compute = add_row};

struct ggml_tensor *kin_op_add(kin_graph *g, struct ggml_tensor *y, float scale, struct ggml_tensor *residual) {
    struct ggml_tensor *args[] = {y, residual};
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->scale = scale;
    return kin_op_node(g, GGML_TYPE_F32, y->ne[0], y->ne[1], args, 2, &addition, op);
}

// Sources: h, the input.
static void gate_input_row(struct ggml_tensor *h, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *input = h->src[1];
    float *row = (float *)h->data + c->i * h->ne[0];
    (void)n_threads;
    op->kernels->gate(KIN_GATE_GELU, h->ne[0], row, (const float *)((const char *)input->data + (size_t)c->i * input->nb[1]),
                      row);
}

static const kin_op_run input_gating = {.count = count_rows, .compute = gate_input_row};

struct ggml_tensor *kin_op_gate_input(kin_graph *g, struct ggml_tensor *h, struct ggml_tensor *input) {
    return kin_op_inplace(g, h, &input, 1, &input_gating, kin_op_new(g, KIN_OP_OTHER));
}

static void square_row(struct ggml_tensor *h, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    float *row = (float *)h->data + c->i * h->ne[0];
    (void)op, (void)n_threads;
    for (int64_t i = 0; i < h->ne[0]; i++) row[i] = row[i] > 0 ? row[i] * row[i] : 0;
}

static const kin_op_run squaring = {.count = count_rows, .compute = square_row};

struct ggml_tensor *kin_op_square_relu(kin_graph *g, struct ggml_tensor *h) {
    return kin_op_inplace(g, h, NULL, 0, &squaring, kin_op_new(g, KIN_OP_OTHER));
}

// Sources: x, the scale.
static void multiply_row(struct ggml_tensor *x, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const float scale = *(const float *)x->src[1]->data;
    (void)n_threads;
    op->kernels->cap(x->ne[0], scale, 0, (float *)x->data + c->i * x->ne[0]);
}

static const kin_op_run multiplying = {.count = count_rows, .compute = multiply_row};

struct ggml_tensor *kin_op_scale(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *scale) {
    return kin_op_inplace(g, x, &scale, 1, &multiplying, kin_op_new(g, KIN_OP_OTHER));
}

// Sources: x, the gate.
static void scale_row(struct ggml_tensor *x, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const float *gate = x->src[1]->data;
    float *row = (float *)x->data + c->i * x->ne[0];
    (void)n_threads;
    op->kernels->scale_sigmoid(x->ne[0], gate[c->i], row, row);
}

static const kin_op_run scaling = {.count = count_rows, .compute = scale_row};

struct ggml_tensor *kin_op_scale_sigmoid(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *gate) {
    return kin_op_inplace(g, x, &gate, 1, &scaling, kin_op_new(g, KIN_OP_OTHER));
}

// ---- sums

static int count_one(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)y, (void)op, (void)n_threads;
    return 1;
}

// Sources: the residual, if there is one. A single thread talks to the other devices; the addition is short.
static void add_parts(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const float *residual = y->src[1] ? y->src[1]->data : NULL;
    int64_t n = y->ne[0] * y->ne[1];
    kin_graph_sums *s = op->sums;
    float *x = y->data;
    (void)n_threads, (void)c;
    if (!s->failed) s->failed = s->sum.add(s->sum.user, x, (int)y->ne[1], (int)y->ne[0], &s->err) != 0;
    for (int64_t k = 0; k < n && residual; k++) x[k] += residual[k];
}

static const kin_op_run sum_of_parts = {.count = count_one, .compute = add_parts};

struct ggml_tensor *kin_op_sum(kin_graph *g, struct ggml_tensor *y, struct ggml_tensor *residual) {
    struct ggml_tensor *sum = kin_op_inplace(g, y, &residual, residual ? 1 : 0, &sum_of_parts, kin_op_new(g, KIN_OP_OTHER));
    ggml_set_name(sum, "sum");
    return sum;
}

// ---- rows

// Sources: x, the rows' numbers.
static void copy_row(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *x = y->src[0];
    const int32_t row = ((const int32_t *)y->src[1]->data)[c->i];
    (void)op, (void)n_threads;
    memcpy((uint8_t *)y->data + (size_t)c->i * y->nb[1], (const uint8_t *)x->data + (size_t)row * x->nb[1], y->nb[1]);
}

static const kin_op_run some_rows = {.count = count_rows, .compute = copy_row};

struct ggml_tensor *kin_op_rows(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *rows) {
    struct ggml_tensor *args[] = {x, rows};
    kin_assert(x->nb[1] == (size_t)x->ne[0] * sizeof(float));
    return kin_op_node(g, GGML_TYPE_F32, x->ne[0], rows->ne[0], args, 2, &some_rows, kin_op_new(g, KIN_OP_ROWS));
}

// Sources: x.
static void copy_over(struct ggml_tensor *to, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *x = to->src[1];
    (void)op, (void)n_threads;
    memcpy((uint8_t *)to->data + (size_t)c->i * to->nb[1], (const uint8_t *)x->data + (size_t)c->i * x->nb[1], x->nb[1]);
}

static const kin_op_run copying = {.count = count_rows, .compute = copy_over};

struct ggml_tensor *kin_op_copy(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *to) {
    kin_assert(x->nb[1] == (size_t)x->ne[0] * sizeof(float) && x->ne[0] == to->ne[0] && x->ne[1] == to->ne[1]);
    return kin_op_inplace(g, to, &x, 1, &copying, kin_op_new(g, KIN_OP_OTHER));
}
