// Multiplies a single activation row with a block of 16 whole rows as in the file, of the most common types, without packing
// them: a vector has 16 columns of 4 rows, and sums of 4 lanes follow.
//
// Sums of integers are exact in any order, and floats are added as in dot.c, so the bits are the same.
#include "kernels/pack.h"
#include "kernels/simd/block.h"
#include "kernels/simd/scales.h"

#ifdef SIMD_FUSED_16

// Returns 16 bytes of the rows k, k + 4, k + 8 and k + 12, from the byte `at` of each on.
SIMD_INLINE vb load_rows_of(const uint8_t *rows, size_t step, const int k, int at) {
    return vb_load_4(rows + (size_t)k * step + at, 4 * step);
}

// Returns halves of 16 rows.
SIMD_INLINE vf load_d(const uint8_t *rows, size_t step) {
    uint16_t d[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) memcpy(&d[r], rows + (size_t)r * step, 2);
    return vf_load_f16(d);
}

SIMD_INLINE int32_t sum_of(const kin_act *a, int g) { return a->sum[2 * g] + a->sum[2 * g + 1]; }

// y + sums of 32 columns, times the scales of both
SIMD_INLINE vf add_group(vf y, vf d, const kin_act *a, int g, vi sum) {
    return vf_add(y, vf_mul(vf_times(d, &a->d[g]), vf_from_vi(sum)));
}

static void q8_0(const uint8_t *rows, size_t step, int columns, const kin_act *a, float *f) {
    vf y = vf_load(f);
    for (int g = 0; g < columns / 32; g++, rows += 34) {
        vi sum[4] = {vi_zero(), vi_zero(), vi_zero(), vi_zero()};
#pragma GCC unroll 2
        for (int c = 0; c < 32; c += 16) {
            const vb x = vb_load_16(a->q + 32 * g + c);
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) sum[k] = vi_dot_s8_each(sum[k], vb_s8(load_rows_of(rows, step, k, 2 + c)), x);
        }
        const vi bias = vi_set1(-SIMD_S8_BIAS * sum_of(a, g));
        y = add_group(y, load_d(rows, step), a, g, vi_add(bias, vi_sum_4(sum)));
    }
    vf_store(f, y);
}

static void q4_0(const uint8_t *rows, size_t step, int columns, const kin_act *a, float *f) {
    vf y = vf_load(f);
    for (int g = 0; g < columns / 32; g++, rows += 18) {
        const vb x_low = vb_load_16(a->q + 32 * g), x_high = vb_load_16(a->q + 32 * g + 16);
        vi sum[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            const vb w = load_rows_of(rows, step, k, 2);
            sum[k] = vi_dot_each(vi_dot_each(vi_zero(), low_bits(w), x_low), high_bits(w), x_high);
        }
        y = add_group(y, load_d(rows, step), a, g, vi_add(vi_set1(-8 * sum_of(a, g)), vi_sum_4(sum)));
    }
    vf_store(f, y);
}

static void q4_k(const uint8_t *rows, size_t step, int columns, const kin_act *a, float *f) {
    (void)columns;
    kin_panel_scales_k4 scales;
    uint8_t d[32], d_min[32];
    int8_t scale[8][16], min[8][16];
    vi sum = vi_zero(), less = vi_zero();
    kin_pack_head_k4((kin_pack_rows){rows, step, 16}, &scales, d, d_min);
    unpack_scales_k4(&scales, scale, min);
    for (int i = 0; i < 4; i++) {
        vi low[4] = {vi_zero(), vi_zero(), vi_zero(), vi_zero()}, high[4] = {vi_zero(), vi_zero(), vi_zero(), vi_zero()};
#pragma GCC unroll 2
        for (int c = 0; c < 32; c += 16) {
            const vb x_low = vb_load_16(a->q + 64 * i + c), x_high = vb_load_16(a->q + 64 * i + 32 + c);
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) {
                const vb w = load_rows_of(rows, step, k, 16 + 32 * i + c);
                low[k] = vi_dot_each(low[k], low_bits(w), x_low);
                high[k] = vi_dot_each(high[k], high_bits(w), x_high);
            }
        }
        sum = vi_mul_add(sum, vi_sum_4(low), vi_load_i8(scale[2 * i]));
        sum = vi_mul_add(sum, vi_sum_4(high), vi_load_i8(scale[2 * i + 1]));
    }
    for (int g = 0; g < 8; g++) less = vi_mul_add(less, vi_load_i8(min[g]), vi_set1(sum_of(a, g)));
    const vf most = vf_mul(vf_load_f16((const uint16_t *)d), vf_from_vi(sum));
    const vf t = vf_sub(most, vf_mul(vf_load_f16((const uint16_t *)d_min), vf_from_vi(less)));
    vf_store(f, vf_add(vf_load(f), vf_mul(vf_set1(a->d[0]), t)));
}

// Each half of 128 columns has 64 bytes of nibbles, and 32 bytes with the two bits above them: a nibble's column is its byte's,
// or 64 further on; a pair's is its byte's, or 32, 64 or 96 further on.
static void q6_k(const uint8_t *rows, size_t step, int columns, const kin_act *a, float *f) {
    (void)columns;
    int8_t scale[16][16];
    vi sum = vi_zero();
    kin_pack_transpose((kin_pack_rows){rows + 192, step, 16}, 16, scale);
    for (int h = 0; h < 2; h++) {
        for (int c = 0; c < 32; c += 16) {
            vb pairs[4];
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) pairs[k] = load_rows_of(rows, step, k, 128 + 32 * h + c);
#pragma GCC unroll 4
            for (int t = 0; t < 4; t++) {
                const int at = 128 * h + 32 * t + c, g = at / 16;
                const vb x = vb_load_16(a->q + at);
                vi part[4];
#pragma GCC unroll 4
                for (int k = 0; k < 4; k++) {
                    const vb w = load_rows_of(rows, step, k, 64 * h + t % 2 * 32 + c), two = vb_shr(pairs[k], 2 * t);
                    const vb top = vb_and(vb_shl(two, 4), vb_set1(0x30));
                    part[k] = vi_dot_each(vi_zero(), vb_or(t < 2 ? low_bits(w) : high_bits(w), top), x);
                }
                sum = vi_mul_add(sum, vi_add(vi_set1(-32 * a->sum[g]), vi_sum_4(part)), vi_load_i8(scale[g]));
            }
        }
    }
    const vf t = vf_mul(load_d(rows + 208, step), vf_from_vi(sum));
    vf_store(f, vf_add(vf_load(f), vf_mul(vf_set1(a->d[0]), t)));
}

kin_fused_rows SIMD_FN(kin_fused_rows_of)(int type, int64_t n) {
    if (n > 1) return NULL;
    switch (type) {
    case KIN_TYPE_Q8_0: return q8_0;
    case KIN_TYPE_Q4_0: return q4_0;
    case KIN_TYPE_Q4_K: return q4_k;
    case KIN_TYPE_Q6_K: return q6_k;
    default: return NULL;
    }
}

#else

kin_fused_rows SIMD_FN(kin_fused_rows_of)(int type, int64_t n) {
    (void)type;
    (void)n;
    return NULL;
}

#endif
