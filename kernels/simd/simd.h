// The vector types that kin's kernels are written in: always 16 lanes, whatever the size of the processor's registers.
//
// A back-end is one header that defines these types and functions with its registers; SIMD_HEADER names it. Every kernel is
// compiled once per back-end. All back-ends give the same bits, because
// - sums of integers are exact in any order;
// - sums of floats run lane by lane, or over the lanes of one vector in one fixed order (vf_sum);
// - nothing is contracted (-ffp-contract=off), and no function of a C library is used.
//
//   vf         16 float                vi      16 int32_t
//   vb         16 lanes of 4 bytes     vs      sums of products of bytes, of 16 or 32 bits for each lane
//   vscale     16 factors for a vs
//
//   vf_max(a, b)             a > b ? a : b
//   vf_times(a, p)           a times the float at p
//   vf_sum(a)                lanes i and i + 8 are added, then i and i + 4, i + 2, i + 1
//   vf_greatest(a)           the greatest of 16 floats; unspecified if one is NaN
//   vf_greatest_4(a, p)      the same for four vectors
//   vf_load_f16_normal(p)    like vf_load_f16, for values that are rarely subnormal
//   vf_store_f16(p, a)       rounds to nearest, ties to even
//   vi_store_i8(p, a)        of -128 to 127
//   vb_store_s8(p, a)        stores signed bytes in the form that vi_dot_s8 expects
//   vb_s8(a)                 signed bytes in the form that vi_dot_s8 expects: only if SIMD_FUSED_16 is defined
//   vb_shr(a, n)             by 16-bit units
//   vb_shl(a, n)             by 16-bit units or by bytes: bits that cross bytes must be masked away by the caller
//   vb_lookup(table, a)      table[byte], bytes below 16
//   vb_reflect(a, s, i, n)   n - a for the bytes of which bit i of s is set, a for others
//   vb_next_digit(a)         the first digit in base 3 of each byte, as a fraction of 256: 3 a / 256. a becomes what is left
//   vs_dot(s, w, x)          each lane: s + its 4 bytes of w (0 to 127) times x[0..3]. With a vs of 16 bits, SIMD_SUB_MOST
//                            bounds its magnitude: after n additions it is at most n * 2 * 127 * (the largest byte of w).
//                            Here and in vi_dot_s8 x is -127 to 127
//   vi_add_scaled(a, s, f)   a + s * f
//   vi_from_vs(s)            s in 32 bits
//   vi_dot_s8(a, w, x)       each lane: a + its 4 signed bytes of w times x[0..3], plus SIMD_S8_BIAS * (x[0] + ... + x[3])
//   vi_pair(a, b)            the low 16 bits of a, above them the low 16 bits of b
//   vi_mul_add(a, b, c)      a + b * c
//   vi_add_pairs(a, p, x)    lane i: a + p[2i] * x[0] + p[2i+1] * x[1]
//
// Exact products of signed bytes with 16-bit integers from -32512 to 32512, of which 64 take SIMD_X_BYTES bytes:
//   vw         16 lanes of 4 signed bytes      vd      16 sums of such products
//   vx_store(x, a)           64 integers: a[0] to a[3]
//   vw_load(p)               64 bytes
//   vd_dot(s, w, x, g)       each lane: s + its 4 bytes of w times the integers 4 g to 4 g + 3, plus SIMD_S16_BIAS * their sum;
//                            those of 16 i + 4 g are at x + SIMD_X_STEP * i
//   vi_from_vd(s)            s in 32 bits
//   vx_store_positive, vw_load_positive, vd_dot_positive    the same for integers of 0 to 32512, without the bias
//
// Only if SIMD_FUSED_16 is defined:
//   vb_load_4(p, step)       16 bytes each at p, p + step, p + 2 step, p + 3 step
//   vb_load_16(p)            16 bytes four times
//   vi_dot_each(a, w, x)     like vs_dot, in 32 bits, with 4 bytes of x for each lane
//   vi_dot_s8_each(a, w, x)  like vi_dot_s8, with 4 bytes of x for each lane
//   vi_sum_4(a)              lane 4 i + k: the sum of the lanes 4 i to 4 i + 3 of a[k], for k < 4
//
// Only if SIMD_PERMUTES is defined:
//   vb_permute(t, i)         t[byte], of which only the lowest 6 bits count
//   vb_permute_2(a, b, i)    the same with 7 bits and the bytes of a, then those of b
//   vb_fields(a, i)          8 bits of a each, beginning at bit i of its own 8 bytes, which are a ring
//   vb_merge(a, b, m)        the bits of b where those of m are set, of a where not
//   vb_choose(a, b, s, i)    the bytes of b for which bit i of s is set, of a for others
#pragma once

#include SIMD_HEADER

#ifndef SIMD_POSITIVE // the back-end has separate functions
#define vx_store_positive vx_store
#define vw_load_positive vw_load
#define vd_dot_positive vd_dot
#endif

#ifndef SIMD_F16_NORMAL
#define vf_load_f16_normal vf_load_f16
#endif

#ifndef SIMD_COLUMNS
#define SIMD_COLUMNS 1 // vectors of 16 columns that an attention product keeps in registers, for each of 4 rows: 1 or 4
#endif

#ifndef SIMD_TIMES
static inline vf vf_times(vf a, const float *p) { return vf_mul(a, vf_set1(*p)); }
#endif

#ifndef SIMD_REFLECT
static inline vb vb_reflect(vb a, vb s, const int i, uint8_t n) {
    vb is_set = vb_sub(vb_set1(0), vb_and(vb_shr(s, i), vb_set1(1)));
    return vb_xor(a, vb_and(vb_xor(a, vb_sub(vb_set1(n), a)), is_set));
}
#endif

#ifndef SIMD_DIGIT
static inline vb vb_next_digit(vb *a) {
    uint8_t left[64], digit[64];
    vb_store(left, *a);
    for (int i = 0; i < 64; i++) {
        const uint16_t x = (uint16_t)(3 * left[i]);
        digit[i] = (uint8_t)(x >> 8);
        left[i] = (uint8_t)x;
    }
    *a = vb_load(left);
    return vb_load(digit);
}
#endif

#ifndef SIMD_GREATEST_4
static inline void vf_greatest_4(const vf a[4], float p[4]) {
    for (int i = 0; i < 4; i++) p[i] = vf_greatest(a[i]);
}
#endif

#define SIMD_JOIN_(a, b) a##_##b
#define SIMD_JOIN(a, b) SIMD_JOIN_(a, b)
#define SIMD_FN(name) SIMD_JOIN(name, SIMD_ID) // the name of an exported function of this back-end

#define SIMD_INLINE static inline __attribute__((always_inline))

// Rounds to the nearest integer, ties to even, for |a| < 2^22.
static inline vi vi_round(vf a) {
    const vf magic = vf_set1(0x1.8p23f);
    return vi_sub(vi_bits(vf_add(a, magic)), vi_bits(magic));
}

// e^x for n <= 4 vectors, relative error below 2e-7 for x < 88. Below `low` (at least -87) it is e^low. Several at once, because
// a single one is a chain of 21 dependent operations.
SIMD_INLINE void vf_exp_each(vf *x, const int n, const float low) {
    const vf magic = vf_set1(0x1.8p23f);
    vf power[4], r[4], p[4];
    vi exponent[4];
    for (int i = 0; i < n; i++) {
        x[i] = vf_max(x[i], vf_set1(low));
        vf rounded = vf_add(vf_mul(x[i], vf_set1(0x1.715476p0f)), magic); // log2(e) x, in the lowest bits
        power[i] = vf_sub(rounded, magic);
        exponent[i] = vi_shl(vi_bits(rounded), 23);
    }
    for (int i = 0; i < n; i++) {
        r[i] = vf_sub(x[i], vf_mul(power[i], vf_set1(0x1.62ep-1f)));
        r[i] = vf_sub(r[i], vf_mul(power[i], vf_set1(0x1.0bfbe8p-15f)));
    }
    for (int i = 0; i < n; i++) p[i] = vf_add(vf_mul(vf_set1(1.0f / 5040), r[i]), vf_set1(1.0f / 720));
    for (int i = 0; i < n; i++) p[i] = vf_add(vf_mul(p[i], r[i]), vf_set1(1.0f / 120));
    for (int i = 0; i < n; i++) p[i] = vf_add(vf_mul(p[i], r[i]), vf_set1(1.0f / 24));
    for (int i = 0; i < n; i++) p[i] = vf_add(vf_mul(p[i], r[i]), vf_set1(1.0f / 6));
    for (int i = 0; i < n; i++) p[i] = vf_add(vf_mul(p[i], r[i]), vf_set1(0.5f));
    for (int i = 0; i < n; i++) p[i] = vf_add(vf_mul(p[i], r[i]), vf_set1(1.0f));
    for (int i = 0; i < n; i++) p[i] = vf_add(vf_mul(p[i], r[i]), vf_set1(1.0f));
    for (int i = 0; i < n; i++) x[i] = vf_bits(vi_add(vi_bits(p[i]), exponent[i])); // times 2^power
}
SIMD_INLINE vf vf_exp(vf x) {
    vf_exp_each(&x, 1, -87);
    return x;
}

// 2^x for n <= 4 vectors, relative error below 2e-7 for x < 127. Below `low` (at least -125) it is 2^low.
SIMD_INLINE void vf_exp2_each(vf *x, const int n, const float low) {
    const vf magic = vf_set1(0x1.8p23f);
    vf r[4], p[4];
    vi exponent[4];
    for (int i = 0; i < n; i++) {
        x[i] = vf_max(x[i], vf_set1(low));
        vf rounded = vf_add(x[i], magic);
        r[i] = vf_sub(x[i], vf_sub(rounded, magic));
        exponent[i] = vi_shl(vi_bits(rounded), 23);
    }
    // The polynomial with the smallest relative error on [-1/2, 1/2] that is 1 at 0: 9.2e-8.
    for (int i = 0; i < n; i++) p[i] = vf_add(vf_mul(vf_set1(0x1.5bd9a2p-10f), r[i]), vf_set1(0x1.3ce8b8p-7f));
    for (int i = 0; i < n; i++) p[i] = vf_add(vf_mul(p[i], r[i]), vf_set1(0x1.c6b6dap-5f));
    for (int i = 0; i < n; i++) p[i] = vf_add(vf_mul(p[i], r[i]), vf_set1(0x1.ebf9c2p-3f));
    for (int i = 0; i < n; i++) p[i] = vf_add(vf_mul(p[i], r[i]), vf_set1(0x1.62e42ap-1f));
    for (int i = 0; i < n; i++) p[i] = vf_add(vf_mul(p[i], r[i]), vf_set1(1.0f));
    for (int i = 0; i < n; i++) x[i] = vf_bits(vi_add(vi_bits(p[i]), exponent[i]));
}
SIMD_INLINE vf vf_exp2(vf x) {
    vf_exp2_each(&x, 1, -125);
    return x;
}

// Quantizes n values, a multiple of 16, to bytes, and returns their scale d: x = d * q. If a value is infinite or NaN, d is NaN,
// so the products are NaN too, on every back-end.
static inline float simd_round_s8(const float *x, int n, int8_t *q) {
    vf most = vf_zero(), zeros = vf_zero();
    for (int i = 0; i < n; i += 16) {
        most = vf_max(most, vf_abs(vf_load(x + i)));
        zeros = vf_add(zeros, vf_mul(vf_load(x + i), vf_zero()));
    }
    float zero = vf_sum(zeros), greatest = vf_greatest(most);
    if (zero != 0) {
        memset(q, 0, (size_t)n);
        return zero;
    }
    // Values below 2^-100 become zero: the factor for the smallest of them would be infinite.
    float inverse = greatest > 0x1p-100f ? 127 / greatest : 0;
    for (int i = 0; i < n; i += 16) vi_store_i8(q + i, vi_round(vf_mul(vf_load(x + i), vf_set1(inverse))));
    return greatest / 127;
}
