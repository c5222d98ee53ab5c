#include "model/kernel/made_rows.h"

#include <string.h>

#include "kernels/panel.h"

enum {
    PIECE = 16,         // rows of the cache that are converted at once
    SLICE = 32,         // columns of a row that are computed at once
    SCORED_ROWS = 4,    // of at most this many tokens the scores are a node of their own, which threads share
    KEYS_A_CHUNK = 256, // of such scores
    INDEX_HEADS = 64,   // whose products are computed at once
};

// ---- cells

static ggml_fp16_t *cell_at(const struct ggml_tensor *cache, int32_t cell) {
    return (ggml_fp16_t *)((char *)cache->data + (size_t)cell * cache->nb[1]);
}

const ggml_fp16_t *kin_op_cell_of(const struct kin_op *op, const struct ggml_tensor *cache, int row, int pos) {
    return cell_at(cache, op->rows->plain.tables[row][pos / KIN_KV_CELLS] * KIN_KV_CELLS + pos % KIN_KV_CELLS);
}

void kin_op_store_cells(const struct kin_op *op, const struct ggml_tensor *cache, int row, int at, int n, const float *x) {
    const kin_rows *rows = &op->rows->plain;
    for (int i = -1; i < rows->n_copies; i++) {
        if (i >= 0 && rows->copies[i].row != row) continue;
        ggml_fp16_t *to = cell_at(cache, i < 0 ? rows->cells[row] : rows->copies[i].cell) + at;
        if (x)
            op->kernels->to_f16(n, x, to);
        else
            memset(to, 0, (size_t)n * sizeof *to);
    }
}

// ---- a row

// The values and gates of a slice of columns, of the tokens that a row is made of.
typedef struct slice {
    float value[KIN_COMPRESSED_RATIO][SLICE], gate[KIN_COMPRESSED_RATIO][SLICE];
    const float *values[KIN_COMPRESSED_RATIO], *gates[KIN_COMPRESSED_RATIO];
    int n;
} slice;

// Adds the token at `pos`: of its values those from `at` on.
static void add_token(slice *s, const struct kin_op *op, const ggml_fp16_t *cell, int pos, int at, int width,
                      const float *places) {
    const kin_made_rows *made = &op->made;
    const ggml_fp16_t *values = cell + made->values_at + at;
    op->kernels->from_f16(width, values, s->value[s->n]);
    op->kernels->from_f16(width, values + made->n_values, s->gate[s->n]);
    for (int i = 0; i < width; i++) s->gate[s->n][i] += places[pos % made->n_tokens * made->n_values + at + i];
    s->values[s->n] = s->value[s->n];
    s->gates[s->n] = s->gate[s->n];
    s->n++;
}

void kin_op_pool_block(const struct kin_op *op, const struct ggml_tensor *cache, int row, int pos, const float *places,
                       float *x) {
    const kin_made_rows *made = &op->made;
    const int dim = made->dim, first = pos + 1 - made->n_tokens;
    slice s;
    for (int at = 0; at < dim; at += SLICE) {
        const int width = dim - at < SLICE ? dim - at : SLICE;
        s.n = 0;
        for (int p = first - made->n_tokens; p < first && made->overlaps && p >= 0; p++)
            add_token(&s, op, kin_op_cell_of(op, cache, row, p), p, at, width, places);
        for (int p = first; p <= pos; p++)
            add_token(&s, op, kin_op_cell_of(op, cache, row, p), p, made->overlaps ? dim + at : at, width, places);
        op->kernels->pool(width, s.n, s.gates, s.values, x + at);
    }
}

// ---- scores

// Returns the number of made rows up to the token of a row.
static int count_made(const struct kin_op *op, int row) {
    return (op->rows->plain.pos[row] + 1) / op->made.n_tokens;
}

// Returns how many of these a token sees at most.
static int most_of(const struct kin_op *op) {
    const int n_chosen = op->hp->indexer.n_chosen;
    return op->layer.n_pool > 0 ? n_chosen / op->layer.n_pool : n_chosen;
}

// Computes the scores of the made rows [begin, end) for a row: the sum over the heads, in order, of weight * max(q . k, 0).
static void score_keys(const struct kin_op *op, struct ggml_tensor *const *src, int row, int begin, int end, float *scores) {
    const struct ggml_tensor *q = src[0], *cache = src[2];
    const kin_made_rows *made = &op->made;
    const float *weights = (const float *)src[1]->data + row * src[1]->ne[0];
    const int n_head = op->hp->indexer.n_head, dim = made->dim;
    float x[PIECE * KIN_KV_DIM], products[INDEX_HEADS][PIECE];
    for (int first = begin; first < end; first += PIECE) {
        const int n = end - first < PIECE ? end - first : PIECE;
        const kin_matrix m = {.type = KIN_TYPE_F32, .columns = dim, .rows = n, .data = x, .next = x};
        for (int i = 0; i < n; i++)
            op->kernels->from_f16(dim, kin_op_cell_of(op, cache, row, (first + i + 1) * made->n_tokens - 1) + made->at,
                                  x + i * dim);
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
    const int row = c->i / parts_of_scores(y), begin = c->i % parts_of_scores(y) * KEYS_A_CHUNK, n = count_made(op, row);
    const int end = begin + KEYS_A_CHUNK < n ? begin + KEYS_A_CHUNK : n;
    (void)n_threads;
    if (n > most_of(op)) score_keys(op, y->src, row, begin, end, (float *)y->data + row * y->ne[0] + begin);
}

static const kin_op_run scoring = {.count = count_scores, .compute = score};

// ---- the choice

static int count_rows(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1];
}

// Writes the positions that a row sees: those of n pools, and those after the last whole pool. The last places may be free.
static void write_positions(const struct kin_op *op, int row, int n, const int32_t *pools, int32_t *to) {
    const int n_pool = op->layer.n_pool, end = op->rows->plain.pos[row] + 1;
    int32_t *const last = to + op->hp->indexer.n_chosen;
    for (int i = 0; i < n * n_pool; i++) *to++ = pools[i / n_pool] * n_pool + i % n_pool;
    for (int pos = end - end % n_pool; pos < end; pos++) *to++ = pos;
    while (to < last) *to++ = 0;
}

// Sources: the queries, the weights, the cache, and the scores if they are a node.
static void choose_of_row(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *scores = y->src[3];
    const int row = c->i, n = count_made(op, row), most = most_of(op);
    int32_t chosen[KIN_CHOSEN_MAX];
    kin_greatest greatest; // not zeroed, because it is large
    (void)n_threads;
    if (n <= most) return;
    kin_greatest_begin(&greatest, most);
    for (int at = 0; at < n; at += KEYS_A_CHUNK) {
        const int end = at + KEYS_A_CHUNK < n ? at + KEYS_A_CHUNK : n;
        float some[KEYS_A_CHUNK];
        if (!scores) score_keys(op, y->src, row, at, end, some);
        kin_greatest_add(&greatest, at, end - at, scores ? (const float *)scores->data + row * scores->ne[0] + at : some);
    }
    kin_greatest_end(&greatest, chosen);
    if (op->layer.n_pool > 0)
        write_positions(op, row, most, chosen, (int32_t *)y->data + row * y->ne[0]);
    else
        memcpy((int32_t *)y->data + row * y->ne[0], chosen, (size_t)most * sizeof *chosen);
}

static const kin_op_run choice = {.count = count_rows, .compute = choose_of_row};

static struct kin_op *new_op(kin_graph *g, int il, kin_graph_rows *rows, kin_made_rows made) {
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->rows = rows;
    op->layer = kin_layer_of(g->hp, il);
    op->made = made;
    return op;
}

struct ggml_tensor *kin_op_choose_made(kin_graph *g, int il, struct ggml_tensor *q, struct ggml_tensor *weights,
                                       struct ggml_tensor *cache, kin_made_rows made, int64_t n_candidates,
                                       kin_graph_rows *rows) {
    struct ggml_tensor *args[] = {q, weights, cache, NULL};
    if (rows->n <= SCORED_ROWS) {
        const int64_t n_keys = (n_candidates + KEYS_A_CHUNK - 1) / KEYS_A_CHUNK * KEYS_A_CHUNK;
        args[3] = kin_op_node(g, GGML_TYPE_F32, n_keys, rows->n, args, 3, &scoring, new_op(g, il, rows, made));
    }
    return kin_op_node(g, GGML_TYPE_I32, g->hp->indexer.n_chosen, rows->n, args, args[3] ? 4 : 3, &choice,
                       new_op(g, il, rows, made));
}
