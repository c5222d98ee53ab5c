// Scores of an indexer: lanes are cells. The products of a few heads with 16 or 64 cells are chains over the columns, in
// registers; then the heads are added in order.
#include "kernels/simd/backend.h"

enum {
    CELLS = KIN_KV_CELLS,
    HEADS = 4, // at once
};

#define UNROLL _Pragma("GCC unroll 4")

// Adds n heads, from q and weights on, to the scores of SIMD_COLUMNS vectors of cells.
SIMD_INLINE void add_heads(int dim, const float *q, const float *weights, vf least, const uint16_t *k, float *scores,
                           const int n) {
    vf sum[HEADS][SIMD_COLUMNS], score[SIMD_COLUMNS];
    UNROLL for (int i = 0; i < n; i++) { UNROLL for (int j = 0; j < SIMD_COLUMNS; j++) sum[i][j] = vf_zero(); }
    for (int d = 0; d < dim; d++, k += CELLS) {
        UNROLL for (int j = 0; j < SIMD_COLUMNS; j++) {
            const vf x = vf_load_f16_normal(k + 16 * j);
            UNROLL for (int i = 0; i < n; i++) sum[i][j] = vf_add(sum[i][j], vf_times(x, q + i * dim + d));
        }
    }
    UNROLL for (int j = 0; j < SIMD_COLUMNS; j++) {
        score[j] = vf_load(scores + 16 * j);
        UNROLL for (int i = 0; i < n; i++) score[j] = vf_add(score[j], vf_times(vf_max(sum[i][j], least), weights + i));
        vf_store(scores + 16 * j, score[j]);
    }
}

void SIMD_FN(kin_index_scores)(const kin_index_query *query, const uint16_t *k, float *scores) {
    const int dim = query->dim, n = query->n_head;
    const vf least = vf_set1(query->least);
    for (int c = 0; c < CELLS; c += 16) vf_store(scores + c, vf_zero());
    for (int i = 0; i < n; i += HEADS) {
        const float *q = query->q + i * dim, *weights = query->weights + i;
        for (int c = 0; c < CELLS; c += 16 * SIMD_COLUMNS) {
            if (i + HEADS <= n)
                add_heads(dim, q, weights, least, k + c, scores + c, HEADS);
            else
                for (int h = 0; h < n - i; h++) add_heads(dim, q + h * dim, weights + h, least, k + c, scores + c, 1);
        }
    }
}
