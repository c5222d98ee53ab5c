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

enum {
    HEADS = 8,  // of a query that a chunk computes
    PIECE = 16, // rows of the cache that are converted at once
    SLICE = 32, // channels of a compressed row that are computed at once
    ROWS = KIN_COMPRESSED_WINDOW + KIN_COMPRESSED_ROWS,
    ROWS_A_CHUNK = 4,
    SCORED_ROWS = 4,    // of at most this many tokens the scores are a node of their own, which threads share
    KEYS_A_CHUNK = 256, // of such scores
    INDEX_HEADS = 64,   // whose products are computed at once
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
    rotate_end(op, (const float *)cos_sin->data + row * cos_sin->ne[0], dim, x);
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

// A row that is made of a block of tokens: its place in the cell of the last one, its width, and the place of the values in the
// cells of all, which are followed by as many gates.
typedef struct made_row {
    int at, dim, values_at, n_values;
} made_row;

static made_row compressed_row(const kin_layer *layer) {
    return (made_row){layer->head_dim, layer->head_dim, 2 * layer->head_dim, kin_layer_n_raw(layer) / 2};
}

static made_row index_key(const kin_layer *layer) {
    const int dim = layer->n_index_key, at = 2 * layer->head_dim + kin_layer_n_raw(layer);
    return (made_row){at, dim, at + dim, 2 * dim};
}

// The values and gates of a slice of channels, of the tokens that a compressed row is made of.
typedef struct slice {
    float value[KIN_COMPRESSED_RATIO][SLICE], gate[KIN_COMPRESSED_RATIO][SLICE];
    const float *values[KIN_COMPRESSED_RATIO], *gates[KIN_COMPRESSED_RATIO];
    int n;
} slice;

// Adds the token at `pos`: of its values those from `at` on. ape // f32 [n_values, ratio]
static void add_token(slice *s, const struct kin_op *op, const made_row *made, const ggml_fp16_t *cell, int pos, int at,
                      int width, const float *ape) {
    const ggml_fp16_t *values = cell + made->values_at + at;
    op->kernels->from_f16(width, values, s->value[s->n]);
    op->kernels->from_f16(width, values + made->n_values, s->gate[s->n]);
    for (int i = 0; i < width; i++) s->gate[s->n][i] += ape[pos % op->layer.ratio * made->n_values + at + i];
    s->values[s->n] = s->value[s->n];
    s->gates[s->n] = s->gate[s->n];
    s->n++;
}

// Computes the row of the block that ends with the token at `pos` of a row's sequence: x // f32 [dim]
static void pool_block(const struct kin_op *op, const made_row *made, const struct ggml_tensor *k, int row, int pos,
                       const float *ape, float *x) {
    const int dim = made->dim, ratio = op->layer.ratio, first = pos + 1 - ratio;
    const bool overlaps = ratio == KIN_COMPRESSED_OVERLAPS;
    slice s;
    for (int at = 0; at < dim; at += SLICE) {
        const int width = dim - at < SLICE ? dim - at : SLICE;
        s.n = 0;
        for (int p = first - ratio; p < first && overlaps && p >= 0; p++)
            add_token(&s, op, made, cell_of(op, k, row, p), p, at, width, ape);
        for (int p = first; p <= pos; p++)
            add_token(&s, op, made, cell_of(op, k, row, p), p, overlaps ? dim + at : at, width, ape);
        op->kernels->pool(width, s.n, s.gates, s.values, x + at);
    }
}

static int count_rows(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1];
}

// Sources: what the tokens' cells have got, the cache, the gates' additions, the norm. row: of the batch
static void make_row(const struct ggml_tensor *y, const struct kin_op *op, const made_row *made, int row) {
    const struct ggml_tensor *k = y->src[1], *ape = y->src[2], *norm = y->src[3];
    const kin_rope *rope = &op->hp->ropes[op->layer.rope];
    const int pos = op->rows->plain.pos[row];
    float x[KIN_KV_DIM], cos_sin[2 * KIN_ROPE_PAIRS];
    double freq[KIN_ROPE_PAIRS];
    if ((pos + 1) % op->layer.ratio != 0) return;
    pool_block(op, made, k, row, pos, ape->data, x);
    op->kernels->rms_norm(made->dim, x, norm->data, op->eps, x);
    kin_rope_frequencies(rope, freq);
    kin_rope_cos_sin(rope, freq, pos + 1 - op->layer.ratio, cos_sin);
    rotate_end(op, cos_sin, made->dim, x);
    store(op, k, row, made->at, made->dim, x);
}

static void compress_block(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const made_row made = compressed_row(&op->layer);
    (void)n_threads;
    make_row(y, op, &made, c->i);
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

// Sources: values and gates, the cache.
static void store_index_values(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const made_row made = index_key(&op->layer);
    (void)n_threads;
    store(op, y->src[1], c->i, made.at, made.dim, NULL);
    store(op, y->src[1], c->i, made.values_at, 2 * made.n_values, (const float *)y->data + c->i * y->ne[0]);
}

static void make_index_key(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const made_row made = index_key(&op->layer);
    (void)n_threads;
    make_row(y, op, &made, c->i);
}

static const kin_op_run index_values_to_cells = {.count = count_rows, .compute = store_index_values};
static const kin_op_run index_keys = {.count = count_rows, .compute = make_index_key};

struct ggml_tensor *kin_op_compressed_keys(kin_graph *g, int il, struct ggml_tensor *y) {
    const kin_graph_layer *layer = &g->layers[il];
    struct ggml_tensor *args[] = {layer->k, layer->w[KIN_W_INDEX_COMPRESSOR_APE], layer->w[KIN_W_INDEX_COMPRESSOR_NORM]};
    y = kin_op_inplace(g, y, args, 1, &index_values_to_cells, new_op(g, il, &g->all));
    return kin_op_inplace(g, y, args, 3, &index_keys, new_op(g, il, &g->all));
}

// ---- the indexer's choice

// Returns the number of compressed rows up to the token of a row.
static int n_compressed(const struct kin_op *op, int row) {
    return op->layer.ratio > 0 ? (op->rows->plain.pos[row] + 1) / op->layer.ratio : 0;
}

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

// Computes the scores of the compressed rows [begin, end) for a row: the sum over the heads, in order, of weight * max(q . k, 0).
static void score_keys(const struct kin_op *op, struct ggml_tensor *const *src, int row, int begin, int end, float *scores) {
    const struct ggml_tensor *q = src[0], *k = src[2];
    const float *weights = (const float *)src[1]->data + row * src[1]->ne[0];
    const int n_head = op->hp->indexer.n_head, dim = op->layer.n_index_key, at = index_key(&op->layer).at;
    float x[PIECE * KIN_KV_DIM], products[INDEX_HEADS][PIECE];
    for (int first = begin; first < end; first += PIECE) {
        const int n = end - first < PIECE ? end - first : PIECE;
        const kin_matrix m = {.type = KIN_TYPE_F32, .columns = dim, .rows = n, .data = x, .next = x};
        for (int i = 0; i < n; i++)
            op->kernels->from_f16(dim, cell_of(op, k, row, (first + i + 1) * op->layer.ratio - 1) + at, x + i * dim);
        for (int i = 0; i < n; i++) scores[first - begin + i] = 0;
        for (int head = 0; head < n_head; head += INDEX_HEADS) {
            const int some = n_head - head < INDEX_HEADS ? n_head - head : INDEX_HEADS;
            op->kernels->matmul(&m, NULL, (const float *)q->data + row * q->ne[0] + head * dim, some, products[0], PIECE, 0, 1);
            for (int h = 0; h < some; h++)
                for (int i = 0; i < n; i++)
                    scores[first - begin + i] += weights[head + h] * (products[h][i] > 0 ? products[h][i] : 0);
        }
    }
}

static int parts_of_scores(const struct ggml_tensor *y) {
    return (int)(y->ne[0] / KEYS_A_CHUNK);
}

static int count_scores(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1] * parts_of_scores(y);
}

// Sources: the queries, the weights, the cache. A chunk is some keys of a row.
static void score(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int row = c->i / parts_of_scores(y), begin = c->i % parts_of_scores(y) * KEYS_A_CHUNK, n = n_compressed(op, row);
    const int end = begin + KEYS_A_CHUNK < n ? begin + KEYS_A_CHUNK : n;
    (void)n_threads;
    if (n > op->hp->indexer.n_chosen) score_keys(op, y->src, row, begin, end, (float *)y->data + row * y->ne[0] + begin);
}

static const kin_op_run scoring = {.count = count_scores, .compute = score};

// Sources: the queries, the weights, the cache, and the scores if they are a node.
static void choose_of_row(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *scores = y->src[3];
    const int row = c->i, n = n_compressed(op, row);
    kin_greatest greatest; // not zeroed, because it is large
    (void)n_threads;
    if (n <= op->hp->indexer.n_chosen) return;
    kin_greatest_begin(&greatest, op->hp->indexer.n_chosen);
    for (int at = 0; at < n; at += KEYS_A_CHUNK) {
        const int end = at + KEYS_A_CHUNK < n ? at + KEYS_A_CHUNK : n;
        float some[KEYS_A_CHUNK];
        if (!scores) score_keys(op, y->src, row, at, end, some);
        kin_greatest_add(&greatest, at, end - at, scores ? (const float *)scores->data + row * scores->ne[0] + at : some);
    }
    kin_greatest_end(&greatest, (int32_t *)y->data + row * y->ne[0]);
}

static const kin_op_run choice = {.count = count_rows, .compute = choose_of_row};

struct ggml_tensor *kin_op_compressed_choose(kin_graph *g, int il, struct ggml_tensor *q, struct ggml_tensor *weights,
                                             kin_graph_rows *rows) {
    struct kin_op *op = new_op(g, il, rows);
    struct ggml_tensor *cos_sin = kin_op_cos_sin(g, rows, op->layer.rope);
    q = kin_op_inplace(g, q, &cos_sin, 1, &index_queries, op);
    struct ggml_tensor *args[] = {q, weights, g->layers[il].k, NULL};
    if (rows->n <= SCORED_ROWS) {
        const int64_t n_keys = (g->n_kv / KIN_COMPRESSED_OVERLAPS + KEYS_A_CHUNK - 1) / KEYS_A_CHUNK * KEYS_A_CHUNK;
        args[3] = kin_op_node(g, GGML_TYPE_F32, n_keys, rows->n, args, 3, &scoring, new_op(g, il, rows));
    }
    return kin_op_node(g, GGML_TYPE_I32, g->hp->indexer.n_chosen, rows->n, args, args[3] ? 4 : 3, &choice, new_op(g, il, rows));
}

// ---- attention

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
