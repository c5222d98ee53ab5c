// Scores of an indexer: lanes are keys. The products of a few heads with 16 or 64 keys are chains over the columns, in
// registers; then the heads are added in order.
#include "kernels/simd/backend.h"

enum { HEADS = 4 }; // at once

#define UNROLL _Pragma("GCC unroll 4")

// Adds n heads, from q and weights on, to the scores of w vectors of keys, of n_keys in the block.
SIMD_INLINE void add_heads(int dim, const float *q, const float *weights, vf least, const uint16_t *k, float *scores, const int n,
                           const int w, const int n_keys) {
    vf sum[HEADS][SIMD_COLUMNS], score[SIMD_COLUMNS];
    UNROLL for (int i = 0; i < n; i++) { UNROLL for (int j = 0; j < w; j++) sum[i][j] = vf_zero(); }
    for (int d = 0; d < dim; d++, k += n_keys) {
        UNROLL for (int j = 0; j < w; j++) {
            const vf x = vf_load_f16_normal(k + 16 * j);
            UNROLL for (int i = 0; i < n; i++) sum[i][j] = vf_add(sum[i][j], vf_times(x, q + i * dim + d));
        }
    }
    UNROLL for (int j = 0; j < w; j++) {
        score[j] = vf_load(scores + 16 * j);
        UNROLL for (int i = 0; i < n; i++) score[j] = vf_add(score[j], vf_times(vf_max(sum[i][j], least), weights + i));
        vf_store(scores + 16 * j, score[j]);
    }
}

SIMD_INLINE void score_keys(const kin_index_query *query, const uint16_t *k, float *scores, const int w, const int n_keys) {
    const int dim = query->dim, n = query->n_head;
    const vf least = vf_set1(query->least);
    for (int c = 0; c < n_keys; c += 16) vf_store(scores + c, vf_zero());
    for (int i = 0; i < n; i += HEADS) {
        const float *q = query->q + i * dim, *weights = query->weights + i;
        for (int c = 0; c < n_keys; c += 16 * w) {
            if (i + HEADS <= n)
                add_heads(dim, q, weights, least, k + c, scores + c, HEADS, w, n_keys);
            else
                for (int h = 0; h < n - i; h++) add_heads(dim, q + h * dim, weights + h, least, k + c, scores + c, 1, w, n_keys);
        }
    }
}

void SIMD_FN(kin_index_scores)(const kin_index_query *query, const uint16_t *k, float *scores) {
    if (query->n_keys == KIN_KV_CELLS)
        score_keys(query, k, scores, SIMD_COLUMNS, KIN_KV_CELLS);
    else
        score_keys(query, k, scores, 1, KIN_POOLED_KEYS);
}
