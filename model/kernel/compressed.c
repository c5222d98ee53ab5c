// Attention over a window of tokens and over compressed rows (kin_compressed in model/hparams.h).
//
// A token's cell of the cache is a row of F16 (kin_layer_n_compressed): the token's own row; the compressed row of the block of
// tokens that it ends, else zeros; and the values and gates of which such rows are made. With an indexer the same follows for its
// keys. So all of it follows from the tokens up to this one: a sequence can be shortened anywhere, and sequences can share cells.
//
// Each query attends to its window in order, then to the compressed rows in order, or to those that the indexer chooses.
#include <string.h>

#include "kernels/panel.h"
#include "model/kernel/heads.h"
#include "model/kernel/made_rows.h"

enum {
    HEADS = 8,  // of a query that a chunk computes
    PIECE = 16, // rows of the cache that are converted at once
    ROWS = KIN_COMPRESSED_WINDOW + KIN_COMPRESSED_ROWS,
    ROWS_A_CHUNK = 4,
};

static int count_row_chunks(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)((y->ne[1] + ROWS_A_CHUNK - 1) / ROWS_A_CHUNK);
}

// Rotates the end of a row of n numbers. cos_sin: of its position
static void rotate_end(const struct kin_op *op, const float *cos_sin, int n, float *row) {
    const int n_rot = op->hp->compressed.n_rot;
    op->kernels->rope(op->hp->rope_neox, n_rot, cos_sin, row + n - n_rot);
}

// ---- cells

// Sources: the tokens' rows followed by values and gates, cos_sin, the cache, the norm.
static void store_token(const struct kin_op *op, const struct ggml_tensor *y, int row) {
    const struct ggml_tensor *cos_sin = y->src[1], *k = y->src[2], *norm = y->src[3];
    const int dim = op->layer.head_dim;
    float *x = (float *)y->data + row * y->ne[0];
    op->kernels->rms_norm(dim, x, norm->data, op->eps, x);
    rotate_end(op, (const float *)cos_sin->data + row * cos_sin->ne[0], dim, x);
    kin_op_store_cells(op, k, row, 0, dim, x);
    if (op->layer.ratio == 0) return;
    kin_op_store_cells(op, k, row, dim, dim, NULL);
    kin_op_store_cells(op, k, row, 2 * dim, kin_layer_n_raw(&op->layer), x + dim);
}

static void store_tokens(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int n = (int)y->ne[1], begin = c->i * ROWS_A_CHUNK, end = begin + ROWS_A_CHUNK < n ? begin + ROWS_A_CHUNK : n;
    (void)n_threads;
    for (int row = begin; row < end; row++) store_token(op, y, row);
}

static const kin_op_run tokens_to_cells = {.count = count_row_chunks, .compute = store_tokens};

// ---- compressed rows

static kin_made_rows compressed_row(const kin_layer *layer) {
    return (kin_made_rows){.n_tokens = layer->ratio,
                           .overlaps = layer->ratio == KIN_COMPRESSED_OVERLAPS,
                           .at = layer->head_dim,
                           .dim = layer->head_dim,
                           .values_at = 2 * layer->head_dim,
                           .n_values = kin_layer_n_raw(layer) / 2};
}

static kin_made_rows index_key(const kin_layer *layer) {
    const int dim = layer->n_index_key, at = 2 * layer->head_dim + kin_layer_n_raw(layer);
    return (kin_made_rows){.n_tokens = layer->ratio,
                           .overlaps = layer->ratio == KIN_COMPRESSED_OVERLAPS,
                           .at = at,
                           .dim = dim,
                           .values_at = at + dim,
                           .n_values = 2 * dim};
}

static int count_rows(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1];
}

// Sources: what the tokens' cells have got, the cache, the gates' additions, the norm. A chunk is a token.
static void make_row(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *k = y->src[1], *places = y->src[2], *norm = y->src[3];
    const kin_made_rows *made = &op->made;
    const kin_rope *rope = &op->hp->ropes[op->layer.rope];
    const int pos = op->rows->plain.pos[c->i];
    float x[KIN_KV_DIM], cos_sin[2 * KIN_ROPE_PAIRS];
    double freq[KIN_ROPE_PAIRS];
    (void)n_threads;
    if ((pos + 1) % made->n_tokens != 0) return;
    kin_op_pool_block(op, k, c->i, pos, places->data, x);
    op->kernels->rms_norm(made->dim, x, norm->data, op->eps, x);
    kin_rope_frequencies(rope, freq);
    kin_rope_cos_sin(rope, freq, pos + 1 - made->n_tokens, cos_sin);
    rotate_end(op, cos_sin, made->dim, x);
    kin_op_store_cells(op, k, c->i, made->at, made->dim, x);
}

static const kin_op_run compressing = {.count = count_rows, .compute = make_row};

static struct kin_op *new_op(kin_graph *g, int il, kin_graph_rows *rows) {
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->rows = rows;
    op->layer = kin_layer_of(g->hp, il);
    op->made = compressed_row(&op->layer);
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
        rotate_end(op, (const float *)cos_sin->data + c->i * cos_sin->ne[0], dim, head);
    }
}

static const kin_op_run queries = {.count = count_rows, .compute = make_queries};

struct ggml_tensor *kin_op_compressed_queries(kin_graph *g, int il, struct ggml_tensor *y, kin_graph_rows *rows) {
    struct kin_op *op = new_op(g, il, rows);
    struct ggml_tensor *cos_sin = kin_op_cos_sin(g, rows, op->layer.rope);
    return kin_op_inplace(g, y, &cos_sin, 1, &queries, op);
}

// ---- an indexer's keys

static struct kin_op *new_index_op(kin_graph *g, int il) {
    struct kin_op *op = new_op(g, il, &g->all);
    op->made = index_key(&op->layer);
    return op;
}

// Sources: values and gates, the cache.
static void store_index_values(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const kin_made_rows *made = &op->made;
    (void)n_threads;
    kin_op_store_cells(op, y->src[1], c->i, made->at, made->dim, NULL);
    kin_op_store_cells(op, y->src[1], c->i, made->values_at, 2 * made->n_values, (const float *)y->data + c->i * y->ne[0]);
}

static const kin_op_run index_values_to_cells = {.count = count_rows, .compute = store_index_values};

struct ggml_tensor *kin_op_compressed_keys(kin_graph *g, int il, struct ggml_tensor *y) {
    const kin_graph_layer *layer = &g->layers[il];
    struct ggml_tensor *args[] = {layer->k, layer->w[KIN_W_INDEX_COMPRESSOR_APE], layer->w[KIN_W_INDEX_COMPRESSOR_NORM]};
    y = kin_op_inplace(g, y, args, 1, &index_values_to_cells, new_index_op(g, il));
    return kin_op_inplace(g, y, args, 3, &compressing, new_index_op(g, il));
}

// ---- the indexer's choice

// Sources: the queries, cos_sin.
static void make_index_queries(struct ggml_tensor *q, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *cos_sin = q->src[1];
    const int dim = op->layer.n_index_key;
    float *head = (float *)q->data + c->i * q->ne[0];
    (void)n_threads;
    for (int i = 0; i < op->hp->indexer.n_head; i++, head += dim)
        rotate_end(op, (const float *)cos_sin->data + c->i * cos_sin->ne[0], dim, head);
}

static const kin_op_run index_queries = {.count = count_rows, .compute = make_index_queries};

struct ggml_tensor *kin_op_compressed_choose(kin_graph *g, int il, struct ggml_tensor *q, struct ggml_tensor *weights,
                                             kin_graph_rows *rows) {
    struct kin_op *op = new_op(g, il, rows);
    struct ggml_tensor *cos_sin = kin_op_cos_sin(g, rows, op->layer.rope);
    q = kin_op_inplace(g, q, &cos_sin, 1, &index_queries, op);
    return kin_op_choose_made(g, il, q, weights, g->layers[il].k, index_key(&op->layer), g->n_kv / KIN_COMPRESSED_OVERLAPS, rows);
}

// ---- attention

// Returns the number of compressed rows up to the token of a row.
static int n_compressed(const struct kin_op *op, int row) {
    return op->layer.ratio > 0 ? (op->rows->plain.pos[row] + 1) / op->layer.ratio : 0;
}

// The cells and compressed rows that a query attends to.
typedef struct seen {
    int row, begin, n_window; // the window's first position, and its length
    int n;                    // with the compressed rows
    const int32_t *chosen;    // which compressed rows; NULL: all
} seen;

// chosen // i32 [n_chosen, n]; NULL: no indexer chooses
static seen seen_by(const struct kin_op *op, const struct ggml_tensor *chosen, int row) {
    const int pos = op->rows->plain.pos[row], window = op->hp->compressed.window, n_rows = n_compressed(op, row);
    seen s = {.row = row, .begin = pos < window ? 0 : pos + 1 - window};
    s.n_window = pos + 1 - s.begin;
    if (chosen && n_rows > chosen->ne[0]) s.chosen = (const int32_t *)chosen->data + row * chosen->ne[0];
    s.n = s.n_window + (s.chosen ? (int)chosen->ne[0] : n_rows);
    kin_assert(s.n <= ROWS); // ensured by kin_hparams.n_ctx_max
    return s;
}

// Converts n of the rows, from number `at` on: x // f32 [n, head_dim]
static void load_rows(const struct kin_op *op, const struct ggml_tensor *k, const seen *s, int at, int n, float *x) {
    const int dim = op->layer.head_dim;
    for (int i = at; i < at + n; i++, x += dim) {
        const bool is_token = i < s->n_window;
        const int made = is_token ? 0 : s->chosen ? s->chosen[i - s->n_window] : i - s->n_window;
        const int pos = is_token ? s->begin + i : (made + 1) * op->layer.ratio - 1;
        op->kernels->from_f16(dim, kin_op_cell_of(op, k, s->row, pos) + (is_token ? 0 : dim), x);
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
    for (int i = 0; i < n; i++) rotate_end(op, back, op->layer.head_dim, head + i * op->layer.head_dim);
}

// Sources: the queries, the cache, cos_sin, and the sinks and the chosen rows if there are any.
static void attend(struct ggml_tensor *out, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *q = out->src[0], *k = out->src[1], *cos_sin = out->src[2];
    const struct ggml_tensor *chosen = op->has_chosen ? out->src[3 + op->has_sinks] : NULL;
    const int dim = op->layer.head_dim, row = c->i / parts_of(op), first = c->i % parts_of(op) * HEADS;
    const int n = op->layer.n_head - first < HEADS ? op->layer.n_head - first : HEADS;
    const float *sinks = op->has_sinks ? (const float *)out->src[3]->data + first : NULL;
    const seen s = seen_by(op, chosen, row);
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

struct ggml_tensor *kin_op_compressed_attend(kin_graph *g, int il, struct ggml_tensor *q, struct ggml_tensor *chosen,
                                             kin_graph_rows *rows) {
    const kin_graph_layer *layer = &g->layers[il];
    struct kin_op *op = new_op(g, il, rows);
    struct ggml_tensor *args[5] = {q, layer->k, kin_op_cos_sin(g, rows, op->layer.rope)}, *sinks = layer->w[KIN_W_ATTN_SINKS];
    int n_args = 3;
    if (sinks) args[n_args++] = sinks;
    if (chosen) args[n_args++] = chosen;
    op->has_sinks = sinks != NULL;
    op->has_chosen = chosen != NULL;
    return kin_op_node(g, GGML_TYPE_F32, q->ne[0], rows->n, args, n_args, &attention, op);
}
