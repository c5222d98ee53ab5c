#include "testkit/ref/block_indexer.h"

#include <math.h>

#include "testkit/ref/vector.h"

const char *kin_ref_block_indexer_check(const kin_ref_block_indexer *x, int n_head_kv, int n_embd, int n_rot) {
    if (x->n_head == 0) return NULL;
    if (x->n_head != n_head_kv || x->dim < n_rot) return "block_indexer.n_head";
    if (x->n_block < 1 || x->n_chosen < 1 || x->n_local < 0) return "block_indexer.n_block";
    if (!kin_ref_tensor_is(&x->q, 1, x->n_head * x->dim, n_embd)) return "block_indexer.q";
    if (!kin_ref_tensor_is(&x->k, 1, x->dim, n_embd)) return "block_indexer.k";
    if (!kin_ref_tensor_is(&x->q_norm, 1, 1, x->dim)) return "block_indexer.q_norm";
    return kin_ref_tensor_is(&x->k_norm, 1, 1, x->dim) ? NULL : "block_indexer.k_norm";
}

size_t kin_ref_block_indexer_scratch_floats(const kin_ref_block_indexer *x, int n_ctx) {
    return ((size_t)x->n_head + 1) * (size_t)x->dim + (size_t)n_ctx;
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

void kin_ref_block_indexer_choose(const kin_ref_block_indexer *x, const kin_ref_rope *rope, const float *cos_sin, int pos,
                                  float eps, const float *normed, const kin_ref_indexer_keys *keys, float *scratch, bool *seen) {
    float *q = scratch, *of_norm = q + x->n_head * x->dim, *scores = of_norm + x->dim;
    float *key = keys->keys + (size_t)pos * keys->apart;
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
