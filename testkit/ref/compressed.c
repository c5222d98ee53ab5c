#include "testkit/ref/compressed.h"

#include <math.h>
#include <string.h>

#include "testkit/ref/vector.h"

static const char *check_compressor(const kin_ref_compressor *r, int ratio, int n_embd) {
    const int width = r->row.n_rows;
    if ((width != r->dim && width != 2 * r->dim) || !kin_ref_tensor_is(&r->row, 1, width, n_embd)) return "row";
    if (!kin_ref_tensor_is(&r->gate, 1, width, n_embd)) return "gate";
    if (!kin_ref_tensor_is(&r->place, 1, ratio, width)) return "place";
    return kin_ref_tensor_is(&r->norm, 1, 1, r->dim) ? NULL : "row_norm";
}

static const char *check_rows(const kin_ref_compressed *c, int n_embd) {
    const kin_ref_indexer *x = &c->indexer;
    if (c->ratio == 0) return x->n_head == 0 ? NULL : "indexer";
    if (c->rows.dim != c->dim || check_compressor(&c->rows, c->ratio, n_embd)) return "rows";
    if (x->n_head == 0) return NULL;
    if (x->n_head < 1 || x->n_chosen < 1 || x->dim < c->n_rot) return "indexer.n_chosen";
    if (c->keys.dim != x->dim || check_compressor(&c->keys, c->ratio, n_embd)) return "keys";
    if (!kin_ref_tensor_is(&x->q, 1, x->n_head * x->dim, c->q_a.n_rows)) return "indexer.q";
    return kin_ref_tensor_is(&x->weights, 1, x->n_head, n_embd) ? NULL : "indexer.weights";
}

const char *kin_ref_compressed_check(const kin_ref_compressed *c, int n_embd) {
    const int n_query = c->q_a.n_rows, n_ranks = c->out_a.n_rows;
    if (c->n_rot < 1 || c->n_rot > c->dim || c->window < 1 || c->ratio < 0) return "n_rot";
    if (c->n_group < 1 || c->n_head % c->n_group != 0 || n_ranks % c->n_group != 0) return "n_group";
    if (!kin_ref_tensor_is(&c->q_a, 1, n_query, n_embd) || !kin_ref_tensor_is(&c->q_norm, 1, 1, n_query)) return "q_a";
    if (!kin_ref_tensor_is(&c->q_b, 1, c->n_head * c->dim, n_query)) return "q_b";
    if (!kin_ref_tensor_is(&c->kv, 1, c->dim, n_embd) || !kin_ref_tensor_is(&c->kv_norm, 1, 1, c->dim)) return "kv";
    if (!kin_ref_tensor_is(&c->sinks, 1, 1, c->n_head)) return "sinks";
    if (check_rows(c, n_embd)) return check_rows(c, n_embd);
    if (!kin_ref_tensor_is(&c->out_a, 1, n_ranks, c->n_head * c->dim / c->n_group)) return "out_a";
    return kin_ref_tensor_is(&c->out_b, 1, n_embd, n_ranks) ? NULL : "out_b";
}

// What is kept of a token: the products for rows, then those for keys, then the key of the block with the token's number.
static size_t key_at(const kin_ref_compressed *c) {
    return 2 * (size_t)(c->rows.row.n_rows + c->keys.row.n_rows);
}

size_t kin_ref_compressed_kept_floats(const kin_ref_compressed *c) {
    return key_at(c) + (size_t)c->keys.dim;
}

// Floats of a norm's weights, of what is added to gates, and of sinks.
static size_t weight_floats(const kin_ref_compressed *c) {
    return (size_t)(c->q_a.n_rows + 2 * c->dim + 2 * c->keys.dim + c->n_head);
}

size_t kin_ref_compressed_scratch_floats(const kin_ref_compressed *c, int n_ctx) {
    return weight_floats(c) + 2 * (size_t)c->n_head * (size_t)c->dim + (size_t)(c->q_a.n_rows + c->out_a.n_rows + c->n_rot) +
           2 * (size_t)n_ctx + (size_t)c->indexer.n_head * (size_t)(c->indexer.dim + 1);
}

// Rotates the last n_rot of the n numbers of a row as at a position; backwards if `sign` is -1. turns // (n_rot)
static void rotate(const kin_ref_rope *rope, int pos, float sign, float *turns, float *row, int n) {
    kin_ref_rope_cos_sin(rope, NULL, pos, turns);
    for (int i = 1; i < rope->n_rot; i += 2) turns[i] *= sign;
    kin_ref_rope_apply(rope, turns, row + n - rope->n_rot);
}

// Of each token the products of which a compressor makes rows: of a row, then of its gates // (n_ctx, 2, width)
typedef struct products {
    const kin_ref_compressor *of;
    int ratio;
    float *kept; // of two tokens `apart` floats apart
    size_t apart;
} products;

static void keep(const products *p, const kin_ref_compressed_token *token, const float *x, float *places) {
    const int width = p->of->row.n_rows;
    float *kept = p->kept + (size_t)token->pos * p->apart;
    kin_ref_matvec(&p->of->row, x, kept);
    kin_ref_matvec(&p->of->gate, x, kept + width);
    if (token->rounds) kin_ref_round(kept, 2 * width);
    kin_ref_tensor_row(&p->of->place, token->pos % p->ratio, places);
    kin_ref_add(kept + width, places, width);
}

// Adds to *sum and *weights the products of number i of tokens [first, first + ratio). Numbers are counted within products.
static void add_tokens(const products *p, int first, int i, double *sum, double *weights) {
    for (int t = first; t < first + p->ratio; t++) {
        const float *kept = p->kept + (size_t)t * p->apart;
        const double weight = exp((double)kept[p->of->row.n_rows + i]);
        *sum += weight * (double)kept[i];
        *weights += weight;
    }
}

// Makes the compressed row of block b.
static void compress(const products *p, const kin_ref_compressed_token *token, int b, float *scratch, float *turns, float *row) {
    const int dim = p->of->dim;
    const bool overlaps = p->of->row.n_rows > dim;
    for (int i = 0; i < dim; i++) {
        double sum = 0, weights = 0;
        if (overlaps && b > 0) add_tokens(p, (b - 1) * p->ratio, i, &sum, &weights);
        add_tokens(p, b * p->ratio, overlaps ? dim + i : i, &sum, &weights);
        row[i] = (float)(sum / weights);
    }
    kin_ref_tensor_norm(&p->of->norm, token->eps, row, scratch);
    rotate(token->rope, b * p->ratio, 1, turns, row, dim);
    if (token->rounds) kin_ref_round(row, dim);
}

// Keeps the token's products, and makes the row and the key of the block that it ends.
static void add_to_blocks(const kin_ref_compressed *c, const kin_ref_compressed_token *token, const float *x,
                          const kin_ref_compressed_cache *cache, float *scratch, float *turns) {
    const products rows = {&c->rows, c->ratio, cache->kept, cache->kept_apart};
    const products keys = {&c->keys, c->ratio, cache->kept + 2 * c->rows.row.n_rows, cache->kept_apart};
    const bool is_whole = (token->pos + 1) % c->ratio == 0;
    const int b = token->pos / c->ratio;
    keep(&rows, token, x, scratch);
    if (is_whole) compress(&rows, token, b, scratch, turns, cache->blocks + (size_t)b * (size_t)c->dim);
    if (c->indexer.n_head == 0) return;
    keep(&keys, token, x, scratch);
    if (is_whole) compress(&keys, token, b, scratch, turns, cache->kept + key_at(c) + (size_t)b * cache->kept_apart);
}

// Sets which of the first n compressed rows are seen. low // (n_query): the latent of the queries
static void choose(const kin_ref_compressed *c, const kin_ref_compressed_token *token, const float *low, const float *x,
                   const kin_ref_compressed_cache *cache, int n, float *scratch, float *turns) {
    const kin_ref_indexer *indexer = &c->indexer;
    const kin_ref_indexer_keys keys = {cache->kept + key_at(c), cache->kept_apart, token->rounds};
    float *q = scratch, *weights = q + indexer->n_head * indexer->dim, *scores = weights + indexer->n_head;
    for (int b = 0; b < n; b++) token->seen[b] = true;
    if (indexer->n_head == 0) return;
    kin_ref_matvec(&indexer->q, low, q);
    for (int h = 0; h < indexer->n_head; h++) rotate(token->rope, token->pos, 1, turns, q + h * indexer->dim, indexer->dim);
    kin_ref_matvec(&indexer->weights, x, weights);
    kin_ref_indexer_see(indexer, q, weights, &keys, n, scores, token->seen);
}

// out = the mean of n rows, weighted by the softmax of their products with q and of the sink. q, out // (dim), rows // (n)
// pointers are two runs: n_a rows from a on, then those of n_b from b on that are seen.
static void attend(const kin_ref_compressed *c, const float *q, float sink, const float *a, int n_a, const float *b, int n_b,
                   const bool *seen, float *scores, float *out) {
    const size_t dim = (size_t)c->dim;
    for (int t = 0; t < n_a + n_b; t++) {
        const float *row = t < n_a ? a + (size_t)t * dim : b + (size_t)(t - n_a) * dim;
        scores[t] = t < n_a || seen[t - n_a] ? (float)(kin_ref_dot(q, row, c->dim) / sqrt(c->dim)) : -INFINITY;
    }
    kin_ref_softmax(scores, n_a + n_b, sink);
    for (size_t i = 0; i < dim; i++) {
        double sum = 0;
        for (int t = 0; t < n_a; t++) sum += (double)scores[t] * (double)a[(size_t)t * dim + i];
        for (int t = 0; t < n_b; t++) sum += (double)scores[n_a + t] * (double)b[(size_t)t * dim + i];
        out[i] = (float)sum;
    }
}

static void make_queries(const kin_ref_compressed *c, const kin_ref_compressed_token *token, const float *x, float *low,
                         float *scratch, float *turns, float *q) {
    kin_ref_matvec(&c->q_a, x, low);
    kin_ref_tensor_norm(&c->q_norm, token->eps, low, scratch);
    kin_ref_matvec(&c->q_b, low, q);
    for (int h = 0; h < c->n_head; h++) {
        kin_ref_unit(q + h * c->dim, c->dim, (double)token->eps);
        rotate(token->rope, token->pos, 1, turns, q + h * c->dim, c->dim);
    }
}

void kin_ref_compressed_step(const kin_ref_compressed *c, const kin_ref_compressed_token *token, const float *x,
                             const kin_ref_compressed_cache *cache, float *scratch, float *out) {
    const int pos = token->pos, n_q = c->n_head * c->dim, n_rank = c->out_a.n_rows / c->n_group, n_cols = c->out_a.n_cols;
    float *q = scratch, *heads = q + n_q, *weights = heads + n_q, *low = weights + weight_floats(c), *ranks = low + c->q_a.n_rows,
          *turns = ranks + c->out_a.n_rows, *scores = turns + c->n_rot;
    float *row = cache->rows + (size_t)pos * (size_t)c->dim;
    make_queries(c, token, x, low, weights, turns, q);
    kin_ref_matvec(&c->kv, x, row);
    kin_ref_tensor_norm(&c->kv_norm, token->eps, row, weights);
    rotate(token->rope, pos, 1, turns, row, c->dim);
    if (token->rounds) kin_ref_round(row, c->dim);
    if (c->ratio > 0) add_to_blocks(c, token, x, cache, weights, turns);

    const int n_seen = pos + 1 < c->window ? pos + 1 : c->window, n_blocks = c->ratio > 0 ? (pos + 1) / c->ratio : 0;
    choose(c, token, low, x, cache, n_blocks, scores, turns);
    kin_ref_tensor_row(&c->sinks, 0, weights);
    for (int h = 0; h < c->n_head; h++) {
        attend(c, q + h * c->dim, weights[h], row - (size_t)(n_seen - 1) * (size_t)c->dim, n_seen, cache->blocks, n_blocks,
               token->seen, scores, heads + h * c->dim);
        rotate(token->rope, pos, -1, turns, heads + h * c->dim, c->dim);
    }
    for (int g = 0; g < c->n_group; g++) {
        const kin_ref_tensor of_group = kin_ref_tensor_rows(&c->out_a, g * n_rank, n_rank);
        kin_ref_matvec(&of_group, heads + g * n_cols, ranks + g * n_rank);
    }
    kin_ref_matvec(&c->out_b, ranks, out);
}
