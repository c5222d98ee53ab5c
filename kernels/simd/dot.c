// Multiplies an unpacked block with activation rows: sums of integers, which are exact in any order, then one chain of float
// additions per row, over the blocks (KIN_ACT_256) or over groups of 32 columns (KIN_ACT_32) in order.
#include "kernels/panel.h"
#include "kernels/simd/block.h"

#ifdef SIMD_ARRAYS // unrolled arrays take a compiler half a minute
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

// How a type's blocks are computed. Compile-time constants where the functions below are inlined.
typedef struct shape {
    int groups;                // KIN_ACT_256: groups of 4 columns that share a scale
    int most;                  // the largest weight byte; 0: weights are signed
    bool d_min;                // KIN_ACT_256: d * (scale q) - d_min * (min); false: d * (scale q - min)
    const int16_t *minus_zero; // KIN_ACT_32: minus the weight byte that means 0, for vi_add_pairs; NULL: that is 0
    bool m_32;                 // KIN_ACT_32: d * (q) + m * (1)
} shape;

// Returns how many groups of 4 columns, at most n, a vs can sum without overflow: a divisor of 8.
SIMD_INLINE int sub_groups(shape s, int n) {
    const int limit = SIMD_SUB_MOST != 0 && s.most ? SIMD_SUB_MOST / (2 * 127 * s.most) : n;
    return limit >= n ? n : limit >= 4 ? 4 : limit >= 2 ? 2 : 1;
}

// sum += the products of columns [4 g, 4 (g + s.groups)), which share one scale
SIMD_INLINE void group_u8(const kin_block *e, int g, const kin_act *a, vi *sum, const int n, const shape s) {
    const int step = sub_groups(s, s.groups);
    vscale scale = vscale_load(e->scale[g / s.groups]);
    for (int k0 = g; k0 < g + s.groups; k0 += step) {
        vs part[SIMD_ROWS];
        UNROLL for (int r = 0; r < n; r++) part[r] = vs_zero();
        UNROLL for (int k = k0; k < k0 + step; k++) {
            vb w = vb_load(e->q[k]);
            UNROLL for (int r = 0; r < n; r++) part[r] = vs_dot(part[r], w, a[r].q + 4 * k);
        }
        UNROLL for (int r = 0; r < n; r++) sum[r] = vi_add_scaled(sum[r], part[r], scale);
    }
}

SIMD_INLINE void group_s8(const kin_block *e, int g, const kin_act *a, vi *sum, const int n, const shape s) {
    vi part[SIMD_ROWS], scale = vi_load_i8(e->scale[g / s.groups]);
    UNROLL for (int r = 0; r < n; r++) part[r] = vi_zero();
    for (int k = g; k < g + s.groups; k++) {
        vb w = vb_load(e->q[k]);
        UNROLL for (int r = 0; r < n; r++) part[r] = vi_dot_s8(part[r], w, a[r].q + 4 * k);
    }
    UNROLL for (int r = 0; r < n; r++) sum[r] = vi_mul_add(sum[r], part[r], scale);
}

SIMD_INLINE void dot_256(const kin_block *e, const kin_act *a, float (*f)[16], const int n, const shape s) {
    vi sum[SIMD_ROWS], min[SIMD_ROWS];
    UNROLL for (int r = 0; r < n; r++) {
        sum[r] = vi_zero(); // in separate statements, because gcc 12 would copy one to the other through memory
        min[r] = vi_zero();
    }
    for (int g = 0; g < 64; g += s.groups) {
        if (s.most)
            group_u8(e, g, a, sum, n, s);
        else
            group_s8(e, g, a, sum, n, s);
    }
    for (int j = 0; j < 8 && (s.most || SIMD_S8_BIAS != 0); j++)
        UNROLL for (int r = 0; r < n; r++) min[r] = vi_add_pairs(min[r], e->min[j][0], &a[r].sum[2 * j]);
    vf d = vf_load(e->d);
    UNROLL for (int r = 0; r < n; r++) {
        vf t;
        if (s.d_min)
            t = vf_sub(vf_mul(d, vf_from_vi(sum[r])), vf_mul(vf_load(e->d_min), vf_from_vi(min[r])));
        else
            t = vf_mul(d, vf_from_vi(vi_sub(sum[r], min[r])));
        vf_store(f[r], vf_add(vf_load(f[r]), vf_mul(vf_set1(a[r].d[0]), t)));
    }
}

SIMD_INLINE void dot_32(const kin_block *e, int columns, const kin_act *a, float (*f)[16], const int n, const shape s) {
    const int step = sub_groups(s, 8);
    vf y[SIMD_ROWS];
    UNROLL for (int r = 0; r < n; r++) y[r] = vf_load(f[r]);
    for (int g = 0; g < columns / 32; g++) {
        vi sum[SIMD_ROWS];
        UNROLL for (int r = 0; r < n; r++) sum[r] = vi_zero();
        for (int k0 = 8 * g; k0 < 8 * g + 8; k0 += step) {
            vs part[SIMD_ROWS];
            UNROLL for (int r = 0; r < n; r++) part[r] = vs_zero();
            UNROLL for (int k = k0; k < k0 + step; k++) {
                vb w = vb_load(e->q[k]);
                UNROLL for (int r = 0; r < n; r++) {
                    if (s.most)
                        part[r] = vs_dot(part[r], w, a[r].q + 4 * k);
                    else
                        sum[r] = vi_dot_s8(sum[r], w, a[r].q + 4 * k);
                }
            }
            if (s.most) UNROLL for (int r = 0; r < n; r++) sum[r] = vi_add(sum[r], vi_from_vs(part[r]));
        }
        vf d = vf_load(e->d_32[g]);
        UNROLL for (int r = 0; r < n; r++) {
            if (s.minus_zero) sum[r] = vi_add_pairs(sum[r], s.minus_zero, &a[r].sum[2 * g]);
            vf t = vf_mul(vf_times(d, &a[r].d[g]), vf_from_vi(sum[r]));
            if (s.m_32) {
                const float ones = (float)(a[r].sum[2 * g] + a[r].sum[2 * g + 1]) * a[r].d[g];
                t = vf_add(t, vf_mul(vf_load(e->m_32[g]), vf_set1(ones)));
            }
            y[r] = vf_add(y[r], t);
        }
    }
    UNROLL for (int r = 0; r < n; r++) vf_store(f[r], y[r]);
}

// Like dot_32, with a scale for each 16 columns.
SIMD_INLINE void dot_16(const kin_block *e, int columns, const kin_act *a, float (*f)[16], const int n, const shape s) {
    const int step = sub_groups(s, 4);
    vf y[SIMD_ROWS];
    UNROLL for (int r = 0; r < n; r++) y[r] = vf_load(f[r]);
    for (int g = 0; g < columns / 16; g++) {
        vi sum[SIMD_ROWS];
        UNROLL for (int r = 0; r < n; r++) sum[r] = vi_set1(s.minus_zero[0] * a[r].sum[g]);
        for (int k0 = 4 * g; k0 < 4 * g + 4; k0 += step) {
            vs part[SIMD_ROWS];
            UNROLL for (int r = 0; r < n; r++) part[r] = vs_zero();
            UNROLL for (int k = k0; k < k0 + step; k++) {
                vb w = vb_load(e->q[k]);
                UNROLL for (int r = 0; r < n; r++) part[r] = vs_dot(part[r], w, a[r].q + 4 * k);
            }
            UNROLL for (int r = 0; r < n; r++) sum[r] = vi_add(sum[r], vi_from_vs(part[r]));
        }
        vf d = vf_load(e->d_16[g]);
        UNROLL for (int r = 0; r < n; r++) y[r] = vf_add(y[r], vf_mul(vf_times(d, &a[r].d[g / 2]), vf_from_vi(sum[r])));
    }
    UNROLL for (int r = 0; r < n; r++) vf_store(f[r], y[r]);
}

// ---- functions for 1 to SIMD_ROWS rows, for each type

// clang-format off
#define DOT_256(name, rows, ...) \
    static void name##_##rows(const kin_block *e, int columns, const kin_act *a, float (*f)[16]) { \
        (void)columns; \
        dot_256(e, a, f, rows, (const shape){__VA_ARGS__}); \
    }
#define DOT_32(name, rows, ...) \
    static void name##_##rows(const kin_block *e, int columns, const kin_act *a, float (*f)[16]) { \
        dot_32(e, columns, a, f, rows, (const shape){__VA_ARGS__}); \
    }
#define DOT_16(name, rows, ...) \
    static void name##_##rows(const kin_block *e, int columns, const kin_act *a, float (*f)[16]) { \
        dot_16(e, columns, a, f, rows, (const shape){__VA_ARGS__}); \
    }
#if SIMD_ROWS == 8
#define DOTS(DOT, name, ...) \
    DOT(name, 1, __VA_ARGS__) DOT(name, 2, __VA_ARGS__) DOT(name, 3, __VA_ARGS__) DOT(name, 4, __VA_ARGS__) \
    DOT(name, 5, __VA_ARGS__) DOT(name, 6, __VA_ARGS__) DOT(name, 7, __VA_ARGS__) DOT(name, 8, __VA_ARGS__) \
    static const kin_dot name[] = {name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8};
#else
#define DOTS(DOT, name, ...) \
    DOT(name, 1, __VA_ARGS__) DOT(name, 2, __VA_ARGS__) DOT(name, 3, __VA_ARGS__) DOT(name, 4, __VA_ARGS__) \
    static const kin_dot name[] = {name##_1, name##_2, name##_3, name##_4};
#endif
// clang-format on

#define TIMES_8(x) x, x, x, x, x, x, x, x
#define TIMES_32(x) TIMES_8(x), TIMES_8(x), TIMES_8(x), TIMES_8(x)
static const int16_t minus_8[32] = {TIMES_32(-8)}, minus_12[32] = {TIMES_32(-12)};
static const int16_t minus_16[32] = {TIMES_32(-16)}, minus_1[32] = {TIMES_32(-1)};
#if SIMD_S8_BIAS
static const int16_t minus_bias[32] = {TIMES_32(-SIMD_S8_BIAS)};
#else
#define minus_bias NULL
#endif

DOTS(DOT_256, dot_q4_k, .groups = 8, .most = 15, .d_min = true)
DOTS(DOT_256, dot_q5_k, .groups = 8, .most = 31, .d_min = true)
DOTS(DOT_256, dot_q6_k, .groups = 4, .most = 63)
DOTS(DOT_256, dot_q3_k, .groups = 4, .most = 7)
DOTS(DOT_256, dot_q2_k, .groups = 4, .most = 3, .d_min = true)
DOTS(DOT_256, dot_iq4_xs, .groups = 8)
DOTS(DOT_32, dot_q8_0, .minus_zero = minus_bias)
DOTS(DOT_32, dot_q4_0, .most = 15, .minus_zero = minus_8)
DOTS(DOT_32, dot_mxfp4, .most = 24, .minus_zero = minus_12)
DOTS(DOT_32, dot_q5_1, .most = 31, .m_32 = true)
DOTS(DOT_32, dot_q5_0, .most = 31, .minus_zero = minus_16)
DOTS(DOT_32, dot_q2_0, .most = 3, .minus_zero = minus_1)
DOTS(DOT_16, dot_nvfp4, .most = 24, .minus_zero = minus_12)
DOTS(DOT_256, dot_iq3_xxs, .groups = 8, .most = 124)
DOTS(DOT_256, dot_iq3_s, .groups = 8, .most = 30)
DOTS(DOT_256, dot_iq2_s, .groups = 4, .most = 86)

// Types with smaller weights share functions, because compiling these takes long.
const kin_dot *SIMD_FN(kin_dots_of)(int type) {
    switch (type) {
    case KIN_TYPE_Q4_K: return dot_q4_k;
    case KIN_TYPE_Q5_K: return dot_q5_k;
    case KIN_TYPE_Q6_K:
    case KIN_TYPE_IQ1_M: return dot_q6_k;
    case KIN_TYPE_Q3_K: return dot_q3_k;
    case KIN_TYPE_Q2_K: return dot_q2_k;
    case KIN_TYPE_IQ4_XS: return dot_iq4_xs;
    case KIN_TYPE_Q8_0:
    case KIN_TYPE_IQ4_NL: return dot_q8_0;
    case KIN_TYPE_Q4_0: return dot_q4_0;
    case KIN_TYPE_MXFP4: return dot_mxfp4;
    case KIN_TYPE_Q4_1:
    case KIN_TYPE_Q5_1: return dot_q5_1;
    case KIN_TYPE_Q5_0: return dot_q5_0;
    case KIN_TYPE_Q1_0:
    case KIN_TYPE_Q2_0: return dot_q2_0;
    case KIN_TYPE_NVFP4: return dot_nvfp4;
    case KIN_TYPE_IQ3_XXS:
    case KIN_TYPE_IQ2_XXS: return dot_iq3_xxs;
    case KIN_TYPE_IQ3_S:
    case KIN_TYPE_IQ1_S:
    case KIN_TYPE_TQ1_0:
    case KIN_TYPE_TQ2_0: return dot_iq3_s;
    case KIN_TYPE_IQ2_XS:
    case KIN_TYPE_IQ2_S: return dot_iq2_s;
    default: return NULL;
    }
}
