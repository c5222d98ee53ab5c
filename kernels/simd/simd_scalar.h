// Portable C: 16 lanes are arrays. The reference for the other back-ends, and the fallback if none of them can run. Uses SSE2,
// which all x86_64 have, for what compilers do not vectorize themselves. See simd.h for the functions.
#pragma once

#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include <math.h>
#include <stdint.h>
#include <string.h>

#define SIMD_NAME "scalar"
#define SIMD_ROWS 4
#define SIMD_ARRAYS
#define SIMD_SUB_MOST 0
#define SIMD_S8_BIAS 0
#define SIMD_S16_BIAS 0
#define SIMD_S16_ROWS 4
#define SIMD_S16_COLUMNS 1
#ifdef __SSE2__
#define SIMD_X_BYTES 128
#define SIMD_X_STEP 32
#else
#define SIMD_X_BYTES 256
#define SIMD_X_STEP 64
#endif

typedef struct vf {
    float at[16];
} vf;
typedef struct vi {
    int32_t at[16];
} vi;
typedef struct vb {
    uint8_t at[64];
} vb;
typedef vi vs, vscale;

#define SIMD_LANES(type, expression)                                                                                             \
    type z;                                                                                                                      \
    for (int i = 0; i < 16; i++) z.at[i] = expression;                                                                           \
    return z
#define SIMD_BYTES(expression)                                                                                                   \
    vb z;                                                                                                                        \
    for (int i = 0; i < 64; i++) z.at[i] = (uint8_t)(expression);                                                                \
    return z

static inline float simd_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023, bits;
    float x;
    if (exponent == 0) {
        x = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &x, sizeof bits);
        bits |= sign;
    } else {
        bits = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | mantissa << 13;
    }
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Rounds to the nearest half, ties to even.
static inline uint16_t simd_to_f16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);  // NaN
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // rounds to 65536 or more
    if (magnitude < 0x38800000) {                                  // below 2^-14: the sum's last bit is 2^-24
        float small;
        memcpy(&small, &magnitude, sizeof small);
        small += 0.5f;
        memcpy(&magnitude, &small, sizeof magnitude);
        return (uint16_t)(sign | (magnitude - 0x3f000000));
    }
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((magnitude - 0x38000000) >> 13));
}

static inline vf vf_set1(float x) { SIMD_LANES(vf, x); }
static inline vf vf_zero(void) { return vf_set1(0); }
static inline vf vf_load(const float *p) { // any alignment
    vf z;
    memcpy(&z, p, sizeof z);
    return z;
}
static inline void vf_store(float *p, vf a) { memcpy(p, a.at, sizeof a.at); }
static inline vf vf_add(vf a, vf b) { SIMD_LANES(vf, a.at[i] + b.at[i]); }
static inline vf vf_sub(vf a, vf b) { SIMD_LANES(vf, a.at[i] - b.at[i]); }
static inline vf vf_mul(vf a, vf b) { SIMD_LANES(vf, a.at[i] * b.at[i]); }
static inline vf vf_div(vf a, vf b) { SIMD_LANES(vf, a.at[i] / b.at[i]); }
static inline vf vf_max(vf a, vf b) { SIMD_LANES(vf, a.at[i] > b.at[i] ? a.at[i] : b.at[i]); }
static inline vf vf_abs(vf a) { SIMD_LANES(vf, fabsf(a.at[i])); }
static inline vf vf_load_f16(const uint16_t *p) { SIMD_LANES(vf, simd_f16(p[i])); }
static inline void vf_store_f16(uint16_t *p, vf a) {
    for (int i = 0; i < 16; i++) p[i] = simd_to_f16(a.at[i]);
}
static inline vf vf_load_bf16(const uint16_t *p) {
    vf z;
    for (int i = 0; i < 16; i++) {
        uint32_t bits = (uint32_t)p[i] << 16;
        memcpy(&z.at[i], &bits, sizeof bits);
    }
    return z;
}

static inline vi vi_set1(int32_t x) { SIMD_LANES(vi, x); }
static inline vi vi_zero(void) { return vi_set1(0); }
static inline vi vi_add(vi a, vi b) { SIMD_LANES(vi, a.at[i] + b.at[i]); }
static inline vi vi_sub(vi a, vi b) { SIMD_LANES(vi, a.at[i] - b.at[i]); }
static inline vi vi_shl(vi a, int n) { SIMD_LANES(vi, (int32_t)((uint32_t)a.at[i] << n)); }
static inline vi vi_pair(vi a, vi b) { SIMD_LANES(vi, (int32_t)((uint16_t)a.at[i] | (uint32_t)b.at[i] << 16)); }
static inline vi vi_load(const int32_t *p) { SIMD_LANES(vi, p[i]); }
static inline void vi_store(int32_t *p, vi a) { memcpy(p, a.at, sizeof a.at); }
static inline vi vi_load_i8(const int8_t *p) { SIMD_LANES(vi, p[i]); }
static inline void vi_store_i8(int8_t *p, vi a) {
    for (int i = 0; i < 16; i++) p[i] = (int8_t)a.at[i];
}
static inline vf vf_from_vi(vi a) { SIMD_LANES(vf, (float)a.at[i]); }
static inline vf vf_bits(vi a) {
    vf z;
    memcpy(&z, &a, sizeof z);
    return z;
}
static inline vi vi_bits(vf a) {
    vi z;
    memcpy(&z, &a, sizeof z);
    return z;
}

static inline vb vb_load(const void *p) {
    vb z;
    memcpy(&z, p, sizeof z);
    return z;
}
static inline void vb_store(void *p, vb a) { memcpy(p, &a, sizeof a); }
static inline void vb_store_s8(void *p, vb a) { vb_store(p, a); }
static inline vb vb_set1(uint8_t x) { SIMD_BYTES(x); }
static inline vb vb_and(vb a, vb b) { SIMD_BYTES(a.at[i] & b.at[i]); }
static inline vb vb_or(vb a, vb b) { SIMD_BYTES(a.at[i] | b.at[i]); }
static inline vb vb_xor(vb a, vb b) { SIMD_BYTES(a.at[i] ^ b.at[i]); }
static inline vb vb_sub(vb a, vb b) { SIMD_BYTES(a.at[i] - b.at[i]); }
static inline vb vb_shr(vb a, int n) { SIMD_BYTES((a.at[i] | (i % 2 ? 0 : a.at[i + 1] << 8)) >> n); }
static inline vb vb_shl(vb a, int n) { SIMD_BYTES(a.at[i] << n); }
static inline vb vb_lookup(const int8_t table[16], vb j) { SIMD_BYTES(table[j.at[i] & 15]); }

static inline vs vs_zero(void) { return vi_zero(); }
static inline vs vs_dot(vs sum, vb w, const int8_t *x) {
    SIMD_LANES(vs, sum.at[i] + w.at[4 * i] * x[0] + w.at[4 * i + 1] * x[1] + w.at[4 * i + 2] * x[2] + w.at[4 * i + 3] * x[3]);
}
static inline vscale vscale_load(const int8_t *p) { return vi_load_i8(p); }
static inline vi vi_mul_add(vi sum, vi a, vi b) { SIMD_LANES(vi, sum.at[i] + a.at[i] * b.at[i]); }
static inline vi vi_add_scaled(vi sum, vs s, vscale scale) { return vi_mul_add(sum, s, scale); }
static inline vi vi_from_vs(vs s) { return s; }
static inline vi vi_dot_s8(vi sum, vb w, const int8_t *x) {
    SIMD_LANES(vi, sum.at[i] + (int8_t)w.at[4 * i] * x[0] + (int8_t)w.at[4 * i + 1] * x[1] + (int8_t)w.at[4 * i + 2] * x[2] +
                       (int8_t)w.at[4 * i + 3] * x[3]);
}
static inline vi vi_add_pairs(vi sum, const int16_t *pairs, const int16_t *x) {
    SIMD_LANES(vi, sum.at[i] + pairs[2 * i] * x[0] + pairs[2 * i + 1] * x[1]);
}

#ifdef __SSE2__
// 16-bit words: of four integers the first and the third, then the others, which matches the order of even and odd bytes in a
// lane.
typedef struct vd {
    __m128i at[4];
} vd;
typedef struct vw {
    __m128i even[4], odd[4];
} vw;
static inline void vx_store(int8_t *x, const vi a[4]) {
    for (int i = 0; i < 64; i += 4) {
        const int32_t *n = a[i / 16].at + i % 16;
        const int16_t words[4] = {(int16_t)n[0], (int16_t)n[2], (int16_t)n[1], (int16_t)n[3]};
        memcpy(x + 2 * i, words, sizeof words);
    }
}
static inline vw vw_load(const int8_t *p) {
    vw z;
    for (int i = 0; i < 4; i++) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)p + i);
        z.even[i] = _mm_srai_epi16(_mm_slli_epi16(bytes, 8), 8);
        z.odd[i] = _mm_srai_epi16(bytes, 8);
    }
    return z;
}
static inline vd vd_set1(int32_t x) {
    __m128i y = _mm_set1_epi32(x);
    return (vd){{y, y, y, y}};
}
static inline vd vd_dot(vd sum, vw w, const int8_t *x, int g) {
    int32_t pairs[2];
    memcpy(pairs, x + 8 * g, sizeof pairs);
    __m128i even = _mm_set1_epi32(pairs[0]), odd = _mm_set1_epi32(pairs[1]);
    for (int i = 0; i < 4; i++) {
        sum.at[i] = _mm_add_epi32(sum.at[i], _mm_madd_epi16(w.even[i], even));
        sum.at[i] = _mm_add_epi32(sum.at[i], _mm_madd_epi16(w.odd[i], odd));
    }
    return sum;
}
static inline vi vi_from_vd(vd s) {
    vi z;
    memcpy(&z, &s, sizeof z);
    return z;
}
#else
// In floats, which compilers vectorize on every processor: four products are below 2^24, so their sum is exact.
typedef vi vd;
typedef struct vw {
    float at[4][16];
} vw;
static inline void vx_store(int8_t *x, const vi a[4]) {
    for (int i = 0; i < 4; i++) {
        vf number = vf_from_vi(a[i]);
        memcpy(x + 64 * i, &number, sizeof number);
    }
}
static inline vw vw_load(const int8_t *p) {
    uint32_t four[16];
    vw z;
    memcpy(four, p, sizeof four);
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 16; i++) z.at[k][i] = (float)((int32_t)(four[i] << (24 - 8 * k)) >> 24);
    return z;
}
static inline vd vd_set1(int32_t x) { return vi_set1(x); }
static inline vd vd_dot(vd sum, vw w, const int8_t *x, int g) {
    float y[4];
    memcpy(y, x + 16 * g, sizeof y);
    SIMD_LANES(vd, sum.at[i] + (int32_t)(w.at[0][i] * y[0] + w.at[1][i] * y[1] + w.at[2][i] * y[2] + w.at[3][i] * y[3]));
}
static inline vi vi_from_vd(vd s) { return s; }
#endif

static inline float vf_sum(vf a) {
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++) a.at[i] += a.at[i + n];
    return a.at[0];
}
static inline float vf_greatest(vf a) {
    float most = a.at[0];
    for (int i = 1; i < 16; i++) most = a.at[i] > most ? a.at[i] : most;
    return most;
}
