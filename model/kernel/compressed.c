// Attention over a window of tokens and over compressed rows (kin_compressed in model/hparams.h).
//
// A token's cell of the cache is a row of F16 (kin_layer_n_compressed): the token's own row; the compressed row of the block of
// tokens that it ends, else zeros; and the values and gates of which such rows are made. So all of it follows from the tokens up
// to this one: a sequence can be shortened anywhere, and sequences can share cells.
//
// Each query attends to its window in order, then to the compressed rows in order.
#include <string.h>

#include "kernels/panel.h"
#include "model/kernel/heads.h"

enum {
    HEADS = 8,  // of a query that a chunk computes
    PIECE = 16, // rows of the cache that are converted at once
    SLICE = 32, // channels of a compressed row that are computed at once
    ROWS = KIN_COMPRESSED_WINDOW + KIN_COMPRESSED_ROWS,
    ROWS_A_CHUNK = 4,
};

static int count_row_chunks(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)((y->ne[1] + ROWS_A_CHUNK - 1) / ROWS_A_CHUNK);
}

// Rotates the end of a row of head_dim numbers. cos_sin: of its position
static void rotate_end(const struct kin_op *op, const float *cos_sin, float *row) {
    const int n_rot = op->hp->compressed.n_rot;
    op->kernels->rope(op->hp->rope_neox, n_rot, cos_sin, row + op->layer.head_dim - n_rot);
}

// ---- cells

static ggml_fp16_t *cell_at(const struct ggml_tensor *k, int32_t cell) {
    return (ggml_fp16_t *)((char *)k->data + (size_t)cell * k->nb[1]);
}

static const ggml_fp16_t *cell_of(const struct kin_op *op, const struct ggml_tensor *k, int row, int pos) {
    return cell_at(k, op->rows->plain.tables[row][pos / KIN_KV_CELLS] * KIN_KV_CELLS + pos % KIN_KV_CELLS);
}

// Writes n numbers into the cells of a token of the batch, from number `at` of a cell on; x NULL: zeros.
static void store(const struct kin_op *op, const struct ggml_tensor *k, int row, int at, int n, const float *x) {
    const kin_rows *rows = &op->rows->plain;
    for (int i = -1; i < rows->n_copies; i++) {
        if (i >= 0 && rows->copies[i].row != row) continue;
        ggml_fp16_t *to = cell_at(k, i < 0 ? rows->cells[row] : rows->copies[i].cell) + at;
        if (x)
            op->kernels->to_f16(n, x, to);
        else
            memset(to, 0, (size_t)n * sizeof *to);
    }
}

// Sources: the tokens' rows followed by values and gates, cos_sin, the cache, the norm.
static void store_token(const struct kin_op *op, const struct ggml_tensor *y, int row) {
    const struct ggml_tensor *cos_sin = y->src[1], *k = y->src[2], *norm = y->src[3];
    const int dim = op->layer.head_dim;
    float *x = (float *)y->data + row * y->ne[0];
    op->kernels->rms_norm(dim, x, norm->data, op->eps, x);
    rotate_end(op, (const float *)cos_sin->data + row * cos_sin->ne[0], x);
    store(op, k, row, 0, dim, x);
    if (op->layer.ratio == 0) return;
    store(op, k, row, dim, dim, NULL);
    store(op, k, row, 2 * dim, kin_layer_n_raw(&op->layer), x + dim);
}

static void store_tokens(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int n = (int)y->ne[1], begin = c->i * ROWS_A_CHUNK, end = begin + ROWS_A_CHUNK < n ? begin + ROWS_A_CHUNK : n;
    (void)n_threads;
    for (int row = begin; row < end; row++) store_token(op, y, row);
}

static const kin_op_run tokens_to_cells = {.count = count_row_chunks, .compute = store_tokens};

// ---- compressed rows

// The values and gates of a slice of channels, of the tokens that a compressed row is made of.
typedef struct slice {
    float value[KIN_COMPRESSED_RATIO][SLICE], gate[KIN_COMPRESSED_RATIO][SLICE];
    const float *values[KIN_COMPRESSED_RATIO], *gates[KIN_COMPRESSED_RATIO];
    int n;
} slice;

// Adds the token at `pos`: of its values those from `at` on. ape // f32 [n_raw / 2, ratio]
static void add_token(slice *s, const struct kin_op *op, const ggml_fp16_t *cell, int pos, int at, int width, const float *ape) {
    const int n_values = kin_layer_n_raw(&op->layer) / 2;
    const ggml_fp16_t *values = cell + 2 * op->layer.head_dim + at;
    op->kernels->from_f16(width, values, s->value[s->n]);
    op->kernels->from_f16(width, values + n_values, s->gate[s->n]);
    for (int i = 0; i < width; i++) s->gate[s->n][i] += ape[pos % op->layer.ratio * n_values + at + i];
    s->values[s->n] = s->value[s->n];
    s->gates[s->n] = s->gate[s->n];
    s->n++;
}

// Computes the row of the block that ends with the token at `pos` of a row's sequence: x // f32 [head_dim]
static void pool_block(const struct kin_op *op, const struct ggml_tensor *k, int row, int pos, const float *ape, float *x) {
    const int dim = op->layer.head_dim, ratio = op->layer.ratio, first = pos + 1 - ratio;
    const bool overlaps = ratio == KIN_COMPRESSED_OVERLAPS;
    slice s;
    for (int at = 0; at < dim; at += SLICE) {
        const int width = dim - at < SLICE ? dim - at : SLICE;
        s.n = 0;
        for (int p = first - ratio; p < first && overlaps && p >= 0; p++)
            add_token(&s, op, cell_of(op, k, row, p), p, at, width, ape);
        for (int p = first; p <= pos; p++) add_token(&s, op, cell_of(op, k, row, p), p, overlaps ? dim + at : at, width, ape);
        op->kernels->pool(width, s.n, s.gates, s.values, x + at);
    }
}

static int count_rows(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1];
}

// Sources: the tokens' rows, which are in their cells, the cache, the gates' additions, the norm.
static void compress_block(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *k = y->src[1], *ape = y->src[2], *norm = y->src[3];
    const kin_rope *rope = &op->hp->ropes[op->layer.rope];
    const int dim = op->layer.head_dim, pos = op->rows->plain.pos[c->i];
    float x[KIN_KV_DIM], cos_sin[2 * KIN_ROPE_PAIRS];
    double freq[KIN_ROPE_PAIRS];
    (void)n_threads;
    if ((pos + 1) % op->layer.ratio != 0) return;
    pool_block(op, k, c->i, pos, ape->data, x);
    op->kernels->rms_norm(dim, x, norm->data, op->eps, x);
    kin_rope_frequencies(rope, freq);
    kin_rope_cos_sin(rope, freq, pos + 1 - op->layer.ratio, cos_sin);
    rotate_end(op, cos_sin, x);
    store(op, k, c->i, dim, dim, x);
}

static const kin_op_run compressing = {.count = count_rows, .compute = compress_block};

static struct kin_op *new_op(kin_graph *g, int il, kin_graph_rows *rows) {
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->rows = rows;
    op->layer = kin_layer_of(g->hp, il);
    op->eps = g->hp->rms_eps;
    return op;
}

struct ggml_tensor *kin_op_compressed_rows(kin_graph *g, int il, struct ggml_tensor *y) {
    const kin_graph_layer *layer = &g->layers[il];
    struct kin_op *op = new_op(g, il, &g->all);
    struct ggml_tensor *args[] = {kin_op_cos_sin(g, &g->all, op->layer.rope), layer->k, layer->w[KIN_W_COMPRESSED_KV_NORM]};
    y = kin_op_inplace(g, y, args, 3, &tokens_to_cells, op);
    if (op->layer.ratio == 0) return y;
    struct ggml_tensor *const of_block[] = {layer->k, layer->w[KIN_W_COMPRESSOR_APE], layer->w[KIN_W_COMPRESSOR_NORM]};
    memcpy(args, of_block, sizeof of_block);
    return kin_op_inplace(g, y, args, 3, &compressing, new_op(g, il, &g->all));
}

// ---- queries

// Sources: the queries, cos_sin.
static void make_queries(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *cos_sin = y->src[1];
    const int dim = op->layer.head_dim;
    float *head = (float *)y->data + c->i * y->ne[0];
    (void)n_threads;
    for (int i = 0; i < op->layer.n_head; i++, head += dim) {
        op->kernels->rms_norm(dim, head, NULL, op->eps, head);
        rotate_end(op, (const float *)cos_sin->data + c->i * cos_sin->ne[0], head);
    }
}

static const kin_op_run queries = {.count = count_rows, .compute = make_queries};

struct ggml_tensor *kin_op_compressed_queries(kin_graph *g, int il, struct ggml_tensor *y, kin_graph_rows *rows) {
    struct kin_op *op = new_op(g, il, rows);
    struct ggml_tensor *cos_sin = kin_op_cos_sin(g, rows, op->layer.rope);
    return kin_op_inplace(g, y, &cos_sin, 1, &queries, op);
}

// ---- attention

// The cells and compressed rows that a query attends to.
typedef struct seen {
    int row, begin, n_window; // the window's first position, and its length
    int n;                    // with the compressed rows
} seen;

static seen seen_by(const struct kin_op *op, int row) {
    const int pos = op->rows->plain.pos[row], window = op->hp->compressed.window, ratio = op->layer.ratio;
    seen s = {.row = row, .begin = pos < window ? 0 : pos + 1 - window};
    s.n_window = pos + 1 - s.begin;
    s.n = s.n_window + (ratio > 0 ? (pos + 1) / ratio : 0);
    kin_assert(s.n <= ROWS); // ensured by kin_hparams.n_ctx_max
    return s;
}

// Converts n of the rows, from number `at` on: x // f32 [n, head_dim]
static void load_rows(const struct kin_op *op, const struct ggml_tensor *k, const seen *s, int at, int n, float *x) {
    const int dim = op->layer.head_dim;
    for (int i = at; i < at + n; i++, x += dim) {
        const bool is_token = i < s->n_window;
        const int pos = is_token ? s->begin + i : (i - s->n_window + 1) * op->layer.ratio - 1;
        op->kernels->from_f16(dim, cell_of(op, k, s->row, pos) + (is_token ? 0 : dim), x);
    }
}

static int parts_of(const struct kin_op *op) {
    return (op->layer.n_head + HEADS - 1) / HEADS;
}

static int count_parts(const struct ggml_tensor *out, const struct kin_op *op, int n_threads) {
    (void)n_threads;
    return (int)out->ne[1] * parts_of(op);
}

// Rotates the end of n heads' results back.
static void rotate_back(const struct kin_op *op, const float *cos_sin, int n, float *head) {
    const int half = op->hp->compressed.n_rot / 2;
    float back[2 * KIN_ROPE_PAIRS];
    for (int i = 0; i < half; i++) {
        back[i] = cos_sin[i];
        back[half + i] = -cos_sin[half + i];
    }
    for (int i = 0; i < n; i++) rotate_end(op, back, head + i * op->layer.head_dim);
}

// Sources: the queries, the cache, cos_sin, and the sinks if there are any.
static void attend(struct ggml_tensor *out, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *q = out->src[0], *k = out->src[1], *cos_sin = out->src[2];
    const int dim = op->layer.head_dim, row = c->i / parts_of(op), first = c->i % parts_of(op) * HEADS;
    const int n = op->layer.n_head - first < HEADS ? op->layer.n_head - first : HEADS;
    const float *sinks = op->has_sinks ? (const float *)out->src[3]->data + first : NULL;
    const seen s = seen_by(op, row);
    float scores[HEADS][ROWS], x[PIECE * KIN_KV_DIM], *to = (float *)out->data + row * out->ne[0] + first * dim;
    (void)n_threads;
    for (int at = 0; at < s.n; at += PIECE) {
        const kin_matrix m = {
            .type = KIN_TYPE_F32, .columns = dim, .rows = s.n - at < PIECE ? s.n - at : PIECE, .data = x, .next = x};
        load_rows(op, k, &s, at, (int)m.rows, x);
        op->kernels->matmul(&m, NULL, (const float *)q->data + row * q->ne[0] + first * dim, n, scores[0] + at, ROWS, 0, 1);
    }
    for (int i = 0; i < n; i++) op->kernels->softmax(s.n, op->layer.attn_scale, sinks ? &sinks[i] : NULL, scores[i]);
    memset(to, 0, (size_t)(n * dim) * sizeof *to);
    for (int at = 0; at < s.n; at += PIECE) {
        const int n_rows = s.n - at < PIECE ? s.n - at : PIECE;
        load_rows(op, k, &s, at, n_rows, x);
        for (int i = 0; i < n; i++)
            for (int r = 0; r < n_rows; r++) op->kernels->add_scaled(dim, scores[i][at + r], x + r * dim, to + i * dim);
    }
    rotate_back(op, (const float *)cos_sin->data + row * cos_sin->ne[0], n, to);
}

static const kin_op_run attention = {.count = count_parts, .compute = attend};

struct ggml_tensor *kin_op_compressed_attend(kin_graph *g, int il, struct ggml_tensor *q, kin_graph_rows *rows) {
    const kin_graph_layer *layer = &g->layers[il];
    struct kin_op *op = new_op(g, il, rows);
    struct ggml_tensor *args[] = {q, layer->k, kin_op_cos_sin(g, rows, op->layer.rope), layer->w[KIN_W_ATTN_SINKS]};
    op->has_sinks = args[3] != NULL;
    return kin_op_node(g, GGML_TYPE_F32, q->ne[0], rows->n, args, op->has_sinks ? 4 : 3, &attention, op);
}
