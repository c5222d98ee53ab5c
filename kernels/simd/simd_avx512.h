// AVX-512 with VNNI (Cascade Lake and later), and VBMI if the compiler enables it (Ice Lake, Zen 4 and later): a vector of 16
// lanes is one register. See simd.h for the functions.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX512VBMI__
#define SIMD_NAME "avx512vbmi"
#define SIMD_PERMUTES // a vector can be a table
#else
#define SIMD_NAME "avx512"
#endif
#define SIMD_ROWS 8      // activation rows that a product keeps in registers
#define SIMD_COLUMNS 4   // vectors that an attention product keeps for each row
#define SIMD_SUB_MOST 0  // sums of bytes are 32 bits wide
#define SIMD_S8_BIAS 128 // signed bytes are stored with 128 added, because the instruction takes unsigned ones
#define SIMD_S16_BIAS 128
#define SIMD_S16_ROWS 4    // queries that an attention product with 16-bit integers keeps in registers,
#define SIMD_S16_COLUMNS 2 // for each of this many vectors
#define SIMD_X_BYTES 128
#define SIMD_X_STEP 4
#define SIMD_TAIL_ROWS 8 // rows of which an attention product keeps 8 columns, if no more columns are left
#define SIMD_POSITIVE
#define SIMD_TIMES
#define SIMD_GREATEST_4
#define SIMD_REFLECT
#define SIMD_DIGIT
#define SIMD_FUSED_16 4 // number of rows multiplied while weights are unpacked (fused.c), at most 4

typedef __m512 vf;
typedef __m256 vh;
typedef __m512i vi, vb, vs, vscale;

static inline vf vf_zero(void) { return _mm512_setzero_ps(); }
static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
// The load itself broadcasts the number: a separate vbroadcastss would occupy a floating-point pipe, like a product.
static inline vf vf_times(vf a, const float *p) {
    vf product;
    __asm__("vmulps %2%{1to16%}, %1, %0" : "=v"(product) : "v"(a), "m"(*p));
    return product;
}
static inline vh vh_zero(void) { return _mm256_setzero_ps(); }
static inline vh vh_load(const float *p) { return _mm256_loadu_ps(p); }
static inline vh vh_add_times(vh sum, const float *x, vh y) {
    vh product;
    __asm__("vmulps %2%{1to8%}, %1, %0" : "=v"(product) : "v"(y), "m"(*x));
    return _mm256_add_ps(sum, product);
}
static inline vf vf_from_vh(vh a) { return _mm512_zextps256_ps512(a); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_abs(vf a) { return _mm512_abs_ps(a); }
static inline vf vf_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline void vf_store_f16(uint16_t *p, vf a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vf vf_load_bf16(const uint16_t *p) {
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

static inline vi vi_zero(void) { return _mm512_setzero_si512(); }
static inline vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
static inline vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
static inline vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
static inline vi vi_shl(vi a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
static inline vi vi_pair(vi a, vi b) { return _mm512_mask_blend_epi16(0xaaaaaaaau, a, _mm512_slli_epi32(b, 16)); }
static inline vi vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
static inline void vi_store(int32_t *p, vi a) { _mm512_storeu_si512(p, a); }
static inline vi vi_load_i8(const int8_t *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline void vi_store_i8(int8_t *p, vi a) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a)); }
static inline vf vf_from_vi(vi a) { return _mm512_cvtepi32_ps(a); }
static inline vf vf_bits(vi a) { return _mm512_castsi512_ps(a); }
static inline vi vi_bits(vf a) { return _mm512_castps_si512(a); }

static inline vb vb_load(const void *p) { return _mm512_loadu_si512(p); }
static inline void vb_store(void *p, vb a) { _mm512_storeu_si512(p, a); }
static inline vb vb_s8(vb a) { return _mm512_xor_si512(a, _mm512_set1_epi8(-128)); }
static inline void vb_store_s8(void *p, vb a) { _mm512_storeu_si512(p, vb_s8(a)); }
static inline vb vb_set1(uint8_t x) { return _mm512_set1_epi8((char)x); }
static inline vb vb_and(vb a, vb b) { return _mm512_and_si512(a, b); }
static inline vb vb_or(vb a, vb b) { return _mm512_or_si512(a, b); }
static inline vb vb_xor(vb a, vb b) { return _mm512_xor_si512(a, b); }
static inline vb vb_sub(vb a, vb b) { return _mm512_sub_epi8(a, b); }
static inline vb vb_shr(vb a, int n) { return _mm512_srli_epi16(a, (unsigned)n); }
static inline vb vb_shl(vb a, int n) { return _mm512_slli_epi16(a, (unsigned)n); }
static inline vb vb_lookup(const int8_t table[16], vb i) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), i);
}
static inline vb vb_reflect(vb a, vb s, int i, uint8_t n) {
    return _mm512_mask_sub_epi8(a, _mm512_test_epi8_mask(s, vb_set1((uint8_t)(1 << i))), vb_set1(n), a);
}

static inline vb vb_next_digit(vb *a) {
    const __mmask64 at_least_1 = _mm512_cmpge_epu8_mask(*a, vb_set1(86)), is_2 = _mm512_cmpge_epu8_mask(*a, vb_set1(171));
    const vb one = vb_set1(1), digit = _mm512_maskz_mov_epi8(at_least_1, one);
    *a = _mm512_add_epi8(*a, _mm512_add_epi8(*a, *a));
    return _mm512_mask_add_epi8(digit, is_2, one, one);
}
#ifdef SIMD_PERMUTES
static inline vb vb_permute(vb table, vb i) { return _mm512_permutexvar_epi8(i, table); }
static inline vb vb_permute_2(vb low, vb high, vb i) { return _mm512_permutex2var_epi8(low, i, high); }
static inline vb vb_fields(vb a, vb at) { return _mm512_multishift_epi64_epi8(at, a); }
static inline vb vb_merge(vb a, vb b, vb mask) { return _mm512_ternarylogic_epi32(a, b, mask, 0xd8); }
static inline vb vb_choose(vb a, vb b, vb s, int i) {
    return _mm512_mask_blend_epi8(_mm512_test_epi8_mask(s, vb_set1((uint8_t)(1 << i))), a, b);
}
#endif

static inline __m512i simd_bytes4(const void *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm512_set1_epi32(x);
}
static inline vs vs_zero(void) { return _mm512_setzero_si512(); }
static inline vs vs_dot(vs sum, vb w, const int8_t *x) { return _mm512_dpbusd_epi32(sum, w, simd_bytes4(x)); }
static inline vscale vscale_load(const int8_t *p) { return vi_load_i8(p); }
static inline vi vi_add_scaled(vi sum, vs s, vscale scale) { return _mm512_add_epi32(sum, _mm512_mullo_epi32(s, scale)); }
static inline vi vi_from_vs(vs s) { return s; }
static inline vi vi_dot_s8(vi sum, vb w, const int8_t *x) { return _mm512_dpbusd_epi32(sum, w, simd_bytes4(x)); }
static inline vi vi_mul_add(vi sum, vi a, vi b) { return _mm512_add_epi32(sum, _mm512_mullo_epi32(a, b)); }
static inline vi vi_add_pairs(vi sum, const int16_t *pairs, const int16_t *x) {
    return _mm512_dpwssd_epi32(sum, _mm512_loadu_si512(pairs), simd_bytes4(x));
}

static inline vb vb_load_4(const uint8_t *p, size_t step) {
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p)),
                                                _mm_loadu_si128((const __m128i *)(p + step)), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(p + 2 * step))),
                                                 _mm_loadu_si128((const __m128i *)(p + 3 * step)), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
static inline vb vb_load_16(const int8_t *p) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p)); }
static inline vi vi_dot_each(vi sum, vb w, vb x) { return _mm512_dpbusd_epi32(sum, w, x); }
static inline vi vi_dot_s8_each(vi sum, vb w, vb x) { return vi_dot_each(sum, w, x); }
static inline __m512i simd_add_halves(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}
static inline vi vi_sum_4(const vi a[4]) {
    const __m512i x = simd_add_halves(a[0], a[1]), y = simd_add_halves(a[2], a[3]);
    return _mm512_add_epi32(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
}

// A 16-bit integer is two digits of 8 bits: 64 high ones, then 64 low ones. The dwords of 4 digits are stored as [g][i] of 16 i +
// 4 g, which is the order packing leaves them in. The instruction requires its first operand to be unsigned: signed integers have
// signed digits, so 128 is added to the bytes that they are multiplied with; the digits of positive integers are unsigned
// already.
typedef __m512i vw;
typedef struct vd {
    __m512i high, low;
} vd;
static inline void simd_store_digits(int8_t *x, const vi a[4], __m512i flip) {
    const __m512i byte = _mm512_set1_epi16(255);
    __m512i first = _mm512_packus_epi32(a[0], a[1]), second = _mm512_packus_epi32(a[2], a[3]);
    __m512i high = _mm512_packus_epi16(_mm512_srli_epi16(first, 8), _mm512_srli_epi16(second, 8));
    __m512i low = _mm512_packus_epi16(_mm512_and_si512(first, byte), _mm512_and_si512(second, byte));
    _mm512_storeu_si512(x, high);
    _mm512_storeu_si512(x + 64, _mm512_xor_si512(low, flip));
}
static inline void vx_store(int8_t *x, const vi a[4]) {
    const __m512i half = _mm512_set1_epi32(128), word = _mm512_set1_epi32(0xffff);
    vi b[4];
    for (int i = 0; i < 4; i++) b[i] = _mm512_and_si512(_mm512_add_epi32(a[i], half), word);
    simd_store_digits(x, b, _mm512_set1_epi8(-128));
}
static inline void vx_store_positive(int8_t *x, const vi a[4]) { simd_store_digits(x, a, _mm512_setzero_si512()); }
static inline vw vw_load(const int8_t *p) { return vb_s8(vb_load(p)); }
static inline vw vw_load_positive(const int8_t *p) { return vb_load(p); }
static inline vd vd_set1(int32_t x) { return (vd){_mm512_setzero_si512(), _mm512_set1_epi32(x)}; }
static inline vd vd_dot(vd sum, vw w, const int8_t *x, int g) {
    return (vd){_mm512_dpbusd_epi32(sum.high, w, simd_bytes4(x + 16 * g)),
                _mm512_dpbusd_epi32(sum.low, w, simd_bytes4(x + 16 * g + 64))};
}
static inline vd vd_dot_positive(vd sum, vw w, const int8_t *x, int g) {
    return (vd){_mm512_dpbusd_epi32(sum.high, simd_bytes4(x + 16 * g), w),
                _mm512_dpbusd_epi32(sum.low, simd_bytes4(x + 16 * g + 64), w)};
}
static inline vi vi_from_vd(vd s) { return _mm512_add_epi32(_mm512_slli_epi32(s.high, 8), s.low); }

static inline float vf_sum(vf a) {
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
static inline float vf_greatest(vf a) { return _mm512_reduce_max_ps(a); }
// Interleaves all four vectors so that one comparison handles all of them.
static inline void vf_greatest_4(const vf a[4], float p[4]) {
    __m512 ab = _mm512_max_ps(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1]));
    __m512 cd = _mm512_max_ps(_mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3]));
    __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    __m512 all = _mm512_max_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    _mm_storeu_ps(p, _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1)));
}
