// AVX2 with F16C, and AVX-VNNI if the compiler enables it: a vector of 16 lanes is two registers. See simd.h for the functions.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define SIMD_ROWS 4 // activation rows that a product keeps in registers
#define SIMD_S16_BIAS 0
#define SIMD_S16_ROWS 4    // queries that an attention product with 16-bit integers keeps in registers,
#define SIMD_S16_COLUMNS 1 // for each of this many vectors
#define SIMD_X_BYTES 128
#define SIMD_X_STEP 32
#define SIMD_REFLECT
#define SIMD_DIGIT
#ifdef __AVXVNNI__
#define SIMD_NAME "avxvnni"
#define SIMD_FUSED_16 2 // number of rows multiplied while weights are unpacked (fused.c), at most 4
#define SIMD_SUB_MOST 0
#define SIMD_S8_BIAS 128
#else
#define SIMD_NAME "avx2"
#define SIMD_FUSED_16 4
#define SIMD_SUB_MOST 32767 // sums of bytes are 16 bits wide
#define SIMD_S8_BIAS 0
#endif

typedef struct vf {
    __m256 a, b;
} vf;
typedef struct vi {
    __m256i a, b;
} vi;
typedef vi vb, vs, vscale;

#define SIMD_EACH(type, f)                                                                                                       \
    (type) { f(x.a, y.a), f(x.b, y.b) }

static inline vf vf_zero(void) { return (vf){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline vf vf_set1(float x) { return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline vf vf_load(const float *p) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void vf_store(float *p, vf x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
static inline vf vf_add(vf x, vf y) { return SIMD_EACH(vf, _mm256_add_ps); }
static inline vf vf_sub(vf x, vf y) { return SIMD_EACH(vf, _mm256_sub_ps); }
static inline vf vf_mul(vf x, vf y) { return SIMD_EACH(vf, _mm256_mul_ps); }
static inline vf vf_div(vf x, vf y) { return SIMD_EACH(vf, _mm256_div_ps); }
static inline vf vf_max(vf x, vf y) { return SIMD_EACH(vf, _mm256_max_ps); }
static inline vf vf_abs(vf x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (vf){_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
static inline vf vf_load_f16(const uint16_t *p) {
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline void vf_store_f16(uint16_t *p, vf x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
static inline __m256 simd_bf16(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
static inline vf vf_load_bf16(const uint16_t *p) { return (vf){simd_bf16(p), simd_bf16(p + 8)}; }

static inline vi vi_zero(void) { return (vi){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
static inline vi vi_set1(int32_t x) { return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
static inline vi vi_add(vi x, vi y) { return SIMD_EACH(vi, _mm256_add_epi32); }
static inline vi vi_sub(vi x, vi y) { return SIMD_EACH(vi, _mm256_sub_epi32); }
static inline vi vi_shl(vi x, int n) { return (vi){_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)}; }
static inline vi vi_pair(vi x, vi y) {
    return (vi){_mm256_blend_epi16(x.a, _mm256_slli_epi32(y.a, 16), 0xaa),
                _mm256_blend_epi16(x.b, _mm256_slli_epi32(y.b, 16), 0xaa)};
}
static inline vi vi_load(const int32_t *p) {
    return (vi){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 8))};
}
static inline void vi_store(int32_t *p, vi x) {
    _mm256_storeu_si256((__m256i *)p, x.a);
    _mm256_storeu_si256((__m256i *)(p + 8), x.b);
}
static inline vi vi_load_i8(const int8_t *p) {
    return (vi){_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))};
}
static inline void vi_store_i8(int8_t *p, vi x) {
    __m256i words = _mm256_packs_epi32(x.a, x.b);  // a0-3 b0-3 a4-7 b4-7
    words = _mm256_permute4x64_epi64(words, 0xd8); // a0-7 b0-7
    __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)p, bytes);
}
static inline vf vf_from_vi(vi x) { return (vf){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
static inline vf vf_bits(vi x) { return (vf){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
static inline vi vi_bits(vf x) { return (vi){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }

static inline vb vb_load(const void *p) { return vi_load(p); }
static inline void vb_store(void *p, vb x) { vi_store(p, x); }
static inline vb vb_set1(uint8_t x) { return (vb){_mm256_set1_epi8((char)x), _mm256_set1_epi8((char)x)}; }
static inline vb vb_and(vb x, vb y) { return SIMD_EACH(vb, _mm256_and_si256); }
static inline vb vb_or(vb x, vb y) { return SIMD_EACH(vb, _mm256_or_si256); }
static inline vb vb_xor(vb x, vb y) { return SIMD_EACH(vb, _mm256_xor_si256); }
static inline vb vb_sub(vb x, vb y) { return SIMD_EACH(vb, _mm256_sub_epi8); }
static inline vb vb_shr(vb x, int n) { return (vb){_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)}; }
static inline vb vb_shl(vb x, int n) { return (vb){_mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n)}; }
static inline vb vb_lookup(const int8_t table[16], vb i) {
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (vb){_mm256_shuffle_epi8(t, i.a), _mm256_shuffle_epi8(t, i.b)};
}
static inline __m256i simd_reflect(__m256i a, __m256i s, __m256i bit, __m256i n) {
    return _mm256_blendv_epi8(a, _mm256_sub_epi8(n, a), _mm256_cmpeq_epi8(_mm256_and_si256(s, bit), bit));
}
static inline vb vb_reflect(vb a, vb s, int i, uint8_t n) {
    vb bit = vb_set1((uint8_t)(1 << i)), most = vb_set1(n);
    return (vb){simd_reflect(a.a, s.a, bit.a, most.a), simd_reflect(a.b, s.b, bit.b, most.b)};
}

static inline __m256i simd_next_digit(__m256i *a) {
    const __m256i one = _mm256_set1_epi8(86), two = _mm256_set1_epi8((char)171), x = *a; // the least bytes with these digits
    const __m256i at_least_1 = _mm256_cmpeq_epi8(_mm256_max_epu8(x, one), x),
                  is_2 = _mm256_cmpeq_epi8(_mm256_max_epu8(x, two), x);
    *a = _mm256_add_epi8(x, _mm256_add_epi8(x, x));
    return _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(at_least_1, is_2));
}
static inline vb vb_next_digit(vb *a) {
    const __m256i first = simd_next_digit(&a->a);
    return (vb){first, simd_next_digit(&a->b)};
}

static inline __m256i simd_bytes4(const void *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_epi32(x);
}
// gcc would first compute the products of a whole group of columns, spill them to memory, and add them up afterwards. An asm
// statement that it cannot analyse stays in its place: 256 instead of 178 GMAC/s for Q4_K (2 cores of Zen 5, gcc 12). clang does
// not need this.
static inline __m256i simd_in_place(__m256i x) {
#ifndef __clang__
    __asm__("" : "+x"(x));
#endif
    return x;
}
static inline vs vs_zero(void) { return vi_zero(); }
static inline vi vi_mul_add(vi sum, vi x, vi y) { return vi_add(sum, SIMD_EACH(vi, _mm256_mullo_epi32)); }
static inline vi vi_add_pairs(vi sum, const int16_t *pairs, const int16_t *x2) {
    vi x = vi_load((const int32_t *)pairs);
    __m256i y = simd_bytes4(x2);
    return (vi){simd_in_place(_mm256_add_epi32(sum.a, _mm256_madd_epi16(x.a, y))),
                simd_in_place(_mm256_add_epi32(sum.b, _mm256_madd_epi16(x.b, y)))};
}

#ifdef __AVXVNNI__
static inline vs vs_dot(vs sum, vb w, const int8_t *p) {
    __m256i x = simd_bytes4(p);
    return (vs){_mm256_dpbusd_avx_epi32(sum.a, w.a, x), _mm256_dpbusd_avx_epi32(sum.b, w.b, x)};
}
static inline vscale vscale_load(const int8_t *p) { return vi_load_i8(p); }
static inline vi vi_add_scaled(vi sum, vs s, vscale scale) { return vi_mul_add(sum, s, scale); }
static inline vi vi_from_vs(vs s) { return s; }
static inline vi vi_dot_s8(vi sum, vb w, const int8_t *p) { return vs_dot(sum, w, p); }
static inline vb vb_s8(vb x) {
    vb y = vb_set1(128);
    return SIMD_EACH(vb, _mm256_xor_si256);
}
static inline void vb_store_s8(void *p, vb x) { vb_store(p, vb_s8(x)); }
#else
static inline vs vs_dot(vs sum, vb w, const int8_t *p) {
    __m256i x = simd_bytes4(p);
    return (vs){simd_in_place(_mm256_add_epi16(sum.a, _mm256_maddubs_epi16(w.a, x))),
                simd_in_place(_mm256_add_epi16(sum.b, _mm256_maddubs_epi16(w.b, x)))};
}
static inline vscale vscale_load(const int8_t *p) { // each scale twice, for the two halves of its lane
    __m128i lo = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)p));
    __m128i hi = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(p + 8)));
    return (vscale){_mm256_set_m128i(_mm_unpackhi_epi16(lo, lo), _mm_unpacklo_epi16(lo, lo)),
                    _mm256_set_m128i(_mm_unpackhi_epi16(hi, hi), _mm_unpacklo_epi16(hi, hi))};
}
static inline vi vi_add_scaled(vi sum, vs x, vscale y) {
    return (vi){simd_in_place(_mm256_add_epi32(sum.a, _mm256_madd_epi16(x.a, y.a))),
                simd_in_place(_mm256_add_epi32(sum.b, _mm256_madd_epi16(x.b, y.b)))};
}
static inline vi vi_from_vs(vs s) {
    __m256i one = _mm256_set1_epi16(1);
    return (vi){_mm256_madd_epi16(s.a, one), _mm256_madd_epi16(s.b, one)};
}
static inline vi vi_dot_s8(vi sum, vb w, const int8_t *p) {
    __m256i x = simd_bytes4(p), one = _mm256_set1_epi16(1);
    __m256i a = _mm256_maddubs_epi16(_mm256_abs_epi8(w.a), _mm256_sign_epi8(x, w.a));
    __m256i b = _mm256_maddubs_epi16(_mm256_abs_epi8(w.b), _mm256_sign_epi8(x, w.b));
    return (vi){simd_in_place(_mm256_add_epi32(sum.a, _mm256_madd_epi16(a, one))),
                simd_in_place(_mm256_add_epi32(sum.b, _mm256_madd_epi16(b, one)))};
}
static inline vb vb_s8(vb x) { return x; }
static inline void vb_store_s8(void *p, vb x) { vb_store(p, x); }
#endif

static inline __m256i simd_load_2(const uint8_t *p, const uint8_t *q) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p)),
                                   _mm_loadu_si128((const __m128i *)q), 1);
}
static inline vb vb_load_4(const uint8_t *p, size_t step) {
    return (vb){simd_load_2(p, p + step), simd_load_2(p + 2 * step, p + 3 * step)};
}
static inline vb vb_load_16(const int8_t *p) {
    const __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    return (vb){x, x};
}
#ifdef __AVXVNNI__
static inline vi vi_dot_each(vi sum, vb w, vb x) {
    return (vi){_mm256_dpbusd_avx_epi32(sum.a, w.a, x.a), _mm256_dpbusd_avx_epi32(sum.b, w.b, x.b)};
}
static inline vi vi_dot_s8_each(vi sum, vb w, vb x) { return vi_dot_each(sum, w, x); }
#else
static inline __m256i simd_dot_each(__m256i sum, __m256i w, __m256i x) {
    return simd_in_place(_mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1))));
}
static inline vi vi_dot_each(vi sum, vb w, vb x) { return (vi){simd_dot_each(sum.a, w.a, x.a), simd_dot_each(sum.b, w.b, x.b)}; }
static inline vi vi_dot_s8_each(vi sum, vb w, vb x) {
    return (vi){simd_dot_each(sum.a, _mm256_abs_epi8(w.a), _mm256_sign_epi8(x.a, w.a)),
                simd_dot_each(sum.b, _mm256_abs_epi8(w.b), _mm256_sign_epi8(x.b, w.b))};
}
#endif
static inline __m256i simd_sum_4(__m256i a, __m256i b, __m256i c, __m256i d) {
    return _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
}
static inline vi vi_sum_4(const vi x[4]) {
    return (vi){simd_sum_4(x[0].a, x[1].a, x[2].a, x[3].a), simd_sum_4(x[0].b, x[1].b, x[2].b, x[3].b)};
}

// 16-bit words: of four integers the first and the third, then the others, which matches the order of even and odd bytes in a
// lane.
typedef vi vd;
typedef struct vw {
    vi even, odd;
} vw;
static inline void vx_store(int8_t *x, const vi a[4]) {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12,
                                           13, 10, 11, 14, 15);
    for (int i = 0; i < 4; i++) {
        __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a[i].a, a[i].b), 0xd8);
        _mm256_storeu_si256((__m256i *)(x + 32 * i), _mm256_shuffle_epi8(words, order));
    }
}
static inline vw vw_load(const int8_t *p) {
    vi x = vi_load((const int32_t *)p);
    return (vw){{_mm256_srai_epi16(_mm256_slli_epi16(x.a, 8), 8), _mm256_srai_epi16(_mm256_slli_epi16(x.b, 8), 8)},
                {_mm256_srai_epi16(x.a, 8), _mm256_srai_epi16(x.b, 8)}};
}
static inline vd vd_set1(int32_t x) { return vi_set1(x); }
static inline __m256i simd_add_words(__m256i sum, __m256i x, __m256i y) {
#ifdef __AVXVNNI__
    return _mm256_dpwssd_avx_epi32(sum, x, y);
#else
    return simd_in_place(_mm256_add_epi32(sum, _mm256_madd_epi16(x, y)));
#endif
}
static inline vd vd_dot(vd sum, vw w, const int8_t *x, int g) {
    __m256i even = simd_bytes4(x + 8 * g), odd = simd_bytes4(x + 8 * g + 4);
    return (vd){simd_add_words(simd_add_words(sum.a, w.even.a, even), w.odd.a, odd),
                simd_add_words(simd_add_words(sum.b, w.even.b, even), w.odd.b, odd)};
}
static inline vi vi_from_vd(vd s) { return s; }

static inline float vf_sum(vf x) {
    __m256 b = _mm256_add_ps(x.a, x.b);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
static inline float vf_greatest(vf x) {
    __m256 b = _mm256_max_ps(x.a, x.b);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
