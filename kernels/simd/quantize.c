// Rounds activations to bytes, 256 columns a block.
#include <string.h>

#include "kernels/simd/backend.h"

// n columns, a multiple of 16 -> q and the scale: x = d * q.
SIMD_INLINE float round_columns(const float *x, int n, int8_t *q) {
    vf most = vf_zero();
    for (int i = 0; i < n; i += 16) most = vf_max(most, vf_abs(vf_load(x + i)));
    // Of numbers below 2^-100 nothing is left: the factor for the smallest of them would be infinite.
    float greatest = vf_greatest(most), inverse = greatest > 0x1p-100f ? 127 / greatest : 0;
    for (int i = 0; i < n; i += 16) vi_store_i8(q + i, vi_round(vf_mul(vf_load(x + i), vf_set1(inverse))));
    return greatest / 127;
}

static int16_t sum_16(const int8_t *q) {
    int sum = 0;
    for (int i = 0; i < 16; i++) sum += q[i];
    return (int16_t)sum;
}

void SIMD_FN(kin_quantize)(kin_act_kind kind, int64_t columns, int64_t n, const float *x, kin_act *act, int64_t begin,
                           int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i % n, column = i / n * KIN_ACT_COLUMNS;
        const float *from = x + row * columns + column;
        kin_act *to = &act[i];
        int left = columns - column < KIN_ACT_COLUMNS ? (int)(columns - column) : KIN_ACT_COLUMNS;
        if (kind == KIN_ACT_256) {
            to->d[0] = round_columns(from, KIN_ACT_COLUMNS, to->q);
        } else {
            for (int j = 0; j < left / 32; j++) to->d[j] = round_columns(from + 32 * j, 32, to->q + 32 * j);
        }
        for (int j = 0; j < left / 16; j++) to->sum[j] = sum_16(to->q + 16 * j);
    }
}
