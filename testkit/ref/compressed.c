#include "testkit/ref/compressed.h"

#include <math.h>
#include <string.h>

#include "testkit/ref/vector.h"

static const char *check_rows(const kin_ref_compressed *c, int n_embd) {
    const int width = c->row.n_rows;
    if (c->ratio == 0) return NULL;
    if ((width != c->dim && width != 2 * c->dim) || !kin_ref_tensor_is(&c->row, 1, width, n_embd)) return "row";
    if (!kin_ref_tensor_is(&c->gate, 1, width, n_embd)) return "gate";
    if (!kin_ref_tensor_is(&c->place, 1, c->ratio, width)) return "place";
    return kin_ref_tensor_is(&c->row_norm, 1, 1, c->dim) ? NULL : "row_norm";
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

size_t kin_ref_compressed_kept_floats(const kin_ref_compressed *c) {
    return 2 * (size_t)c->row.n_rows;
}

// Floats of a norm's weights, of what is added to gates, and of sinks.
static size_t weight_floats(const kin_ref_compressed *c) {
    return (size_t)(c->q_a.n_rows + 2 * c->dim + c->n_head);
}

size_t kin_ref_compressed_scratch_floats(const kin_ref_compressed *c, int n_ctx) {
    return weight_floats(c) + 2 * (size_t)c->n_head * (size_t)c->dim + (size_t)(c->q_a.n_rows + c->out_a.n_rows + c->n_rot) +
           2 * (size_t)n_ctx;
}

// x = x / sqrt(mean(x^2) + eps) * weight. x, scratch // (n)
static void norm(const kin_ref_tensor *weight, float eps, float *x, float *scratch) {
    kin_ref_tensor_row(weight, 0, scratch);
    kin_ref_unit(x, weight->n_cols, (double)eps);
    for (int i = 0; i < weight->n_cols; i++) x[i] *= scratch[i];
}

// Rotates the last n_rot numbers of a row as at a position; backwards if `sign` is -1. turns // (n_rot)
static void rotate(const kin_ref_compressed *c, const kin_ref_rope *rope, int pos, float sign, float *turns, float *row) {
    kin_ref_rope_cos_sin(rope, NULL, pos, turns);
    for (int i = 1; i < c->n_rot; i += 2) turns[i] *= sign;
    kin_ref_rope_apply(rope, turns, row + c->dim - c->n_rot);
}

// Keeps the products of which compressed rows are made: of a row, then of its gates // (2, width).
static void keep(const kin_ref_compressed *c, const kin_ref_compressed_token *token, const float *x, float *places, float *kept) {
    const int width = c->row.n_rows;
    kin_ref_matvec(&c->row, x, kept);
    kin_ref_matvec(&c->gate, x, kept + width);
    if (token->rounds) kin_ref_round(kept, 2 * width);
    kin_ref_tensor_row(&c->place, token->pos % c->ratio, places);
    kin_ref_add(kept + width, places, width);
}

// Adds to *sum and *weights the products of number i of tokens [first, first + ratio). Numbers are counted within products.
static void add_tokens(const kin_ref_compressed *c, const kin_ref_compressed_cache *cache, int first, int i, double *sum,
                       double *weights) {
    for (int t = first; t < first + c->ratio; t++) {
        const float *kept = cache->kept + (size_t)t * cache->kept_apart;
        const double weight = exp((double)kept[c->row.n_rows + i]);
        *sum += weight * (double)kept[i];
        *weights += weight;
    }
}

// Makes the compressed row of block b.
static void compress(const kin_ref_compressed *c, const kin_ref_compressed_token *token, const kin_ref_compressed_cache *cache,
                     int b, float *scratch, float *turns) {
    float *row = cache->blocks + (size_t)b * (size_t)c->dim;
    const bool overlaps = c->row.n_rows > c->dim;
    for (int i = 0; i < c->dim; i++) {
        double sum = 0, weights = 0;
        if (overlaps && b > 0) add_tokens(c, cache, (b - 1) * c->ratio, i, &sum, &weights);
        add_tokens(c, cache, b * c->ratio, overlaps ? c->dim + i : i, &sum, &weights);
        row[i] = (float)(sum / weights);
    }
    norm(&c->row_norm, token->eps, row, scratch);
    rotate(c, token->rope, b * c->ratio, 1, turns, row);
    if (token->rounds) kin_ref_round(row, c->dim);
}

// out = the mean of n rows, weighted by the softmax of their products with q and of the sink. q, out // (dim), rows // (n)
// pointers are two runs: n_a rows from a on, then n_b from b on.
static void attend(const kin_ref_compressed *c, const float *q, float sink, const float *a, int n_a, const float *b, int n_b,
                   float *scores, float *out) {
    const size_t dim = (size_t)c->dim;
    for (int t = 0; t < n_a + n_b; t++) {
        const float *row = t < n_a ? a + (size_t)t * dim : b + (size_t)(t - n_a) * dim;
        scores[t] = (float)(kin_ref_dot(q, row, c->dim) / sqrt(c->dim));
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
    norm(&c->q_norm, token->eps, low, scratch);
    kin_ref_matvec(&c->q_b, low, q);
    for (int h = 0; h < c->n_head; h++) {
        kin_ref_unit(q + h * c->dim, c->dim, (double)token->eps);
        rotate(c, token->rope, token->pos, 1, turns, q + h * c->dim);
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
    norm(&c->kv_norm, token->eps, row, weights);
    rotate(c, token->rope, pos, 1, turns, row);
    if (token->rounds) kin_ref_round(row, c->dim);
    if (c->ratio > 0) keep(c, token, x, weights, cache->kept + (size_t)pos * cache->kept_apart);
    if (c->ratio > 0 && (pos + 1) % c->ratio == 0) compress(c, token, cache, pos / c->ratio, weights, turns);

    const int n_seen = pos + 1 < c->window ? pos + 1 : c->window, n_blocks = c->ratio > 0 ? (pos + 1) / c->ratio : 0;
    kin_ref_tensor_row(&c->sinks, 0, weights);
    for (int h = 0; h < c->n_head; h++) {
        attend(c, q + h * c->dim, weights[h], row - (size_t)(n_seen - 1) * (size_t)c->dim, n_seen, cache->blocks, n_blocks,
               scores, heads + h * c->dim);
        rotate(c, token->rope, pos, -1, turns, heads + h * c->dim);
    }
    for (int g = 0; g < c->n_group; g++) {
        const kin_ref_tensor of_group = kin_ref_tensor_rows(&c->out_a, g * n_rank, n_rank);
        kin_ref_matvec(&of_group, heads + g * n_cols, ranks + g * n_rank);
    }
    kin_ref_matvec(&c->out_b, ranks, out);
}
