// Quantizes activations to bytes, in blocks of 256 columns.
#include <string.h>

#include "kernels/simd/backend.h"

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
            to->d[0] = simd_round_s8(from, KIN_ACT_COLUMNS, to->q);
        } else {
            for (int j = 0; j < left / 32; j++) to->d[j] = simd_round_s8(from + 32 * j, 32, to->q + 32 * j);
        }
        for (int j = 0; j < left / 16; j++) to->sum[j] = sum_16(to->q + 16 * j);
    }
}
