// The indexer of latent attention by kin's kernels (kin_indexer in model/hparams.h): keys, and the choice of positions.
#include "kernels/panel.h"
#include "model/kernel/heads.h"

enum {
    ROWS_A_CHUNK = 4,
    SCORED_ROWS = 4,    // of at most this many rows the scores are a node of their own, which threads share
    BLOCKS_A_CHUNK = 8, // of such scores
};

static struct kin_op *new_op(kin_graph *g, int il, kin_graph_rows *rows) {
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->rows = rows;
    op->layer = kin_layer_of(g->hp, il);
    return op;
}

static int count_row_chunks(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)((y->ne[1] + ROWS_A_CHUNK - 1) / ROWS_A_CHUNK);
}

static void rotate(const struct kin_op *op, const struct ggml_tensor *cos_sin, int64_t row, float *x) {
    const float *of_row = (const float *)cos_sin->data + row * cos_sin->ne[0];
    op->kernels->rope(op->hp->indexer.rope_neox, op->hp->latent.n_rot, of_row, x);
}

// ---- keys

// Sources: the keys, cos_sin, the cache, the norm, its bias.
static void make_keys(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *cos_sin = y->src[1], *cache = y->src[2], *norm = y->src[3], *bias = y->src[4];
    const int64_t n = y->ne[1], begin = (int64_t)c->i * ROWS_A_CHUNK, end = begin + ROWS_A_CHUNK < n ? begin + ROWS_A_CHUNK : n;
    const int dim = op->hp->indexer.key_dim;
    float *rows = y->data;
    (void)n_threads;
    for (int64_t row = begin; row < end; row++) {
        float *key = rows + row * dim;
        op->kernels->center(dim, key, key);
        op->kernels->rms_norm(dim, key, norm->data, op->hp->indexer.eps, key);
        op->kernels->add(dim, bias->data, key);
        rotate(op, cos_sin, row, key);
    }
    const kin_kv_rows stored = {.kv = kin_layer_index_kv(&op->layer),
                                .k = cache->data,
                                .k_rows = rows,
                                .v_rows = rows,
                                .ldk = dim,
                                .ldv = dim,
                                .cells = op->rows->plain.cells};
    kin_op_store_rows(op, &stored, begin, end);
}

static const kin_op_run keys = {.count = count_row_chunks, .compute = make_keys};

struct ggml_tensor *kin_op_index_keys(kin_graph *g, int il, struct ggml_tensor *y) {
    const kin_graph_layer *layer = &g->layers[il];
    struct kin_op *op = new_op(g, il, &g->all);
    struct ggml_tensor *args[] = {kin_op_cos_sin(g, &g->all, op->layer.rope), layer->v, layer->w[KIN_W_INDEX_K_NORM],
                                  layer->w[KIN_W_INDEX_K_NORM_BIAS]};
    kin_assert(layer->v->type == GGML_TYPE_F16);
    return kin_op_inplace(g, y, args, 4, &keys, op);
}

// ---- queries

// Sources: the queries, cos_sin.
static void make_queries(struct ggml_tensor *q, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int64_t n = q->ne[1], begin = (int64_t)c->i * ROWS_A_CHUNK, end = begin + ROWS_A_CHUNK < n ? begin + ROWS_A_CHUNK : n;
    const kin_indexer *x = &op->hp->indexer;
    (void)n_threads;
    for (int64_t row = begin; row < end; row++)
        for (int i = 0; i < x->n_head; i++)
            rotate(op, q->src[1], row, (float *)q->data + row * q->ne[0] + (int64_t)i * x->key_dim);
}

static const kin_op_run queries = {.count = count_row_chunks, .compute = make_queries};

// ---- scores

static int blocks_of(int64_t n_cells) {
    return (int)((n_cells + KIN_KV_CELLS - 1) / KIN_KV_CELLS);
}

// The queries of a row, from the nodes that have the queries and the weights.
static kin_index_query query_of(const struct kin_op *op, const struct ggml_tensor *q, const struct ggml_tensor *weights,
                                int row) {
    return (kin_index_query){.n_head = op->hp->indexer.n_head,
                             .dim = op->hp->indexer.key_dim,
                             .q = (const float *)q->data + row * q->ne[0],
                             .weights = (const float *)weights->data + row * weights->ne[0]};
}

// Computes the scores of the positions 64 b .. 64 b + 63 of a row's sequence: scores // f32 [64]
static void score_block(const struct kin_op *op, const kin_index_query *query, const struct ggml_tensor *cache, int row, int b,
                        float *scores) {
    const size_t block = (size_t)op->rows->plain.tables[row][b];
    op->kernels->index_scores(query, (const uint16_t *)((const char *)cache->data + block * KIN_KV_CELLS * cache->nb[1]), scores);
}

static bool chooses(const struct kin_op *op, int row) {
    return op->rows->plain.n_cells[row] > op->hp->indexer.n_chosen;
}

static int chunks_a_row(const struct ggml_tensor *y) {
    return (blocks_of(y->ne[0]) + BLOCKS_A_CHUNK - 1) / BLOCKS_A_CHUNK;
}

static int count_scores(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1] * chunks_a_row(y);
}

// Sources: the queries, the weights, the cache. A chunk is some blocks of a row.
static void score(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int row = c->i / chunks_a_row(y), begin = c->i % chunks_a_row(y) * BLOCKS_A_CHUNK;
    const int n_blocks = blocks_of(op->rows->plain.n_cells[row]);
    const kin_index_query query = query_of(op, y->src[0], y->src[1], row);
    float *scores = (float *)y->data + row * y->ne[0];
    (void)n_threads;
    for (int b = begin; chooses(op, row) && b < n_blocks && b < begin + BLOCKS_A_CHUNK; b++)
        score_block(op, &query, y->src[2], row, b, scores + (int64_t)b * KIN_KV_CELLS);
}

static const kin_op_run scoring = {.count = count_scores, .compute = score};

// ---- the choice

static int count_rows(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1];
}

// Sources: the queries, the weights, the cache, and the scores if they are a node.
static void choose_of_row(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *scores = y->src[3];
    const int row = c->i, n_cells = op->rows->plain.n_cells[row];
    const kin_index_query query = query_of(op, y->src[0], y->src[1], row);
    kin_greatest greatest; // not zeroed, because it is large
    (void)n_threads;
    if (!chooses(op, row)) return;
    kin_greatest_begin(&greatest, op->hp->indexer.n_chosen);
    for (int b = 0; b < blocks_of(n_cells); b++) {
        const int at = b * KIN_KV_CELLS, n = n_cells - at < KIN_KV_CELLS ? n_cells - at : KIN_KV_CELLS;
        float of_block[KIN_KV_CELLS];
        if (!scores) score_block(op, &query, y->src[2], row, b, of_block);
        kin_greatest_add(&greatest, at, n, scores ? (const float *)scores->data + row * scores->ne[0] + at : of_block);
    }
    kin_greatest_end(&greatest, (int32_t *)y->data + row * y->ne[0]);
}

static const kin_op_run choice = {.count = count_rows, .compute = choose_of_row};

struct ggml_tensor *kin_op_index_choose(kin_graph *g, int il, struct ggml_tensor *q, struct ggml_tensor *weights,
                                        kin_graph_rows *rows) {
    struct kin_op *op = new_op(g, il, rows);
    struct ggml_tensor *cos_sin = kin_op_cos_sin(g, rows, op->layer.rope);
    q = kin_op_inplace(g, q, &cos_sin, 1, &queries, op);
    struct ggml_tensor *args[] = {q, weights, g->layers[il].v, NULL};
    if (rows->n <= SCORED_ROWS) {
        const int64_t n_cells = (int64_t)blocks_of(g->n_kv) * KIN_KV_CELLS;
        args[3] = kin_op_node(g, GGML_TYPE_F32, n_cells, rows->n, args, 3, &scoring, new_op(g, il, rows));
    }
    return kin_op_node(g, GGML_TYPE_I32, g->hp->indexer.n_chosen, rows->n, args, args[3] ? 4 : 3, &choice, new_op(g, il, rows));
}
