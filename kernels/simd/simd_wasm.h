// WebAssembly's 128-bit vectors, with relaxed SIMD if the compiler enables it: a vector of 16 lanes is four registers. See simd.h
// for the functions.
//
// The only relaxed instructions used are i16x8.relaxed_dot_i8x16_i7x16_s and, in fused.c, i32x4.relaxed_dot_i8x16_i7x16_add_s.
// Their second operand is always 0 to 127, where all implementations agree. (V8's baseline compiler miscomputes the second one up
// to version 11.3. Browsers have had these instructions since 11.4.)
#pragma once

#include <stdint.h>
#include <string.h>
#include <wasm_simd128.h>

#define SIMD_ROWS 4 // activation rows that a product keeps in registers
#ifdef __wasm_relaxed_simd__
#define SIMD_NAME "relaxed"
#define SIMD_FUSED          // a single row is multiplied while it is unpacked (fused.c)
#define SIMD_SUB_MOST 32767 // sums of bytes are 16 bits wide
#define SIMD_S8_BIAS 0
#else
#define SIMD_NAME "simd128"
#define SIMD_SUB_MOST 0
#define SIMD_S8_BIAS 128 // signed bytes are stored with 128 added: widening unsigned ones is cheaper
#endif

#define SIMD_S16_BIAS 0
#define SIMD_S16_ROWS 4    // queries that an attention product with 16-bit integers keeps in registers,
#define SIMD_S16_COLUMNS 1 // for each of this many vectors
#define SIMD_HALVES        // an attention product with floats keeps 8 columns of 4 rows in registers: there are 16
#define SIMD_X_BYTES 128
#define SIMD_X_STEP 32

typedef struct vf {
    v128_t a, b, c, d;
} vf;
typedef vf vi, vb, vs, vscale;

// Half a vector: 8 lanes.
typedef struct vh {
    v128_t a, b;
} vh;

#define SIMD_EACH(f)                                                                                                             \
    (vf) { f(x.a, y.a), f(x.b, y.b), f(x.c, y.c), f(x.d, y.d) }
#define SIMD_EACH_OF(f)                                                                                                          \
    (vf) { f(x.a), f(x.b), f(x.c), f(x.d) }

static inline vf simd_load(const void *p) {
    const v128_t *q = p;
    return (vf){wasm_v128_load(q), wasm_v128_load(q + 1), wasm_v128_load(q + 2), wasm_v128_load(q + 3)};
}
static inline void simd_store(void *p, vf x) {
    v128_t *q = p;
    wasm_v128_store(q, x.a);
    wasm_v128_store(q + 1, x.b);
    wasm_v128_store(q + 2, x.c);
    wasm_v128_store(q + 3, x.d);
}
static inline vf simd_set1(v128_t x) { return (vf){x, x, x, x}; }

static inline vf vf_set1(float x) { return simd_set1(wasm_f32x4_splat(x)); }
static inline vf vf_zero(void) { return vf_set1(0); }
static inline vf vf_load(const float *p) { return simd_load(p); }
static inline void vf_store(float *p, vf x) { simd_store(p, x); }
static inline vf vf_add(vf x, vf y) { return SIMD_EACH(wasm_f32x4_add); }
static inline vf vf_sub(vf x, vf y) { return SIMD_EACH(wasm_f32x4_sub); }
static inline vf vf_mul(vf x, vf y) { return SIMD_EACH(wasm_f32x4_mul); }
static inline vf vf_div(vf x, vf y) { return SIMD_EACH(wasm_f32x4_div); }
// Not wasm_f32x4_max, which orders zeros and propagates NaN: pmax(y, x) is x > y ? x : y.
static inline v128_t simd_max(v128_t x, v128_t y) { return wasm_f32x4_pmax(y, x); }
static inline vf vf_max(vf x, vf y) { return SIMD_EACH(simd_max); }
static inline vf vf_abs(vf x) { return SIMD_EACH_OF(wasm_f32x4_abs); }

// Halves to floats: the exponent grows by 112; subnormals are multiples of 2^-24. No intermediate float is subnormal, since that
// would cost processors many cycles.
static inline v128_t simd_f16(const uint16_t *p) {
    v128_t h = wasm_u32x4_load16x4(p), magnitude = h & wasm_i32x4_const_splat(0x7fff);
    v128_t normal = wasm_i32x4_add(wasm_i32x4_shl(magnitude, 13), wasm_i32x4_const_splat(112 << 23));
    normal |= wasm_i32x4_gt(magnitude, wasm_i32x4_const_splat(0x7bff)) & wasm_i32x4_const_splat(255 << 23); // infinities and NaN
    v128_t small = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(magnitude), wasm_f32x4_const_splat(0x1p-24f));
    v128_t x = wasm_v128_bitselect(small, normal, wasm_i32x4_lt(magnitude, wasm_i32x4_const_splat(0x400)));
    return x | wasm_i32x4_shl(wasm_u32x4_shr(h, 15), 31);
}
static inline vf vf_load_f16(const uint16_t *p) { return (vf){simd_f16(p), simd_f16(p + 4), simd_f16(p + 8), simd_f16(p + 12)}; }
// Half the instructions, but a subnormal half is a subnormal float in between, which costs processors many cycles.
#define SIMD_F16_NORMAL
static inline v128_t simd_f16_normal(const uint16_t *p) {
    v128_t h = wasm_i32x4_load16x4(p), top = wasm_i32x4_const_splat(0x7c00);
    v128_t x = wasm_i32x4_shl(h, 13) & wasm_i32x4_const_splat((int32_t)0x8fffe000); // 2^-112 of the result
    v128_t infinite = wasm_i32x4_eq(h & top, top) & wasm_i32x4_const_splat(255 << 23);
    return wasm_f32x4_mul(x, wasm_f32x4_const_splat(0x1p112f)) | infinite;
}
static inline vf vf_load_f16_normal(const uint16_t *p) {
    return (vf){simd_f16_normal(p), simd_f16_normal(p + 4), simd_f16_normal(p + 8), simd_f16_normal(p + 12)};
}

// Rounds to the nearest half, ties to even, like simd_scalar.h. 16 bits in each lane of 32.
static inline v128_t simd_to_f16(v128_t x) {
    const v128_t half = wasm_f32x4_const_splat(0.5f);
    v128_t sign = wasm_u32x4_shr(x, 16) & wasm_i32x4_const_splat(0x8000), m = x & wasm_i32x4_const_splat(0x7fffffff);
    v128_t small = wasm_i32x4_sub(wasm_f32x4_add(m, half), half); // below 2^-14 the sum's last bit is 2^-24
    v128_t odd = wasm_u32x4_shr(m, 13) & wasm_i32x4_const_splat(1);
    v128_t normal = wasm_u32x4_shr(wasm_i32x4_add(wasm_i32x4_add(m, odd), wasm_i32x4_const_splat(0xfff - 0x38000000)), 13);
    v128_t y = wasm_v128_bitselect(small, normal, wasm_i32x4_lt(m, wasm_i32x4_const_splat(0x38800000)));
    v128_t infinite = wasm_i32x4_gt(m, wasm_i32x4_const_splat(0x477fefff)); // rounds to 65536 or more
    v128_t not_a_number = wasm_i32x4_gt(m, wasm_i32x4_const_splat(0x7f800000)) & wasm_i32x4_const_splat(0x200);
    return sign | wasm_v128_bitselect(wasm_i32x4_const_splat(0x7c00) | not_a_number, y, infinite);
}
static inline void vf_store_f16(uint16_t *p, vf x) {
    wasm_v128_store(p, wasm_u16x8_narrow_i32x4(simd_to_f16(x.a), simd_to_f16(x.b)));
    wasm_v128_store(p + 8, wasm_u16x8_narrow_i32x4(simd_to_f16(x.c), simd_to_f16(x.d)));
}
static inline vh vh_zero(void) { return (vh){wasm_f32x4_const_splat(0), wasm_f32x4_const_splat(0)}; }
static inline vh vh_load(const float *p) { return (vh){wasm_v128_load(p), wasm_v128_load(p + 4)}; }
static inline vh vh_load_f16_normal(const uint16_t *p) { return (vh){simd_f16_normal(p), simd_f16_normal(p + 4)}; }
static inline void vh_store(float *p, vh x) {
    wasm_v128_store(p, x.a);
    wasm_v128_store(p + 4, x.b);
}
static inline vh vh_add_times(vh sum, const float *x, vh y) {
    v128_t z = wasm_v128_load32_splat(x);
    return (vh){wasm_f32x4_add(sum.a, wasm_f32x4_mul(z, y.a)), wasm_f32x4_add(sum.b, wasm_f32x4_mul(z, y.b))};
}
static inline v128_t simd_bf16(const uint16_t *p) { return wasm_i32x4_shl(wasm_u32x4_load16x4(p), 16); }
static inline vf vf_load_bf16(const uint16_t *p) {
    return (vf){simd_bf16(p), simd_bf16(p + 4), simd_bf16(p + 8), simd_bf16(p + 12)};
}

static inline vi vi_set1(int32_t x) { return simd_set1(wasm_i32x4_splat(x)); }
static inline vi vi_zero(void) { return vi_set1(0); }
static inline vi vi_add(vi x, vi y) { return SIMD_EACH(wasm_i32x4_add); }
static inline vi vi_sub(vi x, vi y) { return SIMD_EACH(wasm_i32x4_sub); }
static inline vi vi_shl(vi x, int n) {
    uint32_t by = (uint32_t)n;
    return (vi){wasm_i32x4_shl(x.a, by), wasm_i32x4_shl(x.b, by), wasm_i32x4_shl(x.c, by), wasm_i32x4_shl(x.d, by)};
}
static inline v128_t simd_pair(v128_t x, v128_t y) {
    return wasm_v128_bitselect(x, wasm_i32x4_shl(y, 16), wasm_i32x4_const_splat(0xffff));
}
static inline vi vi_pair(vi x, vi y) { return SIMD_EACH(simd_pair); }
static inline vi vi_load(const int32_t *p) { return simd_load(p); }
static inline void vi_store(int32_t *p, vi x) { simd_store(p, x); }
static inline vi vi_load_i8(const int8_t *p) {
    v128_t low = wasm_i16x8_load8x8(p), high = wasm_i16x8_load8x8(p + 8);
    return (vi){wasm_i32x4_extend_low_i16x8(low), wasm_i32x4_extend_high_i16x8(low), wasm_i32x4_extend_low_i16x8(high),
                wasm_i32x4_extend_high_i16x8(high)};
}
static inline void vi_store_i8(int8_t *p, vi x) {
    v128_t low = wasm_i16x8_narrow_i32x4(x.a, x.b), high = wasm_i16x8_narrow_i32x4(x.c, x.d);
    wasm_v128_store(p, wasm_i8x16_narrow_i16x8(low, high));
}
static inline vf vf_from_vi(vi x) { return SIMD_EACH_OF(wasm_f32x4_convert_i32x4); }
static inline vf vf_bits(vi x) { return x; }
static inline vi vi_bits(vf x) { return x; }

static inline vb vb_load(const void *p) { return simd_load(p); }
static inline void vb_store(void *p, vb x) { simd_store(p, x); }
static inline vb vb_set1(uint8_t x) { return simd_set1(wasm_u8x16_splat(x)); }
static inline vb vb_and(vb x, vb y) { return SIMD_EACH(wasm_v128_and); }
static inline vb vb_or(vb x, vb y) { return SIMD_EACH(wasm_v128_or); }
static inline vb vb_xor(vb x, vb y) { return SIMD_EACH(wasm_v128_xor); }
static inline vb vb_sub(vb x, vb y) { return SIMD_EACH(wasm_i8x16_sub); }
static inline vb vb_shr(vb x, int n) {
    uint32_t by = (uint32_t)n;
    return (vb){wasm_u16x8_shr(x.a, by), wasm_u16x8_shr(x.b, by), wasm_u16x8_shr(x.c, by), wasm_u16x8_shr(x.d, by)};
}
static inline vb vb_shl(vb x, int n) {
    uint32_t by = (uint32_t)n;
    return (vb){wasm_i16x8_shl(x.a, by), wasm_i16x8_shl(x.b, by), wasm_i16x8_shl(x.c, by), wasm_i16x8_shl(x.d, by)};
}
static inline vb vb_lookup(const int8_t table[16], vb i) {
    v128_t t = wasm_v128_load(table);
    return (vb){wasm_i8x16_swizzle(t, i.a), wasm_i8x16_swizzle(t, i.b), wasm_i8x16_swizzle(t, i.c), wasm_i8x16_swizzle(t, i.d)};
}

static inline vs vs_zero(void) { return vi_zero(); }
static inline vi vi_mul_add(vi sum, vi x, vi y) { return vi_add(sum, SIMD_EACH(wasm_i32x4_mul)); }
static inline v128_t simd_add_dot(v128_t sum, v128_t x, v128_t y) { return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(x, y)); }
static inline vi vi_add_pairs(vi sum, const int16_t *pairs, const int16_t *x) {
    vi p = simd_load(pairs);
    v128_t y = wasm_v128_load32_splat(x);
    return (vi){simd_add_dot(sum.a, p.a, y), simd_add_dot(sum.b, p.b, y), simd_add_dot(sum.c, p.c, y),
                simd_add_dot(sum.d, p.d, y)};
}

#ifdef __wasm_relaxed_simd__
static inline v128_t simd_dot_u7(v128_t sum, v128_t w, v128_t x) {
    return wasm_i16x8_add(sum, wasm_i16x8_relaxed_dot_i8x16_i7x16(x, w));
}
static inline vs vs_dot(vs sum, vb w, const int8_t *p) {
    v128_t x = wasm_v128_load32_splat(p);
    return (vs){simd_dot_u7(sum.a, w.a, x), simd_dot_u7(sum.b, w.b, x), simd_dot_u7(sum.c, w.c, x), simd_dot_u7(sum.d, w.d, x)};
}
static inline vscale vscale_load(const int8_t *p) { // each scale twice, for the two halves of its lane
    v128_t lo = wasm_i16x8_load8x8(p), hi = wasm_i16x8_load8x8(p + 8);
    return (vscale){wasm_i16x8_shuffle(lo, lo, 0, 8, 1, 9, 2, 10, 3, 11), wasm_i16x8_shuffle(lo, lo, 4, 12, 5, 13, 6, 14, 7, 15),
                    wasm_i16x8_shuffle(hi, hi, 0, 8, 1, 9, 2, 10, 3, 11), wasm_i16x8_shuffle(hi, hi, 4, 12, 5, 13, 6, 14, 7, 15)};
}
static inline vi vi_add_scaled(vi sum, vs x, vscale y) { return vi_add(sum, SIMD_EACH(wasm_i32x4_dot_i16x8)); }
static inline vi vi_from_vs(vs x) { return SIMD_EACH_OF(wasm_i32x4_extadd_pairwise_i16x8); }
// Activations are split into positive ones and negated negative ones: both are 0 to 127, and only one of the two is nonzero. So
// two products add up to at most 2 * 128 * 127 = 32512.
static inline v128_t simd_dot_s8(v128_t sum, v128_t w, v128_t positive, v128_t negative) {
    v128_t pairs =
        wasm_i16x8_sub(wasm_i16x8_relaxed_dot_i8x16_i7x16(w, positive), wasm_i16x8_relaxed_dot_i8x16_i7x16(w, negative));
    return wasm_i32x4_add(sum, wasm_i32x4_extadd_pairwise_i16x8(pairs));
}
static inline vi vi_dot_s8(vi sum, vb w, const int8_t *p) {
    const v128_t zero = wasm_i32x4_const_splat(0);
    v128_t x = wasm_v128_load32_splat(p), positive = wasm_i8x16_max(x, zero);
    v128_t negative = wasm_i8x16_sub(positive, x);
    return (vi){simd_dot_s8(sum.a, w.a, positive, negative), simd_dot_s8(sum.b, w.b, positive, negative),
                simd_dot_s8(sum.c, w.c, positive, negative), simd_dot_s8(sum.d, w.d, positive, negative)};
}
static inline void vb_store_s8(void *p, vb x) { vb_store(p, x); }
#else
// The even bytes and the odd ones, in lanes of 16 bits.
static inline v128_t simd_dot_u8(v128_t sum, v128_t w, v128_t even, v128_t odd) {
    sum = simd_add_dot(sum, w & wasm_i16x8_const_splat(255), even);
    return simd_add_dot(sum, wasm_u16x8_shr(w, 8), odd);
}
static inline vi vi_dot_s8(vi sum, vb w, const int8_t *p) {
    v128_t x = wasm_v128_load32_splat(p), even = wasm_i16x8_shr(wasm_i16x8_shl(x, 8), 8), odd = wasm_i16x8_shr(x, 8);
    return (vi){simd_dot_u8(sum.a, w.a, even, odd), simd_dot_u8(sum.b, w.b, even, odd), simd_dot_u8(sum.c, w.c, even, odd),
                simd_dot_u8(sum.d, w.d, even, odd)};
}
static inline vs vs_dot(vs sum, vb w, const int8_t *p) { return vi_dot_s8(sum, w, p); }
static inline vscale vscale_load(const int8_t *p) { return vi_load_i8(p); }
static inline vi vi_add_scaled(vi sum, vs s, vscale scale) { return vi_mul_add(sum, s, scale); }
static inline vi vi_from_vs(vs s) { return s; }
static inline void vb_store_s8(void *p, vb x) {
    vb y = vb_set1(128);
    vb_store(p, SIMD_EACH(wasm_v128_xor));
}
#endif

// 16-bit words: of four integers the first and the third, then the others, which matches the order of even and odd bytes in a
// lane.
typedef vi vd;
typedef struct vw {
    vi even, odd;
} vw;
static inline void vx_store(int8_t *x, const vi a[4]) {
    for (int i = 0; i < 4; i++, x += 32) {
        v128_t first = wasm_i16x8_narrow_i32x4(a[i].a, a[i].b), second = wasm_i16x8_narrow_i32x4(a[i].c, a[i].d);
        wasm_v128_store(x, wasm_i16x8_shuffle(first, first, 0, 2, 1, 3, 4, 6, 5, 7));
        wasm_v128_store(x + 16, wasm_i16x8_shuffle(second, second, 0, 2, 1, 3, 4, 6, 5, 7));
    }
}
static inline v128_t simd_even(v128_t x) { return wasm_i16x8_shr(wasm_i16x8_shl(x, 8), 8); }
static inline v128_t simd_odd(v128_t x) { return wasm_i16x8_shr(x, 8); }
static inline vw vw_load(const int8_t *p) {
    vi x = simd_load(p);
    return (vw){SIMD_EACH_OF(simd_even), SIMD_EACH_OF(simd_odd)};
}
static inline vd vd_set1(int32_t x) { return vi_set1(x); }
static inline v128_t simd_add_words(v128_t sum, v128_t w_even, v128_t even, v128_t w_odd, v128_t odd) {
    return simd_add_dot(simd_add_dot(sum, w_even, even), w_odd, odd);
}
static inline vd vd_dot(vd sum, vw w, const int8_t *x, int g) {
    v128_t even = wasm_v128_load32_splat(x + 8 * g), odd = wasm_v128_load32_splat(x + 8 * g + 4);
    return (vd){simd_add_words(sum.a, w.even.a, even, w.odd.a, odd), simd_add_words(sum.b, w.even.b, even, w.odd.b, odd),
                simd_add_words(sum.c, w.even.c, even, w.odd.c, odd), simd_add_words(sum.d, w.even.d, even, w.odd.d, odd)};
}
static inline vi vi_from_vd(vd s) { return s; }

static inline float vf_sum(vf x) {
    v128_t y = wasm_f32x4_add(wasm_f32x4_add(x.a, x.c), wasm_f32x4_add(x.b, x.d));
    y = wasm_f32x4_add(y, wasm_i32x4_shuffle(y, y, 2, 3, 0, 1));
    return wasm_f32x4_extract_lane(y, 0) + wasm_f32x4_extract_lane(y, 1);
}
static inline float vf_greatest(vf x) {
    v128_t y = wasm_f32x4_pmax(wasm_f32x4_pmax(x.a, x.b), wasm_f32x4_pmax(x.c, x.d));
    y = wasm_f32x4_pmax(y, wasm_i32x4_shuffle(y, y, 2, 3, 0, 1));
    return wasm_f32x4_extract_lane(wasm_f32x4_pmax(y, wasm_i32x4_shuffle(y, y, 1, 0, 3, 2)), 0);
}
