#include "testkit/ref/block_indexer.h"

#include <math.h>

#include "testkit/ref/vector.h"

const char *kin_ref_block_indexer_check(const kin_ref_block_indexer *x, int n_head_kv, int n_embd, int n_rot) {
    if (x->n_head == 0) return NULL;
    if ((x->n_head != n_head_kv && !x->pools) || x->dim < n_rot) return "block_indexer.n_head";
    if (x->n_block < 1 || x->n_chosen < 1 || x->n_local < 0) return "block_indexer.n_block";
    if (!kin_ref_tensor_is(&x->q, 1, x->n_head * x->dim, n_embd)) return "block_indexer.q";
    if (!kin_ref_tensor_is(&x->k, 1, x->dim, n_embd)) return "block_indexer.k";
    if (!kin_ref_tensor_is(&x->q_norm, 1, 1, x->dim)) return "block_indexer.q_norm";
    return kin_ref_tensor_is(&x->k_norm, 1, 1, x->dim) ? NULL : "block_indexer.k_norm";
}

size_t kin_ref_block_indexer_scratch_floats(const kin_ref_block_indexer *x, int n_ctx) {
    return ((size_t)x->n_head + 2) * (size_t)x->dim + (size_t)n_ctx;
}

// The greatest product of q with a key of the tokens [first, end).
static float score_of(const kin_ref_block_indexer *x, const float *q, const kin_ref_indexer_keys *keys, int first, int end) {
    double top = -INFINITY;
    for (int t = first; t < end; t++) top = fmax(top, kin_ref_dot(q, keys->keys + (size_t)t * keys->apart, x->dim));
    return (float)top;
}

// Sets seen // (n_tokens) for a head's query q. scores // (blocks), scratch
static void see(const kin_ref_block_indexer *x, const float *q, const kin_ref_indexer_keys *keys, int n_tokens, float *scores,
                bool *seen) {
    const int n_blocks = (n_tokens + x->n_block - 1) / x->n_block;
    for (int b = 0; b < n_blocks; b++) {
        const int first = b * x->n_block, end = first + x->n_block < n_tokens ? first + x->n_block : n_tokens;
        scores[b] = b >= n_blocks - x->n_local ? INFINITY : score_of(x, q, keys, first, end);
    }
    kin_ref_choose_greatest(scores, n_blocks, x->n_chosen, seen);
    for (int t = n_tokens - 1; t >= 0; t--) seen[t] = seen[t / x->n_block]; // from blocks to tokens: no block has a later place
}

// Makes the key of the block that ends at pos. scratch // (2, dim)
static void pool(const kin_ref_block_indexer *x, const kin_ref_rope *rope, int pos, float eps, const kin_ref_indexer_keys *keys,
                 float *scratch) {
    const int first = pos + 1 - x->n_block;
    float *key = keys->keys + (size_t)pos * keys->apart + x->dim;
    for (int i = 0; i < x->dim; i++) {
        double sum = 0;
        for (int t = first; t <= pos; t++) sum += (double)keys->keys[(size_t)t * keys->apart + (size_t)i];
        key[i] = (float)(sum / x->n_block);
    }
    kin_ref_tensor_norm(&x->k_norm, eps, key, scratch);
    kin_ref_rope_cos_sin(rope, NULL, first, scratch + x->dim);
    kin_ref_rope_apply(rope, scratch + x->dim, key);
    if (keys->rounds) kin_ref_round(key, x->dim);
}

// Sets seen // (n_tokens) for the queries q // (n_head, dim). scores // (blocks), scratch
static void see_pooled(const kin_ref_block_indexer *x, const float *q, const kin_ref_indexer_keys *keys, int n_tokens,
                       float *scores, bool *seen) {
    const int n_blocks = n_tokens / x->n_block;
    for (int b = 0; b < n_blocks; b++) {
        const float *key = keys->keys + (size_t)((b + 1) * x->n_block - 1) * keys->apart + x->dim;
        double sum = 0;
        for (int h = 0; h < x->n_head; h++) sum += fmax(0, kin_ref_dot(q + h * x->dim, key, x->dim));
        scores[b] = (float)sum;
    }
    kin_ref_choose_greatest(scores, n_blocks, x->n_chosen, seen);
    for (int t = n_tokens - 1; t >= 0; t--) seen[t] = t / x->n_block == n_blocks || seen[t / x->n_block];
}

static void choose_pooled(const kin_ref_block_indexer *x, const kin_ref_rope *rope, const float *cos_sin, int pos, float eps,
                          const float *normed, const kin_ref_indexer_keys *keys, float *scratch, bool *seen) {
    float *q = scratch, *of_norm = q + x->n_head * x->dim, *scores = of_norm + 2 * x->dim;
    float *key = keys->keys + (size_t)pos * keys->apart;
    kin_ref_matvec(&x->k, normed, key);
    if (keys->rounds) kin_ref_round(key, x->dim);
    if ((pos + 1) % x->n_block == 0) pool(x, rope, pos, eps, keys, of_norm);
    kin_ref_matvec(&x->q, normed, q);
    for (int h = 0; h < x->n_head; h++) {
        kin_ref_tensor_norm(&x->q_norm, eps, q + h * x->dim, of_norm);
        kin_ref_rope_apply(rope, cos_sin, q + h * x->dim);
    }
    see_pooled(x, q, keys, pos + 1, scores, seen);
}

void kin_ref_block_indexer_choose(const kin_ref_block_indexer *x, const kin_ref_rope *rope, const float *cos_sin, int pos,
                                  float eps, const float *normed, const kin_ref_indexer_keys *keys, float *scratch, bool *seen) {
    float *q = scratch, *of_norm = q + x->n_head * x->dim, *scores = of_norm + x->dim;
    float *key = keys->keys + (size_t)pos * keys->apart;
    if (x->pools) {
        choose_pooled(x, rope, cos_sin, pos, eps, normed, keys, scratch, seen);
        return;
    }
    kin_ref_matvec(&x->k, normed, key);
    kin_ref_tensor_norm(&x->k_norm, eps, key, of_norm);
    kin_ref_rope_apply(rope, cos_sin, key);
    if (keys->rounds) kin_ref_round(key, x->dim);
    kin_ref_matvec(&x->q, normed, q);
    for (int h = 0; h < x->n_head; h++) {
        float *of_head = q + h * x->dim;
        kin_ref_tensor_norm(&x->q_norm, eps, of_head, of_norm);
        kin_ref_rope_apply(rope, cos_sin, of_head);
        see(x, of_head, keys, pos + 1, scores, seen + (size_t)h * (size_t)(pos + 1));
    }
}
