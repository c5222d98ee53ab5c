// Indexers by kin's kernels (kin_indexer in model/hparams.h): keys, and the choice of positions or of blocks of these. Those of
// compressed rows are in compressed.c, those of pools of tokens with gates in pools.c.
//
// Where blocks of tokens have one key each, a block of the cache has the keys of its tokens // f16 [64][key_dim], as they are
// made, then those of the indexer's blocks that end in it // f16 [key_dim][KIN_POOLED_KEYS]. The latter are made of the former
// when their last token is stored, so they follow from the tokens up to this one, and a sequence can be shortened anywhere.
#include <math.h>

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
    op->kernels->rope(op->hp->indexer.rope_neox, op->hp->ropes[op->layer.rope].n_rot, of_row, x);
}

// ---- keys

// Sources: the keys, cos_sin, the cache, the norm, and its bias if it has one: then it subtracts the mean.
static void make_keys(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *cos_sin = y->src[1], *cache = y->src[2], *norm = y->src[3], *bias = y->src[4];
    const int64_t n = y->ne[1], begin = (int64_t)c->i * ROWS_A_CHUNK, end = begin + ROWS_A_CHUNK < n ? begin + ROWS_A_CHUNK : n;
    const int dim = op->hp->indexer.key_dim;
    float *rows = y->data;
    (void)n_threads;
    for (int64_t row = begin; row < end; row++) {
        float *key = rows + row * dim;
        if (bias) op->kernels->center(dim, key, key);
        op->kernels->rms_norm(dim, key, norm->data, op->hp->indexer.eps, key);
        if (bias) op->kernels->add(dim, bias->data, key);
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
    struct ggml_tensor *args[] = {kin_op_cos_sin(g, &g->all, op->layer.rope), layer->index, layer->w[KIN_W_INDEX_K_NORM],
                                  layer->w[KIN_W_INDEX_K_NORM_BIAS]};
    return kin_op_inplace(g, y, args, args[3] ? 4 : 3, &keys, op);
}

// ---- queries

// Sources: the queries, cos_sin, and the norm of each if there is one.
static void make_queries(struct ggml_tensor *q, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int64_t n = q->ne[1], begin = (int64_t)c->i * ROWS_A_CHUNK, end = begin + ROWS_A_CHUNK < n ? begin + ROWS_A_CHUNK : n;
    const kin_indexer *x = &op->hp->indexer;
    (void)n_threads;
    for (int64_t row = begin; row < end; row++)
        for (int i = 0; i < x->n_head; i++) {
            float *head = (float *)q->data + row * q->ne[0] + (int64_t)i * x->key_dim;
            if (q->src[2]) op->kernels->rms_norm(x->key_dim, head, q->src[2]->data, x->eps, head);
            rotate(op, q->src[1], row, head);
        }
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
                             .weights = (const float *)weights->data + row * weights->ne[0],
                             .n_keys = KIN_KV_CELLS};
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
    struct ggml_tensor *args[] = {q, weights, g->layers[il].index, NULL};
    if (rows->n <= SCORED_ROWS) {
        const int64_t n_cells = (int64_t)blocks_of(g->n_kv) * KIN_KV_CELLS;
        args[3] = kin_op_node(g, GGML_TYPE_F32, n_cells, rows->n, args, 3, &scoring, new_op(g, il, rows));
    }
    return kin_op_node(g, GGML_TYPE_I32, g->hp->indexer.n_chosen, rows->n, args, args[3] ? 4 : 3, &choice, new_op(g, il, rows));
}

// ---- the choice of blocks

// The blocks of n_block tokens up to a row's own.
static int count_blocks(const struct kin_op *op, int row) {
    const int n_block = op->hp->indexer.n_block;
    return (op->rows->plain.n_cells[row] + n_block - 1) / n_block;
}

// Computes the scores of the blocks [begin, end) for a row and a head: the greatest product of a token that the row sees. Blocks
// that are chosen anyway have no other scores above theirs.
static void score_blocks(const struct kin_op *op, struct ggml_tensor *const *src, int row, int head, int begin, int end,
                         float *scores) {
    static const float one = 1;
    const kin_indexer *x = &op->hp->indexer;
    const struct ggml_tensor *q = src[0], *cache = src[1];
    const int n_cells = op->rows->plain.n_cells[row], n_blocks = count_blocks(op, row);
    const float *of_head = (const float *)q->data + row * q->ne[0] + (int64_t)head * x->key_dim;
    const kin_index_query query = {
        .n_head = 1, .dim = x->key_dim, .q = of_head, .weights = &one, .least = -INFINITY, .n_keys = KIN_KV_CELLS};
    float of_cells[KIN_KV_CELLS];
    for (int i = begin; i < end; i++, scores++) {
        *scores = i < n_blocks - x->n_local ? -INFINITY : INFINITY;
        for (int at = i * x->n_block; at < (i + 1) * x->n_block && *scores < INFINITY; at += KIN_KV_CELLS) {
            score_block(op, &query, cache, row, at / KIN_KV_CELLS, of_cells);
            for (int c = 0; c < KIN_KV_CELLS && at + c < n_cells; c++) *scores = of_cells[c] > *scores ? of_cells[c] : *scores;
        }
    }
}

static int parts_of_blocks(const struct ggml_tensor *y) {
    return ((int)y->ne[0] + BLOCKS_A_CHUNK - 1) / BLOCKS_A_CHUNK;
}

static int count_block_scores(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1] * parts_of_blocks(y);
}

// Sources: the queries, the cache. A chunk is some blocks of a row and a head.
static void score_some_blocks(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int i = c->i / parts_of_blocks(y), row = i / op->layer.n_head_kv, begin = c->i % parts_of_blocks(y) * BLOCKS_A_CHUNK;
    const int n = count_blocks(op, row), end = begin + BLOCKS_A_CHUNK < n ? begin + BLOCKS_A_CHUNK : n;
    (void)n_threads;
    if (!chooses(op, row) || begin >= end) return;
    score_blocks(op, y->src, row, i % op->layer.n_head_kv, begin, end, (float *)y->data + i * y->ne[0] + begin);
}

static const kin_op_run scoring_of_blocks = {.count = count_block_scores, .compute = score_some_blocks};

// Writes the cache's blocks of the chosen ones; of the last one some may not be there.
static void write_blocks(const struct kin_op *op, int row, int n_chosen, const int32_t *chosen, int32_t *to) {
    const int parts = op->hp->indexer.n_block / KIN_KV_CELLS, n = blocks_of(op->rows->plain.n_cells[row]);
    for (int i = 0; i < n_chosen * parts; i++) {
        const int b = chosen[i / parts] * parts + i % parts;
        to[i] = b < n ? op->rows->plain.tables[row][b] : 0;
    }
}

// Sources: the queries, the cache, and the scores if they are a node. A chunk is a row and a head.
static void choose_blocks(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const kin_indexer *x = &op->hp->indexer;
    const struct ggml_tensor *scores = y->src[2];
    const int row = c->i / op->layer.n_head_kv, head = c->i % op->layer.n_head_kv, n_chosen = x->n_chosen / x->n_block;
    int32_t chosen[KIN_CHOSEN_MAX];
    kin_greatest greatest; // not zeroed, because it is large
    (void)n_threads;
    if (!chooses(op, row)) return;
    kin_greatest_begin(&greatest, n_chosen);
    for (int at = 0, n = count_blocks(op, row); at < n; at += BLOCKS_A_CHUNK) {
        const int end = at + BLOCKS_A_CHUNK < n ? at + BLOCKS_A_CHUNK : n;
        float some[BLOCKS_A_CHUNK];
        if (!scores) score_blocks(op, y->src, row, head, at, end, some);
        kin_greatest_add(&greatest, at, end - at, scores ? (const float *)scores->data + c->i * scores->ne[0] + at : some);
    }
    kin_greatest_end(&greatest, chosen);
    write_blocks(op, row, n_chosen, chosen, (int32_t *)y->data + c->i * y->ne[0]);
}

static const kin_op_run choice_of_blocks = {.count = count_rows, .compute = choose_blocks};

struct ggml_tensor *kin_op_index_blocks(kin_graph *g, int il, struct ggml_tensor *q, kin_graph_rows *rows) {
    const kin_graph_layer *layer = &g->layers[il];
    const kin_indexer *x = &g->hp->indexer;
    struct kin_op *op = new_op(g, il, rows);
    struct ggml_tensor *of_queries[] = {kin_op_cos_sin(g, rows, op->layer.rope), layer->w[KIN_W_INDEX_Q_NORM]};
    const int n = rows->n * op->layer.n_head_kv;
    q = kin_op_inplace(g, q, of_queries, 2, &queries, op);
    struct ggml_tensor *args[] = {q, layer->index, NULL};
    if (rows->n <= SCORED_ROWS) {
        const int64_t n_blocks = (g->n_kv + x->n_block - 1) / x->n_block;
        args[2] = kin_op_node(g, GGML_TYPE_F32, n_blocks, n, args, 2, &scoring_of_blocks, new_op(g, il, rows));
    }
    return kin_op_node(g, GGML_TYPE_I32, x->n_chosen / KIN_KV_CELLS, n, args, args[2] ? 3 : 2, &choice_of_blocks,
                       new_op(g, il, rows));
}

// ---- blocks that have one key each

static uint16_t *cells_at(const struct ggml_tensor *cache, int32_t block) {
    return (uint16_t *)((char *)cache->data + (size_t)block * KIN_KV_CELLS * cache->nb[1]);
}

// Sources: the keys, the cache. Tokens that belong to several sequences are stored in the blocks of all of them.
static void store_tokens(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const kin_rows *rows = &op->rows->plain;
    const int dim = op->hp->indexer.key_dim;
    const float *key = (const float *)y->data + c->i * y->ne[0];
    (void)n_threads;
    for (int i = -1; i < rows->n_copies; i++) {
        if (i >= 0 && rows->copies[i].row != c->i) continue;
        const int32_t cell = i < 0 ? rows->cells[c->i] : rows->copies[i].cell;
        op->kernels->to_f16(dim, key, cells_at(y->src[1], cell / KIN_KV_CELLS) + cell % KIN_KV_CELLS * dim);
    }
}

static const kin_op_run tokens_to_cells = {.count = count_rows, .compute = store_tokens};

// Computes the key of the block that ends with the token in this cell // f16 [key_dim]. first: the position of its first token
static void pool_keys(const struct kin_op *op, const uint16_t *cells, int last, const float *norm, int first, uint16_t *pooled) {
    const kin_indexer *x = &op->hp->indexer;
    const kin_rope *rope = &op->hp->ropes[op->layer.rope];
    const int dim = x->key_dim;
    float key[KIN_KV_DIM], of_token[KIN_KV_DIM], cos_sin[2 * KIN_ROPE_PAIRS];
    double freq[KIN_ROPE_PAIRS];
    op->kernels->from_f16(dim, cells + (last + 1 - x->n_block) * dim, key);
    for (int i = last + 2 - x->n_block; i <= last; i++) {
        op->kernels->from_f16(dim, cells + i * dim, of_token);
        op->kernels->add(dim, of_token, key);
    }
    for (int d = 0; d < dim; d++) key[d] *= 1.0f / (float)x->n_block;
    op->kernels->rms_norm(dim, key, norm, x->eps, key);
    kin_rope_frequencies(rope, freq);
    kin_rope_cos_sin(rope, freq, first, cos_sin);
    op->kernels->rope(x->rope_neox, rope->n_rot, cos_sin, key);
    op->kernels->to_f16(dim, key, pooled);
}

// Sources: the keys, the cache, the norm. A chunk is a token, which may end a block.
static void store_block(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const kin_rows *rows = &op->rows->plain;
    const int dim = op->hp->indexer.key_dim, n_block = op->hp->indexer.n_block, pos = rows->pos[c->i];
    uint16_t pooled[KIN_KV_DIM];
    (void)n_threads;
    if ((pos + 1) % n_block != 0) return;
    for (int i = -1; i < rows->n_copies; i++) {
        if (i >= 0 && rows->copies[i].row != c->i) continue;
        const int32_t cell = i < 0 ? rows->cells[c->i] : rows->copies[i].cell;
        uint16_t *cells = cells_at(y->src[1], cell / KIN_KV_CELLS),
                 *to = cells + KIN_KV_CELLS * dim + pos % KIN_KV_CELLS / n_block;
        pool_keys(op, cells, pos % KIN_KV_CELLS, y->src[2]->data, pos + 1 - n_block, pooled);
        for (int d = 0; d < dim; d++) to[d * KIN_POOLED_KEYS] = pooled[d];
    }
}

static const kin_op_run blocks_to_cells = {.count = count_rows, .compute = store_block};

struct ggml_tensor *kin_op_index_pool(kin_graph *g, int il, struct ggml_tensor *y) {
    const kin_graph_layer *layer = &g->layers[il];
    struct ggml_tensor *args[] = {layer->index, layer->w[KIN_W_INDEX_K_NORM]};
    y = kin_op_inplace(g, y, args, 1, &tokens_to_cells, new_op(g, il, &g->all));
    return kin_op_inplace(g, y, args, 2, &blocks_to_cells, new_op(g, il, &g->all));
}

// The whole blocks of a row's positions.
static int count_whole(const struct kin_op *op, int row) {
    return op->rows->plain.n_cells[row] / op->hp->indexer.n_block;
}

static bool chooses_whole(const struct kin_op *op, int row) {
    return count_whole(op, row) > op->hp->indexer.n_chosen / op->hp->indexer.n_block;
}

// Computes the scores of the whole blocks in the cache's blocks [begin, end) for a row. Returns how many these are.
static int score_whole(const struct kin_op *op, struct ggml_tensor *const *src, int row, int begin, int end, float *scores) {
    const kin_indexer *x = &op->hp->indexer;
    const int a_block = KIN_KV_CELLS / x->n_block, n = count_whole(op, row) - begin * a_block;
    float ones[KIN_INDEX_HEADS], of_block[KIN_POOLED_KEYS];
    const kin_index_query query = {.n_head = x->n_head,
                                   .dim = x->key_dim,
                                   .q = (const float *)src[0]->data + row * src[0]->ne[0],
                                   .weights = ones,
                                   .n_keys = KIN_POOLED_KEYS};
    int n_scored = 0;
    for (int i = 0; i < x->n_head; i++) ones[i] = 1;
    for (int b = begin; b < end && n_scored < n; b++) {
        const uint16_t *cells = cells_at(src[1], op->rows->plain.tables[row][b]);
        op->kernels->index_scores(&query, cells + KIN_KV_CELLS * x->key_dim, of_block);
        for (int i = 0; i < a_block && n_scored < n; i++) scores[n_scored++] = of_block[i];
    }
    return n_scored;
}

static int parts_of_whole(const struct ggml_tensor *y, const struct kin_op *op) {
    const int a_chunk = BLOCKS_A_CHUNK * (KIN_KV_CELLS / op->hp->indexer.n_block);
    return ((int)y->ne[0] + a_chunk - 1) / a_chunk;
}

static int count_whole_scores(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)n_threads;
    return (int)y->ne[1] * parts_of_whole(y, op);
}

// Sources: the queries, the cache. A chunk is some of the cache's blocks of a row.
static void score_some_whole(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int row = c->i / parts_of_whole(y, op), begin = c->i % parts_of_whole(y, op) * BLOCKS_A_CHUNK;
    const int first = begin * (KIN_KV_CELLS / op->hp->indexer.n_block);
    (void)n_threads;
    if (chooses_whole(op, row) && first < count_whole(op, row))
        score_whole(op, y->src, row, begin, begin + BLOCKS_A_CHUNK, (float *)y->data + row * y->ne[0] + first);
}

static const kin_op_run scoring_of_whole = {.count = count_whole_scores, .compute = score_some_whole};

// Sources: the queries, the cache, and the scores if they are a node.
static void choose_whole(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const kin_indexer *x = &op->hp->indexer;
    const struct ggml_tensor *scores = y->src[2];
    const int row = c->i, a_block = KIN_KV_CELLS / x->n_block;
    kin_greatest greatest; // not zeroed, because it is large
    (void)n_threads;
    if (!chooses_whole(op, row)) return;
    kin_greatest_begin(&greatest, x->n_chosen / x->n_block);
    if (scores) kin_greatest_add(&greatest, 0, count_whole(op, row), (const float *)scores->data + row * scores->ne[0]);
    for (int b = 0; !scores && b * a_block < count_whole(op, row); b++) {
        float some[KIN_POOLED_KEYS];
        const int n = score_whole(op, y->src, row, b, b + 1, some);
        kin_greatest_add(&greatest, b * a_block, n, some);
    }
    kin_greatest_end(&greatest, (int32_t *)y->data + row * y->ne[0]);
}

static const kin_op_run choice_of_whole = {.count = count_rows, .compute = choose_whole};

struct ggml_tensor *kin_op_index_groups(kin_graph *g, int il, struct ggml_tensor *q, kin_graph_rows *rows) {
    const kin_graph_layer *layer = &g->layers[il];
    const kin_indexer *x = &g->hp->indexer;
    struct kin_op *op = new_op(g, il, rows);
    struct ggml_tensor *of_queries[] = {kin_op_cos_sin(g, rows, op->layer.rope), layer->w[KIN_W_INDEX_Q_NORM]};
    q = kin_op_inplace(g, q, of_queries, 2, &queries, op);
    struct ggml_tensor *args[] = {q, layer->index, NULL};
    if (rows->n <= SCORED_ROWS) {
        const int64_t n_scores = (int64_t)blocks_of(g->n_kv) * (KIN_KV_CELLS / x->n_block);
        args[2] = kin_op_node(g, GGML_TYPE_F32, n_scores, rows->n, args, 2, &scoring_of_whole, new_op(g, il, rows));
    }
    return kin_op_node(g, GGML_TYPE_I32, x->n_chosen / x->n_block, rows->n, args, args[2] ? 3 : 2, &choice_of_whole,
                       new_op(g, il, rows));
}
