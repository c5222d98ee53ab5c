// NEON of AArch64 with the dot products of ARMv8.2: a vector of 16 lanes is four registers. See simd.h for the functions.
#pragma once

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define SIMD_NAME "neon"
#define SIMD_ROWS 4     // activation rows that a product keeps in registers
#define SIMD_SUB_MOST 0 // sums of bytes are 32 bits wide
#define SIMD_S8_BIAS 0
#define SIMD_S16_BIAS 0
#define SIMD_S16_ROWS 2    // queries that an attention product with 16-bit integers keeps in registers,
#define SIMD_S16_COLUMNS 1 // for each of this many vectors
#define SIMD_X_BYTES 128
#define SIMD_X_STEP 32

typedef struct vf {
    float32x4_t a, b, c, d;
} vf;
typedef struct vi {
    int32x4_t a, b, c, d;
} vi;
typedef struct vb {
    uint8x16_t a, b, c, d;
} vb;
typedef vi vs, vscale;

#define SIMD_EACH(type, f)                                                                                                       \
    (type) { f(x.a, y.a), f(x.b, y.b), f(x.c, y.c), f(x.d, y.d) }
#define SIMD_EACH_OF(type, f)                                                                                                    \
    (type) { f(x.a), f(x.b), f(x.c), f(x.d) }

static inline vf vf_set1(float x) { return (vf){vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x)}; }
static inline vf vf_zero(void) { return vf_set1(0); }
static inline vf vf_load(const float *p) { return (vf){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
static inline void vf_store(float *p, vf x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}
static inline vf vf_add(vf x, vf y) { return SIMD_EACH(vf, vaddq_f32); }
static inline vf vf_sub(vf x, vf y) { return SIMD_EACH(vf, vsubq_f32); }
static inline vf vf_mul(vf x, vf y) { return SIMD_EACH(vf, vmulq_f32); }
static inline vf vf_div(vf x, vf y) { return SIMD_EACH(vf, vdivq_f32); }
// Not vmaxq_f32, which orders zeros and propagates NaN.
static inline float32x4_t simd_max(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
static inline vf vf_max(vf x, vf y) { return SIMD_EACH(vf, simd_max); }
static inline vf vf_abs(vf x) { return SIMD_EACH_OF(vf, vabsq_f32); }
static inline float32x4_t simd_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static inline vf vf_load_f16(const uint16_t *p) { return (vf){simd_f16(p), simd_f16(p + 4), simd_f16(p + 8), simd_f16(p + 12)}; }
static inline void simd_store_f16(uint16_t *p, float32x4_t x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
static inline void vf_store_f16(uint16_t *p, vf x) {
    simd_store_f16(p, x.a);
    simd_store_f16(p + 4, x.b);
    simd_store_f16(p + 8, x.c);
    simd_store_f16(p + 12, x.d);
}
static inline float32x4_t simd_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
static inline vf vf_load_bf16(const uint16_t *p) {
    return (vf){simd_bf16(p), simd_bf16(p + 4), simd_bf16(p + 8), simd_bf16(p + 12)};
}

static inline vi vi_set1(int32_t x) { return (vi){vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x)}; }
static inline vi vi_zero(void) { return vi_set1(0); }
static inline vi vi_add(vi x, vi y) { return SIMD_EACH(vi, vaddq_s32); }
static inline vi vi_sub(vi x, vi y) { return SIMD_EACH(vi, vsubq_s32); }
static inline vi vi_shl(vi x, int n) {
    int32x4_t by = vdupq_n_s32(n);
    return (vi){vshlq_s32(x.a, by), vshlq_s32(x.b, by), vshlq_s32(x.c, by), vshlq_s32(x.d, by)};
}
static inline vi vi_pair(vi x, vi y) {
    return (vi){vsliq_n_s32(x.a, y.a, 16), vsliq_n_s32(x.b, y.b, 16), vsliq_n_s32(x.c, y.c, 16), vsliq_n_s32(x.d, y.d, 16)};
}
static inline vi vi_load(const int32_t *p) { return (vi){vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)}; }
static inline void vi_store(int32_t *p, vi x) {
    vst1q_s32(p, x.a);
    vst1q_s32(p + 4, x.b);
    vst1q_s32(p + 8, x.c);
    vst1q_s32(p + 12, x.d);
}
static inline vi vi_load_i8(const int8_t *p) {
    int8x16_t x = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_s8(vget_high_s8(x));
    return (vi){vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)),
                vmovl_s16(vget_high_s16(high))};
}
static inline void vi_store_i8(int8_t *p, vi x) {
    int16x8_t low = vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b)), high = vcombine_s16(vmovn_s32(x.c), vmovn_s32(x.d));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}
static inline vf vf_from_vi(vi x) { return SIMD_EACH_OF(vf, vcvtq_f32_s32); }
static inline vf vf_bits(vi x) { return SIMD_EACH_OF(vf, vreinterpretq_f32_s32); }
static inline vi vi_bits(vf x) { return SIMD_EACH_OF(vi, vreinterpretq_s32_f32); }

static inline vb vb_load(const void *p) {
    const uint8_t *q = p;
    return (vb){vld1q_u8(q), vld1q_u8(q + 16), vld1q_u8(q + 32), vld1q_u8(q + 48)};
}
static inline void vb_store(void *p, vb x) {
    uint8_t *q = p;
    vst1q_u8(q, x.a);
    vst1q_u8(q + 16, x.b);
    vst1q_u8(q + 32, x.c);
    vst1q_u8(q + 48, x.d);
}
static inline void vb_store_s8(void *p, vb x) { vb_store(p, x); }
static inline vb vb_set1(uint8_t x) { return (vb){vdupq_n_u8(x), vdupq_n_u8(x), vdupq_n_u8(x), vdupq_n_u8(x)}; }
static inline vb vb_and(vb x, vb y) { return SIMD_EACH(vb, vandq_u8); }
static inline vb vb_or(vb x, vb y) { return SIMD_EACH(vb, vorrq_u8); }
static inline vb vb_xor(vb x, vb y) { return SIMD_EACH(vb, veorq_u8); }
static inline vb vb_sub(vb x, vb y) { return SIMD_EACH(vb, vsubq_u8); }
static inline vb vb_shl(vb x, int n) {
    int8x16_t by = vdupq_n_s8((int8_t)n);
    return (vb){vshlq_u8(x.a, by), vshlq_u8(x.b, by), vshlq_u8(x.c, by), vshlq_u8(x.d, by)};
}
static inline uint8x16_t simd_shr(uint8x16_t x, int n) {
    return vreinterpretq_u8_u16(vshlq_u16(vreinterpretq_u16_u8(x), vdupq_n_s16((int16_t)-n)));
}
static inline vb vb_shr(vb x, int n) { return (vb){simd_shr(x.a, n), simd_shr(x.b, n), simd_shr(x.c, n), simd_shr(x.d, n)}; }
static inline vb vb_lookup(const int8_t table[16], vb i) {
    uint8x16_t t = vreinterpretq_u8_s8(vld1q_s8(table));
    return (vb){vqtbl1q_u8(t, i.a), vqtbl1q_u8(t, i.b), vqtbl1q_u8(t, i.c), vqtbl1q_u8(t, i.d)};
}

static inline vi vi_mul_add(vi sum, vi x, vi y) {
    return (vi){vmlaq_s32(sum.a, x.a, y.a), vmlaq_s32(sum.b, x.b, y.b), vmlaq_s32(sum.c, x.c, y.c), vmlaq_s32(sum.d, x.d, y.d)};
}
static inline int32x4_t simd_dot(int32x4_t sum, uint8x16_t w, int8x16_t x) { return vdotq_s32(sum, vreinterpretq_s8_u8(w), x); }
static inline vi vi_dot_s8(vi sum, vb w, const int8_t *p) {
    int32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(bytes));
    return (vi){simd_dot(sum.a, w.a, x), simd_dot(sum.b, w.b, x), simd_dot(sum.c, w.c, x), simd_dot(sum.d, w.d, x)};
}
static inline vs vs_zero(void) { return vi_zero(); }
static inline vs vs_dot(vs sum, vb w, const int8_t *p) { return vi_dot_s8(sum, w, p); } // w < 128: may be used as signed
static inline vscale vscale_load(const int8_t *p) { return vi_load_i8(p); }
static inline vi vi_add_scaled(vi sum, vs s, vscale scale) { return vi_mul_add(sum, s, scale); }
static inline vi vi_from_vs(vs s) { return s; }
static inline int32x4_t simd_add_pairs(int32x4_t sum, int16x4_t even, int16x4_t odd, const int16_t *x) {
    return vmlal_n_s16(vmlal_n_s16(sum, even, x[0]), odd, x[1]);
}
static inline vi vi_add_pairs(vi sum, const int16_t *pairs, const int16_t *x) {
    int16x8x2_t low = vld2q_s16(pairs), high = vld2q_s16(pairs + 16);
    return (vi){simd_add_pairs(sum.a, vget_low_s16(low.val[0]), vget_low_s16(low.val[1]), x),
                simd_add_pairs(sum.b, vget_high_s16(low.val[0]), vget_high_s16(low.val[1]), x),
                simd_add_pairs(sum.c, vget_low_s16(high.val[0]), vget_low_s16(high.val[1]), x),
                simd_add_pairs(sum.d, vget_high_s16(high.val[0]), vget_high_s16(high.val[1]), x)};
}

// A 16-bit integer is two signed digits of 8 bits: for 16 integers the high ones, then the low ones.
typedef vb vw;
typedef struct vd {
    vi high, low;
} vd;
static inline void vx_store(int8_t *x, const vi a[4]) {
    for (int i = 0; i < 4; i++, x += 32) {
        int16x8_t first = vcombine_s16(vmovn_s32(a[i].a), vmovn_s32(a[i].b)),
                  second = vcombine_s16(vmovn_s32(a[i].c), vmovn_s32(a[i].d));
        vst1q_s8(x, vcombine_s8(vrshrn_n_s16(first, 8), vrshrn_n_s16(second, 8)));
        vst1q_s8(x + 16, vcombine_s8(vmovn_s16(first), vmovn_s16(second)));
    }
}
static inline vw vw_load(const int8_t *p) { return vb_load(p); }
static inline vd vd_set1(int32_t x) { return (vd){vi_zero(), vi_set1(x)}; }
static inline vd vd_dot(vd sum, vw w, const int8_t *x, int g) {
    return (vd){vi_dot_s8(sum.high, w, x + 4 * g), vi_dot_s8(sum.low, w, x + 4 * g + 16)};
}
static inline vi vi_from_vd(vd s) { return vi_add(vi_shl(s.high, 8), s.low); }

static inline float vf_sum(vf x) {
    float32x4_t y = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    float32x2_t z = vadd_f32(vget_low_f32(y), vget_high_f32(y));
    return vget_lane_f32(z, 0) + vget_lane_f32(z, 1);
}
static inline float vf_greatest(vf x) { return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.a, x.b), vmaxq_f32(x.c, x.d))); }
