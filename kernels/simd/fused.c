// Multiplies a few activation rows with a block of the most common types: weights are multiplied while they are unpacked, and
// nothing is stored in between.
//
// Sums of integers are exact in any order, and floats are added as in dot.c, so the bits are the same.
#include "kernels/panel.h"
#include "kernels/simd/backend.h"
#include "kernels/simd/block.h"

#ifdef SIMD_FUSED

// For WebAssembly with relaxed SIMD, where storing 4 KiB per block and loading it takes longer than the products of one row.
// Works on 16 rows at a time, so that weights are read in storage order: on a Zen 4, V8's code is limited by the number of its
// instructions if weights are in a cache, and by the processor's own prefetchers if not. Measures that keep that number small, as
// far as the compiler can be controlled:
// - Loops that it must not unroll. It cos_sin a long body into one expression per row, with all loads first, and spills.
// - Constants and pointers that are opaque to it (kept, moving). A constant takes three instructions at each use, and a pointer
//   that is a sum of loop variables takes one per load.

#define LOOP _Pragma("clang loop unroll(disable)")
#define EACH_ROW _Pragma("GCC unroll 4") for (int r = 0; r < 4; r++) // a register of 4 rows

SIMD_INLINE v128_t kept(uint32_t x) {
    __asm__("" : "+r"(x));
    return wasm_u32x4_splat(x);
}
SIMD_INLINE const void *moving(const void *p) {
    __asm__("" : "+r"(p));
    return p;
}

SIMD_INLINE v128_t load(const void *p) { return wasm_v128_load(p); }
SIMD_INLINE v128_t splat(const void *p) { return wasm_v128_load32_splat(p); }

// Masks for a type's bits.
typedef struct masks {
    v128_t low; // 4 bits
    v128_t top; // the two above them
} masks;
SIMD_INLINE masks kept_masks(void) { return (masks){kept(0x0f0f0f0f), kept(0x30303030)}; }
SIMD_INLINE v128_t low_bits(masks m, v128_t w) { return w & m.low; }
SIMD_INLINE v128_t high_bits(masks m, v128_t w) { return wasm_u16x8_shr(w, 4) & m.low; }

// Multiplies 4 columns of 4 rows, unsigned bytes of at most 127, with x: gives sums of two products in 16 bits, or adds all four
// products to sum in 32 bits (KIN_VARIANT_FOURS).
SIMD_INLINE v128_t pairs(v128_t x, v128_t w) { return wasm_i16x8_relaxed_dot_i8x16_i7x16(x, w); }
SIMD_INLINE v128_t add_fours(v128_t sum, v128_t x, v128_t w) { return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, w, sum); }
SIMD_INLINE v128_t add_products(const bool fours, v128_t sum, v128_t x, v128_t w) {
    return fours ? add_fours(sum, x, w) : wasm_i16x8_add(sum, pairs(x, w));
}

// Expands a byte of each of 16 rows to multiply sums of products with it: twice in 16 bits, or in 32 // [4 rows]. For an unsigned
// byte half of the steps need one instruction less.
SIMD_INLINE void spread(const bool fours, const bool is_signed, v128_t to[4], v128_t bytes) {
    v128_t low = is_signed ? wasm_i16x8_extend_low_i8x16(bytes) : wasm_u16x8_extend_low_u8x16(bytes);
    v128_t high = is_signed ? wasm_i16x8_extend_high_i8x16(bytes) : wasm_u16x8_extend_high_u8x16(bytes);
    if (fours) {
        to[0] = is_signed ? wasm_i32x4_extend_low_i16x8(low) : wasm_u32x4_extend_low_u16x8(low);
        to[1] = is_signed ? wasm_i32x4_extend_high_i16x8(low) : wasm_u32x4_extend_high_u16x8(low);
        to[2] = is_signed ? wasm_i32x4_extend_low_i16x8(high) : wasm_u32x4_extend_low_u16x8(high);
        to[3] = is_signed ? wasm_i32x4_extend_high_i16x8(high) : wasm_u32x4_extend_high_u16x8(high);
        return;
    }
    to[0] = wasm_i16x8_shuffle(low, low, 0, 0, 1, 1, 2, 2, 3, 3);
    to[1] = wasm_i16x8_shuffle(low, low, 4, 4, 5, 5, 6, 6, 7, 7);
    to[2] = wasm_i16x8_shuffle(high, high, 0, 0, 1, 1, 2, 2, 3, 3);
    to[3] = wasm_i16x8_shuffle(high, high, 4, 4, 5, 5, 6, 6, 7, 7);
}

SIMD_INLINE v128_t add_times(const bool fours, v128_t sum, v128_t products, v128_t scale) {
    return fours ? wasm_i32x4_add(sum, wasm_i32x4_mul(products, scale)) : simd_add_dot(sum, products, scale);
}

// less += two bytes of each of 16 rows times x, a pair of 16-bit numbers in each lane
SIMD_INLINE void add_mins(v128_t less[4], v128_t first, v128_t second, v128_t x) {
    v128_t low = wasm_i8x16_shuffle(first, second, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    v128_t high = wasm_i8x16_shuffle(first, second, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    less[0] = simd_add_dot(less[0], wasm_u16x8_extend_low_u8x16(low), x);
    less[1] = simd_add_dot(less[1], wasm_u16x8_extend_high_u8x16(low), x);
    less[2] = simd_add_dot(less[2], wasm_u16x8_extend_low_u8x16(high), x);
    less[3] = simd_add_dot(less[3], wasm_u16x8_extend_high_u8x16(high), x);
}

SIMD_INLINE void zero(v128_t x[4]) { EACH_ROW x[r] = wasm_i32x4_const_splat(0); }

// Like simd_f16, with constants that stay in registers or on the stack. Scales of K-quants are often subnormal: with the
// conversion of simd_f16_normal, Q4_K reached 10.3 instead of 14.2 GB/s if all were.
typedef struct halves {
    v128_t magnitude, bias, greatest, infinite, subnormal, unit, sign;
} halves;
SIMD_INLINE halves kept_halves(void) {
    return (halves){kept(0x7fff), kept(112 << 23),  kept(0x7bff),    kept(255 << 23),
                    kept(0x400),  kept(0x33800000), kept(0x80000000)};
}
SIMD_INLINE v128_t f16(halves k, const uint8_t *p) {
    v128_t h = wasm_u32x4_load16x4(p), magnitude = h & k.magnitude;
    v128_t normal = wasm_i32x4_add(wasm_i32x4_shl(magnitude, 13), k.bias);
    normal |= wasm_i32x4_gt(magnitude, k.greatest) & k.infinite;
    v128_t small = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(magnitude), k.unit);
    v128_t x = wasm_v128_bitselect(small, normal, wasm_i32x4_gt(k.subnormal, magnitude));
    return x | (wasm_i32x4_shl(h, 16) & k.sign);
}

// True if any of 32 halves is negative, infinite or NaN.
SIMD_INLINE bool are_special(const uint8_t *p) {
    v128_t most = wasm_u16x8_max(wasm_u16x8_max(load(p), load(p + 16)), wasm_u16x8_max(load(p + 32), load(p + 48)));
    return wasm_v128_any_true(wasm_u16x8_sub_sat(most, kept(0x7bff7bff)));
}
// Converts halves that are none of these, in half the instructions. For a subnormal half, f * 2^-14, the bits of a normal one
// would give y = 2^-15 * (1 + f), so the result is y + (y - 2^-14).
SIMD_INLINE v128_t f16_plain(const uint8_t *p, v128_t bias, v128_t least, v128_t zeros) {
    v128_t y = wasm_i32x4_add(wasm_i32x4_shl(wasm_u32x4_load16x4(p), 13), bias);
    return wasm_f32x4_add(y, wasm_f32x4_pmin(zeros, wasm_f32x4_sub(y, least)));
}

SIMD_INLINE v128_t times(v128_t d, v128_t i) { return wasm_f32x4_mul(d, wasm_f32x4_convert_i32x4(i)); }

// f[0..3] += d_x * t
SIMD_INLINE void add_block(float *f, float d_x, v128_t t) {
    wasm_v128_store(f, wasm_f32x4_add(load(f), wasm_f32x4_mul(wasm_f32x4_splat(d_x), t)));
}

// ---- Q4_K, Q5_K

// sum += products of 32 columns, in n sums, times their scales // [n][4 rows]
SIMD_INLINE void add_scaled(const bool fours, v128_t sum[4], const v128_t (*products)[4], const int n, v128_t scales) {
    v128_t scale[4];
    spread(fours, false, scale, scales);
    for (int i = 0; i < n; i++) EACH_ROW sum[r] = add_times(fours, sum[r], products[i][r], scale[r]);
}

// f += d_x * (d * sum - d_min * less), for 16 rows. d: f16 of 16 rows, then those of the minima.
static __attribute__((noinline)) void add_special_k4(const uint8_t *d, float d_x, const v128_t sum[4], const v128_t less[4],
                                                     float *f) {
    const halves k = kept_halves();
    EACH_ROW {
        v128_t t = wasm_f32x4_sub(times(f16(k, d + 8 * r), sum[r]), times(f16(k, d + 32 + 8 * r), less[r]));
        add_block(f + 4 * r, d_x, t);
    }
}
SIMD_INLINE void add_block_k4(const uint8_t *d, float d_x, const v128_t sum[4], const v128_t less[4], float *f) {
    if (are_special(d)) {
        v128_t copies[2][4]; // so that only these copies are in memory
        EACH_ROW copies[0][r] = sum[r];
        EACH_ROW copies[1][r] = less[r];
        add_special_k4(d, d_x, copies[0], copies[1], f);
        return;
    }
    const v128_t bias = kept(112 << 23), least = kept(0x38800000), zeros = kept(0);
    EACH_ROW {
        v128_t y = times(f16_plain(d + 8 * r, bias, least, zeros), sum[r]);
        v128_t y_min = times(f16_plain(d + 32 + 8 * r, bias, least, zeros), less[r]);
        add_block(f + 4 * r, d_x, wasm_f32x4_sub(y, y_min));
    }
}

// Adds the products of 8 groups of 32 columns, with n sums per group // [8 n][4 rows]; scales and minima as in unpack.c. They are
// stored after the weights, so they are read after them. d: f16 of 16 rows, then those of the minima.
SIMD_INLINE void add_k4(const bool fours, const kin_panel_scales_k4 *p, const uint8_t *d, const v128_t (*products)[4],
                        const int n, const kin_act *a, masks m, float *f) {
    v128_t sum[4], less[4];
    // Sums of 32 columns' activations: those of columns 32 j and of columns 128 + 32 j in the two halves of 32 bits // [j]
    v128_t x_0 = wasm_i32x4_extadd_pairwise_i16x8(load(a->sum)), x_1 = wasm_i32x4_extadd_pairwise_i16x8(load(a->sum + 8));
    int16_t x[8] __attribute__((aligned(16)));
    wasm_v128_store(x, (x_0 & kept(0xffff)) | wasm_i32x4_shl(x_1, 16));
    zero(sum);
    zero(less);
    LOOP for (int j = 0; j < 4; j++) {
        v128_t high = load(p->high[j]), low = load(p->low[j]), low_2 = load(p->low[4 + j]);
        add_scaled(fours, sum, products + n * j, n, low_bits(m, low) | (wasm_i16x8_shl(high, 4) & m.top));
        add_scaled(fours, sum, products + n * (4 + j), n, low_bits(m, low_2) | (wasm_i16x8_shl(high, 2) & m.top));
        v128_t min = high_bits(m, low) | (high & m.top), min_2 = high_bits(m, low_2) | (wasm_u16x8_shr(high, 2) & m.top);
        add_mins(less, min, min_2, splat(x + 2 * j));
    }
    add_block_k4(d, a->d[0], sum, less, f);
}

// Multiplies 64 columns: the 32 columns in the low nibbles, and the 32 in the high ones // [2][4 rows]
SIMD_INLINE void columns_q4_k(const bool fours, const uint8_t *q, const int8_t *x, masks m, v128_t (*to)[4]) {
    v128_t low[4], high[4];
    zero(low);
    zero(high);
    LOOP for (const int8_t *end = x + 32; x != end; q += 64, x += 4) {
        q = moving(q), x = moving(x);
        v128_t x_low = splat(x), x_high = splat(x + 32);
        EACH_ROW {
            v128_t w = load(q + 16 * r);
            low[r] = add_products(fours, low[r], x_low, low_bits(m, w));
            high[r] = add_products(fours, high[r], x_high, high_bits(m, w));
        }
    }
    EACH_ROW to[0][r] = low[r];
    EACH_ROW to[1][r] = high[r];
}

SIMD_INLINE void q4_k(const bool fours, const uint8_t *panel, int columns, const kin_act *a, float *f) {
    (void)columns;
    const kin_panel_q4_k *p = (const kin_panel_q4_k *)panel;
    const masks m = kept_masks();
    v128_t products[8][4];
    LOOP for (int i = 0; i < 4; i++) columns_q4_k(fours, p->q[8 * i], a->q + 64 * i, m, products + 2 * i);
    add_k4(fours, &p->scales, p->d, products, 1, a, m, f);
}

// Moves bit n of each byte to bit 4.
SIMD_INLINE v128_t fifth_bit(v128_t w, const int n) {
    const v128_t sixteen = wasm_u8x16_const_splat(16);
    return (n < 4 ? wasm_i16x8_shl(w, (uint32_t)(4 - n)) : wasm_u16x8_shr(w, (uint32_t)(n - 4))) & sixteen;
}

// Multiplies columns 64 i to 64 i + 63: the first 16 of the 32 columns in the low nibbles, the other 16, then the same for the
// high nibbles. A 16-bit sum can hold four groups of 4 columns. // [4][4 rows]
SIMD_INLINE void columns_q5_k(const bool fours, const kin_panel_q5_k *p, const int i, const int8_t *x, masks m, v128_t (*to)[4]) {
    const uint8_t *q = p->low[8 * i], *above = p->high[0];
    LOOP for (int half = 0; half < 2; half++) {
        v128_t low[4], high[4];
        zero(low);
        zero(high);
        LOOP for (const int8_t *end = x + 16; x != end; q += 64, above += 64, x += 4) {
            q = moving(q), above = moving(above), x = moving(x);
            v128_t x_low = splat(x), x_high = splat(x + 32);
            EACH_ROW {
                v128_t w = load(q + 16 * r), b = load(above + 16 * r);
                low[r] = add_products(fours, low[r], x_low, low_bits(m, w) | fifth_bit(b, 2 * i));
                high[r] = add_products(fours, high[r], x_high, high_bits(m, w) | fifth_bit(b, 2 * i + 1));
            }
        }
        EACH_ROW to[half][r] = low[r];
        EACH_ROW to[2 + half][r] = high[r];
    }
}

SIMD_INLINE void q5_k(const bool fours, const uint8_t *panel, int columns, const kin_act *a, float *f) {
    (void)columns;
    const kin_panel_q5_k *p = (const kin_panel_q5_k *)panel;
    const masks m = kept_masks();
    v128_t products[16][4];
    columns_q5_k(fours, p, 0, a->q, m, products);
    columns_q5_k(fours, p, 1, a->q + 64, m, products + 4);
    columns_q5_k(fours, p, 2, a->q + 128, m, products + 8);
    columns_q5_k(fours, p, 3, a->q + 192, m, products + 12);
    add_k4(fours, &p->scales, p->d, products, 2, a, m, f);
}

// ---- Q6_K

// Computes for each 16 columns of activations the sums of bytes 0, 1 and of bytes 2, 3 of each group of four, times -32 //
// [16][2]
SIMD_INLINE void zeros_q6_k(const int8_t *x, int16_t (*zeros)[2]) {
    LOOP for (int i = 0; i < 4; i++, x += 64) {
        v128_t a = wasm_i16x8_extadd_pairwise_i8x16(load(x)), b = wasm_i16x8_extadd_pairwise_i8x16(load(x + 16));
        v128_t c = wasm_i16x8_extadd_pairwise_i8x16(load(x + 32)), d = wasm_i16x8_extadd_pairwise_i8x16(load(x + 48));
        v128_t ab = wasm_i16x8_add(wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), wasm_i32x4_shuffle(a, b, 2, 6, 3, 7));
        v128_t cd = wasm_i16x8_add(wasm_i32x4_shuffle(c, d, 0, 4, 1, 5), wasm_i32x4_shuffle(c, d, 2, 6, 3, 7));
        v128_t sums = wasm_i16x8_add(wasm_i64x2_shuffle(ab, cd, 0, 2), wasm_i64x2_shuffle(ab, cd, 1, 3));
        wasm_v128_store(zeros[4 * i], wasm_i16x8_shl(wasm_i16x8_neg(sums), 5));
    }
}

// Multiplies 16 columns of 4 rows, which share one scale, and adds to `begin`. With the weights' zero subtracted (weights -32 to
// 31, activations -127 to 127) all four pair sums fit in 16 bits; intermediate wrap-around does not matter.
SIMD_INLINE v128_t columns_q6_k(const bool fours, v128_t begin, const uint8_t *q, const v128_t x[4], v128_t six) {
    v128_t u = load(q), v = load(q + 64), w = load(q + 128);
    v128_t t = add_products(fours, begin, x[0], u & six);
    t = add_products(fours, t, x[1], v & six);
    t = add_products(fours, t, x[2], w & six);
    v128_t last = wasm_u16x8_shr(u, 2) ^ wasm_u16x8_shr(v, 4) ^ wasm_u16x8_shr(w, 6);
    return add_products(fours, t, x[3], last & six);
}

SIMD_INLINE void q6_k(const bool fours, const uint8_t *panel, int columns, const kin_act *a, float *f) {
    (void)columns;
    const kin_panel_q6_k *p = (const kin_panel_q6_k *)panel;
    v128_t sum[4], six = kept(0x3f3f3f3f);
    int16_t zeros[16][2] __attribute__((aligned(16)));
    if (!fours) zeros_q6_k(a->q, zeros);
    zero(sum);
    const uint8_t *q = p->q[0][0];
    const int8_t *x = a->q, *scales = p->scale[0];
    const int16_t *z = fours ? a->sum : zeros[0];
    LOOP for (const int8_t *end = x + 256; x != end; q += 192, x += 16, scales += 16, z += fours ? 1 : 2) {
        q = moving(q), x = moving(x), scales = moving(scales), z = moving(z);
        v128_t scale[4], begin = fours ? wasm_i32x4_splat(-32 * *z) : splat(z);
        const v128_t four[4] = {splat(x), splat(x + 4), splat(x + 8), splat(x + 12)};
        spread(fours, true, scale, load(scales));
        EACH_ROW sum[r] = add_times(fours, sum[r], columns_q6_k(fours, begin, q + 16 * r, four, six), scale[r]);
    }
    const halves k = kept_halves();
    EACH_ROW add_block(f + 4 * r, a->d[0], times(f16(k, p->d + 8 * r), sum[r]));
}

// ---- Q8_0, Q4_0

// y + sums of 32 columns, times the scales of both. Scales are the greatest of 32 weights divided by 127 or by 8, so they are
// normal numbers.
SIMD_INLINE vf add_group(vf y, const kin_panel_scale_f16 *scale, float d_x, const v128_t sum[4]) {
    vf d = vf_load_f16_normal((const uint16_t *)scale->d);
    return vf_add(y, vf_mul(vf_mul(d, vf_set1(d_x)), vf_from_vi((vi){sum[0], sum[1], sum[2], sum[3]})));
}

// Computes the sums first, so that weights and scales are read in storage order.
SIMD_INLINE void q8_0(const bool fours, const uint8_t *panel, int columns, const kin_act *a, float *f) {
    const kin_panel_scale_f16 *scale = (const kin_panel_scale_f16 *)((const kin_panel_q8_0 *)panel + columns / 32);
    const v128_t zeros = kept(0), ones = kept(0x10001);
    v128_t sums[8][4];
    const uint8_t *q = panel;
    const int8_t *x = a->q;
    LOOP for (int g = 0; g < columns / 32; g++) {
        v128_t sum[4], less[4]; // less: of negative activations, if they are handled separately
        zero(sum);
        zero(less);
        LOOP for (const int8_t *end = x + 32; x != end; q += 64, x += 4) {
            q = moving(q), x = moving(x);
            v128_t positive = wasm_i8x16_max(splat(x), zeros), negative = wasm_i8x16_sub(positive, splat(x));
            EACH_ROW {
                v128_t w = load(q + 16 * r);
                if (fours) {
                    sum[r] = add_fours(sum[r], w, positive);
                    less[r] = add_fours(less[r], w, negative);
                } else {
                    sum[r] = simd_add_dot(sum[r], wasm_i16x8_sub(pairs(w, positive), pairs(w, negative)), ones);
                }
            }
        }
        EACH_ROW sums[g][r] = fours ? wasm_i32x4_sub(sum[r], less[r]) : sum[r];
    }
    vf y = vf_load(f);
    LOOP for (int g = 0; g < columns / 32; g++) y = add_group(y, scale + g, a->d[g], sums[g]);
    vf_store(f, y);
}

SIMD_INLINE void q4_0(const bool fours, const uint8_t *panel, int columns, const kin_act *a, float *f) {
    const kin_panel_scale_f16 *scale = (const kin_panel_scale_f16 *)((const kin_panel_q4_0 *)panel + columns / 32);
    const masks m = kept_masks();
    const v128_t ones = kept(0x10001);
    v128_t sums[8][4];
    const uint8_t *q = panel;
    LOOP for (int g = 0; g < columns / 32; g++) {
        v128_t sum[4], zero_weight = wasm_i32x4_splat(-8 * (a->sum[2 * g] + a->sum[2 * g + 1]));
        zero(sum);
        if (fours) EACH_ROW sum[r] = zero_weight;
        const int8_t *x = a->q + 32 * g;
        LOOP for (const int8_t *end = x + 16; x != end; q += 64, x += 4) {
            q = moving(q), x = moving(x);
            v128_t x_low = splat(x), x_high = splat(x + 16);
            EACH_ROW {
                v128_t w = load(q + 16 * r);
                sum[r] = add_products(fours, sum[r], x_low, low_bits(m, w));
                sum[r] = add_products(fours, sum[r], x_high, high_bits(m, w));
            }
        }
        EACH_ROW sums[g][r] = fours ? sum[r] : simd_add_dot(zero_weight, sum[r], ones);
    }
    vf y = vf_load(f);
    LOOP for (int g = 0; g < columns / 32; g++) y = add_group(y, scale + g, a->d[g], sums[g]);
    vf_store(f, y);
}

// clang-format off
#define FUSED(name, type, fours) \
    static void name(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16]) { \
        type(fours, panel, columns, a, f[0]); \
    }
#define FUSED_EACH(type) FUSED(pairs_##type, type, false) FUSED(fours_##type, type, true)
// clang-format on
FUSED_EACH(q4_k)
FUSED_EACH(q5_k)
FUSED_EACH(q6_k)
FUSED_EACH(q8_0)
FUSED_EACH(q4_0)

kin_fused SIMD_FN(kin_fused_of)(int type, int64_t n, int variant) {
    if (n > 1) return NULL;
    bool fours = variant & KIN_VARIANT_FOURS;
    switch (type) {
    case KIN_TYPE_Q4_K: return fours ? fours_q4_k : pairs_q4_k;
    case KIN_TYPE_Q5_K: return fours ? fours_q5_k : pairs_q5_k;
    case KIN_TYPE_Q6_K: return fours ? fours_q6_k : pairs_q6_k;
    case KIN_TYPE_Q8_0: return fours ? fours_q8_0 : pairs_q8_0;
    case KIN_TYPE_Q4_0: return fours ? fours_q4_0 : pairs_q4_0;
    default: return NULL;
    }
}

#elif defined(SIMD_FUSED_16)

// For back-ends where a vector is one register or two: multiplies 16 rows of the matrix at a time with up to SIMD_FUSED_16
// activation rows. Storing a block and loading it again takes as long as the products of two rows (cycles of a Zen 4 for a block
// of Q4_K and 1, 2, 4 rows: with AVX-512 145, 235, 420 instead of 290, 385, 530; with AVX2 193, 285, 533 instead of 285, 379,
// 554). matmul.c prefetches the next blocks.

#include "kernels/simd/scales.h"

enum { FUSED_ROWS = 4 };

SIMD_INLINE vf f16(const uint8_t *p) { return vf_load_f16((const uint16_t *)p); }

// The sum of 32 columns' activations.
SIMD_INLINE int32_t sum_of(const kin_act *a, int g) { return a->sum[2 * g] + a->sum[2 * g + 1]; }

// ---- Q4_K

SIMD_INLINE void q4_k(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16], const int n) {
    (void)columns;
    const kin_panel_q4_k *p = (const kin_panel_q4_k *)panel;
    int8_t scale[8][16], min[8][16];
    vi sum[FUSED_ROWS], less[FUSED_ROWS];
    for (int r = 0; r < n; r++) sum[r] = vi_zero();
    for (int r = 0; r < n; r++) less[r] = vi_zero();
    unpack_scales_k4(&p->scales, scale, min);
    for (int i = 0; i < 4; i++) {
        vs low[FUSED_ROWS], high[FUSED_ROWS];
        for (int r = 0; r < n; r++) low[r] = vs_zero();
        for (int r = 0; r < n; r++) high[r] = vs_zero();
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            vb w = vb_load(p->q[8 * i + j]);
            for (int r = 0; r < n; r++) low[r] = vs_dot(low[r], low_bits(w), a[r].q + 64 * i + 4 * j);
            for (int r = 0; r < n; r++) high[r] = vs_dot(high[r], high_bits(w), a[r].q + 64 * i + 32 + 4 * j);
        }
        for (int r = 0; r < n; r++) {
            sum[r] = vi_add_scaled(sum[r], low[r], vscale_load(scale[2 * i]));
            sum[r] = vi_add_scaled(sum[r], high[r], vscale_load(scale[2 * i + 1]));
        }
    }
    for (int g = 0; g < 8; g++)
        for (int r = 0; r < n; r++) less[r] = vi_mul_add(less[r], vi_load_i8(min[g]), vi_set1(sum_of(a + r, g)));
    for (int r = 0; r < n; r++) {
        vf t = vf_sub(vf_mul(f16(p->d), vf_from_vi(sum[r])), vf_mul(f16(p->d_min), vf_from_vi(less[r])));
        vf_store(f[r], vf_add(vf_load(f[r]), vf_mul(vf_set1(a[r].d[0]), t)));
    }
}

// ---- Q6_K

// Groups of 4 columns whose products a vs can sum: 2 * 127 * 63 each.
enum { STEP_Q6_K = SIMD_SUB_MOST == 0 || SIMD_SUB_MOST / (2 * 127 * 63) >= 4 ? 4 : 2 };

SIMD_INLINE void q6_k(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16], const int n) {
    (void)columns;
    const kin_panel_q6_k *p = (const kin_panel_q6_k *)panel;
    vi sum[FUSED_ROWS], less[FUSED_ROWS];
    for (int r = 0; r < n; r++) sum[r] = vi_zero();
    for (int r = 0; r < n; r++) less[r] = vi_zero();
    for (int g = 0; g < 16; g++) {
        const vb six = vb_set1(63), u = vb_load(p->q[g][0]), v = vb_load(p->q[g][1]), w = vb_load(p->q[g][2]);
        const vb last = vb_xor(vb_xor(vb_shr(u, 2), vb_shr(v, 4)), vb_shr(w, 6));
        const vb q[4] = {vb_and(u, six), vb_and(v, six), vb_and(w, six), vb_and(last, six)};
        for (int k0 = 0; k0 < 4; k0 += STEP_Q6_K) {
            vs part[FUSED_ROWS];
            for (int r = 0; r < n; r++) part[r] = vs_zero();
#pragma GCC unroll 4
            for (int k = k0; k < k0 + STEP_Q6_K; k++)
                for (int r = 0; r < n; r++) part[r] = vs_dot(part[r], q[k], a[r].q + 16 * g + 4 * k);
            for (int r = 0; r < n; r++) sum[r] = vi_add_scaled(sum[r], part[r], vscale_load(p->scale[g]));
        }
    }
    for (int j = 0; j < 8; j++) {
        int16_t pairs[16][2] __attribute__((aligned(64)));
        vi_store((int32_t *)pairs, vi_pair(vi_load_i8(p->scale[2 * j]), vi_load_i8(p->scale[2 * j + 1])));
        for (int r = 0; r < n; r++) less[r] = vi_add_pairs(less[r], pairs[0], &a[r].sum[2 * j]);
    }
    for (int r = 0; r < n; r++) {
        vf t = vf_mul(f16(p->d), vf_from_vi(vi_sub(sum[r], vi_shl(less[r], 5))));
        vf_store(f[r], vf_add(vf_load(f[r]), vf_mul(vf_set1(a[r].d[0]), t)));
    }
}

// ---- Q8_0, Q4_0

// y + the sums of 32 columns, times the scales of both
SIMD_INLINE vf add_group(vf y, const kin_panel_scale_f16 *scale, const kin_act *a, int g, vi sum) {
    return vf_add(y, vf_mul(vf_times(f16(scale[g].d), &a->d[g]), vf_from_vi(sum)));
}

SIMD_INLINE void q8_0(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16], const int n) {
    const kin_panel_q8_0 *p = (const kin_panel_q8_0 *)panel;
    const kin_panel_scale_f16 *scale = (const kin_panel_scale_f16 *)(p + columns / 32);
    vf y[FUSED_ROWS];
    for (int r = 0; r < n; r++) y[r] = vf_load(f[r]);
    for (int g = 0; g < columns / 32; g++) {
        vi sum[FUSED_ROWS];
        for (int r = 0; r < n; r++) sum[r] = vi_set1(-SIMD_S8_BIAS * sum_of(a + r, g));
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            vb w = vb_s8(vb_load(p[g].q[j]));
            for (int r = 0; r < n; r++) sum[r] = vi_dot_s8(sum[r], w, a[r].q + 32 * g + 4 * j);
        }
        for (int r = 0; r < n; r++) y[r] = add_group(y[r], scale, a + r, g, sum[r]);
    }
    for (int r = 0; r < n; r++) vf_store(f[r], y[r]);
}

SIMD_INLINE void q4_0(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16], const int n) {
    const kin_panel_q4_0 *p = (const kin_panel_q4_0 *)panel;
    const kin_panel_scale_f16 *scale = (const kin_panel_scale_f16 *)(p + columns / 32);
    vf y[FUSED_ROWS];
    for (int r = 0; r < n; r++) y[r] = vf_load(f[r]);
    for (int g = 0; g < columns / 32; g++) {
        vs low[FUSED_ROWS], high[FUSED_ROWS];
        for (int r = 0; r < n; r++) low[r] = vs_zero();
        for (int r = 0; r < n; r++) high[r] = vs_zero();
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            vb w = vb_load(p[g].q[j]);
            for (int r = 0; r < n; r++) low[r] = vs_dot(low[r], low_bits(w), a[r].q + 32 * g + 4 * j);
            for (int r = 0; r < n; r++) high[r] = vs_dot(high[r], high_bits(w), a[r].q + 32 * g + 16 + 4 * j);
        }
        for (int r = 0; r < n; r++) {
            vi sum = vi_add(vi_from_vs(low[r]), vi_from_vs(high[r]));
            y[r] = add_group(y[r], scale, a + r, g, vi_add(vi_set1(-8 * sum_of(a + r, g)), sum));
        }
    }
    for (int r = 0; r < n; r++) vf_store(f[r], y[r]);
}

// clang-format off
#define FUSED(type, n) \
    static void fused_##type##_##n(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16]) { \
        type(panel, columns, a, f, n); \
    }
#define FUSED_EACH(type) \
    FUSED(type, 1) FUSED(type, 2) FUSED(type, 3) FUSED(type, 4) \
    static const kin_fused fused_##type[FUSED_ROWS] = {fused_##type##_1, fused_##type##_2, fused_##type##_3, fused_##type##_4};
// clang-format on
FUSED_EACH(q4_k)
FUSED_EACH(q6_k)
FUSED_EACH(q8_0)
FUSED_EACH(q4_0)

kin_fused SIMD_FN(kin_fused_of)(int type, int64_t n, int variant) {
    (void)variant;
    if (n > SIMD_FUSED_16) return NULL;
    switch (type) {
    case KIN_TYPE_Q4_K: return fused_q4_k[n - 1];
    case KIN_TYPE_Q6_K: return fused_q6_k[n - 1];
    case KIN_TYPE_Q8_0: return fused_q8_0[n - 1];
    case KIN_TYPE_Q4_0: return fused_q4_0[n - 1];
    default: return n == 1 ? SIMD_FN(kin_fused_one_of)(type) : NULL;
    }
}

#else

kin_fused SIMD_FN(kin_fused_of)(int type, int64_t n, int variant) {
    (void)type;
    (void)n;
    (void)variant;
    return NULL;
}

#endif
