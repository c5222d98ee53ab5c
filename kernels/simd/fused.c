// One activation row times a block of the types that most models have: weights are multiplied as they are unpacked, and nothing
// is stored in between. For WebAssembly with relaxed vectors, where storing 4 KiB for a block and loading it takes longer than
// the products of one row. Four rows at a time, which are one register: engines keep small loop bodies with few values in
// registers, and no others.
//
// Sums of integers are exact in any order, and floats are added as in dot.c: the bits are the same.
#include "kernels/panel.h"
#include "kernels/simd/backend.h"
#include "kernels/simd/block.h"

#ifdef SIMD_FUSED

// sum += 4 columns of 4 rows, unsigned bytes of at most 127, times x[0..3]: pairs of products, in 16 bits
SIMD_INLINE v128_t add_pairs(v128_t sum, v128_t w, const int8_t *x) { return simd_dot_u7(sum, w, wasm_v128_load32_splat(x)); }

SIMD_INLINE v128_t low_bits(v128_t w) { return w & wasm_u8x16_const_splat(15); }
SIMD_INLINE v128_t high_bits(v128_t w) { return wasm_u16x8_shr(w, 4) & wasm_u8x16_const_splat(15); }

// sum + pairs * the scales of 4 rows
SIMD_INLINE v128_t add_scaled(v128_t sum, v128_t pairs, const void *scale) {
    v128_t s = wasm_v128_load32_zero(scale);
    s = wasm_i16x8_extend_low_i8x16(wasm_i8x16_shuffle(s, s, 0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3));
    return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(pairs, s));
}

// sum + the minima of 4 rows, of 16 bits, times x
SIMD_INLINE v128_t add_min(v128_t sum, const void *min, int32_t x) {
    v128_t m = wasm_v128_load32_zero(min);
    m = wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(m));
    return wasm_i32x4_add(sum, wasm_i32x4_mul(m, wasm_i32x4_splat(x)));
}

// f[0..3] += d_x * t
SIMD_INLINE void add_block(float *f, float d_x, v128_t t) {
    wasm_v128_store(f, wasm_f32x4_add(wasm_v128_load(f), wasm_f32x4_mul(wasm_f32x4_splat(d_x), t)));
}

SIMD_INLINE v128_t times(v128_t d, v128_t i) { return wasm_f32x4_mul(d, wasm_f32x4_convert_i32x4(i)); }
SIMD_INLINE v128_t f16(const uint8_t *p) { return simd_f16((const uint16_t *)p); }

// ---- Q4_K

// Scales and minima as in unpack.c.
static void unpack_scales(const kin_panel_scales_k4 *s, uint8_t scale[8][16], uint8_t min[8][16]) {
    const v128_t top = wasm_u8x16_const_splat(0x30);
    for (int j = 0; j < 4; j++) {
        v128_t high = wasm_v128_load(s->high[j]), low = wasm_v128_load(s->low[j]), low_2 = wasm_v128_load(s->low[4 + j]);
        wasm_v128_store(scale[j], low_bits(low) | (wasm_i16x8_shl(high, 4) & top));
        wasm_v128_store(min[j], high_bits(low) | (high & top));
        wasm_v128_store(scale[4 + j], low_bits(low_2) | (wasm_i16x8_shl(high, 2) & top));
        wasm_v128_store(min[4 + j], high_bits(low_2) | (wasm_u16x8_shr(high, 2) & top));
    }
}

// The products of 4 rows. q, scale: of the first of them
static v128_t rows_q4_k(const uint8_t *q, const uint8_t *scale, const int8_t *x) {
    v128_t sum = wasm_i32x4_const_splat(0);
    for (int i = 0; i < 4; i++, q += 512, scale += 32, x += 64) {
        v128_t low = wasm_i32x4_const_splat(0), high = low;
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            v128_t w = wasm_v128_load(q + 64 * j);
            low = add_pairs(low, low_bits(w), x + 4 * j);
            high = add_pairs(high, high_bits(w), x + 32 + 4 * j);
        }
        sum = add_scaled(sum, low, scale);
        sum = add_scaled(sum, high, scale + 16);
    }
    return sum;
}

static void fused_q4_k(const uint8_t *panel, int columns, const kin_act *a, float *f) {
    (void)columns;
    const kin_panel_q4_k *p = (const kin_panel_q4_k *)panel;
    uint8_t scale[8][16], min[8][16];
    unpack_scales(&p->scales, scale, min);
    for (int r = 0; r < 16; r += 4) {
        v128_t sum = rows_q4_k(&p->q[0][4 * r], &scale[0][r], a->q), less = wasm_i32x4_const_splat(0);
        for (int j = 0; j < 8; j++) less = add_min(less, &min[j][r], a->sum[2 * j] + a->sum[2 * j + 1]);
        add_block(f + r, a->d[0], wasm_f32x4_sub(times(f16(p->d + 2 * r), sum), times(f16(p->d_min + 2 * r), less)));
    }
}

// ---- Q6_K

// 16 columns of 4 rows: weights are `low` bits and two of `high`, moved to bits 4 and 5. A sum of 16 bits holds two groups of 4.
#define COLUMNS_Q6_K(sum, low, high, x, scale)                                                                                   \
    for (int j = 0; j < 4; j += 2) {                                                                                             \
        v128_t pairs = add_pairs(wasm_i32x4_const_splat(0), low(j) | (high(j) & top), (x) + 4 * j);                              \
        sum = add_scaled(sum, add_pairs(pairs, low(j + 1) | (high(j + 1) & top), (x) + 4 * j + 4), scale);                       \
    }
#define LOW_0(j) low_bits(wasm_v128_load(low + 64 * (j)))
#define LOW_1(j) low_bits(wasm_v128_load(low + 512 + 64 * (j)))
#define LOW_2(j) high_bits(wasm_v128_load(low + 64 * (j)))
#define LOW_3(j) high_bits(wasm_v128_load(low + 512 + 64 * (j)))
#define HIGH_0(j) wasm_i16x8_shl(wasm_v128_load(high + 64 * (j)), 4)
#define HIGH_1(j) wasm_i16x8_shl(wasm_v128_load(high + 64 * (j)), 2)
#define HIGH_2(j) wasm_v128_load(high + 64 * (j))
#define HIGH_3(j) wasm_u16x8_shr(wasm_v128_load(high + 64 * (j)), 2)

static v128_t rows_q6_k(const uint8_t *low, const uint8_t *high, const int8_t *scale, const int8_t *x) {
    const v128_t top = wasm_u8x16_const_splat(0x30);
    v128_t sum = wasm_i32x4_const_splat(0);
    for (int i = 0; i < 4; i++) {
        COLUMNS_Q6_K(sum, LOW_0, HIGH_0, x, scale)
        COLUMNS_Q6_K(sum, LOW_1, HIGH_1, x + 32, scale + 32)
        COLUMNS_Q6_K(sum, LOW_2, HIGH_2, x + 64, scale + 64)
        COLUMNS_Q6_K(sum, LOW_3, HIGH_3, x + 96, scale + 96)
        bool is_second = i % 2; // half of 32 columns; then the next 128
        low += is_second ? 1024 - 256 : 256;
        high += 256;
        scale += is_second ? 128 - 16 : 16;
        x += is_second ? 128 - 16 : 16;
    }
    return sum;
}

static void fused_q6_k(const uint8_t *panel, int columns, const kin_act *a, float *f) {
    (void)columns;
    const kin_panel_q6_k *p = (const kin_panel_q6_k *)panel;
    for (int r = 0; r < 16; r += 4) {
        v128_t sum = rows_q6_k(&p->low[0][4 * r], &p->high[0][4 * r], &p->scale[0][r], a->q), less = wasm_i32x4_const_splat(0);
        for (int j = 0; j < 16; j++) less = add_min(less, &p->scale[j][r], 32 * a->sum[j]);
        add_block(f + r, a->d[0], times(f16(p->d + 2 * r), wasm_i32x4_sub(sum, less)));
    }
}

kin_fused SIMD_FN(kin_fused_of)(int type) {
    switch (type) {
    case KIN_TYPE_Q4_K: return fused_q4_k;
    case KIN_TYPE_Q6_K: return fused_q6_k;
    default: return NULL;
    }
}

#else

kin_fused SIMD_FN(kin_fused_of)(int type) {
    (void)type;
    return NULL;
}

#endif
