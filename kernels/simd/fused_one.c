// Multiplies a single activation row with a block while its weights are unpacked, for types that fused.c does not have.
//
// Sums of integers are exact in any order, and floats are added as in dot.c, so the bits are the same.
#include "kernels/simd/block.h"
#include "kernels/simd/scales.h"

#ifdef SIMD_FUSED_16

static void nvfp4(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16]) {
    const kin_panel_nvfp4 *p = (const kin_panel_nvfp4 *)panel;
    const kin_panel_scale_ue4m3 *scale = (const kin_panel_scale_ue4m3 *)(p + columns / 32);
    vf y = vf_load(f[0]);
    for (int g = 0; g < columns / 32; g++) {
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            vs part = vs_zero();
            const int8_t *x = a->q + 32 * g + 16 * h;
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                vb w = vb_load(p[g].q[2 * h + j]);
                part = vs_dot(part, vb_lookup(table_fp4, low_bits(w)), x + 4 * j);
                part = vs_dot(part, vb_lookup(table_fp4, high_bits(w)), x + 8 + 4 * j);
            }
            vi sum = vi_add(vi_set1(-12 * a->sum[2 * g + h]), vi_from_vs(part));
            y = vf_add(y, vf_mul(vf_times(vf_load_ue4m3(scale[g].e[h]), &a->d[g]), vf_from_vi(sum)));
        }
    }
    vf_store(f[0], y);
}

static void mxfp4(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16]) {
    const kin_panel_q4_0 *p = (const kin_panel_q4_0 *)panel;
    const kin_panel_scale_e8m0 *scale = (const kin_panel_scale_e8m0 *)(p + columns / 32);
    vf y = vf_load(f[0]);
    for (int g = 0; g < columns / 32; g++) {
        vs low = vs_zero(), high = vs_zero(); // at most 4 * 2 * 127 * 24 each
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            vb w = vb_load(p[g].q[j]);
            low = vs_dot(low, vb_lookup(table_fp4, low_bits(w)), a->q + 32 * g + 4 * j);
            high = vs_dot(high, vb_lookup(table_fp4, high_bits(w)), a->q + 32 * g + 16 + 4 * j);
        }
        vi sum = vi_set1(-12 * (a->sum[2 * g] + a->sum[2 * g + 1]));
        sum = vi_add(sum, vi_add(vi_from_vs(low), vi_from_vs(high)));
        y = vf_add(y, vf_mul(vf_times(vf_load_e8m0(scale[g].e), &a->d[g]), vf_from_vi(sum)));
    }
    vf_store(f[0], y);
}

// ---- types of three values: weights 0, 1, 2 minus 1, without other scales than d

// Returns minus the sum of a block's activations.
SIMD_INLINE int32_t minus_all(const kin_act *a) {
    int32_t all = 0;
    for (int i = 0; i < 16; i++) all -= a->sum[i];
    return all;
}

// f += d * sum, times the scale of the activations
SIMD_INLINE void add_block(float *f, const kin_act *a, const uint8_t *d, vi sum) {
    const vf t = vf_mul(vf_load_f16((const uint16_t *)d), vf_from_vi(sum));
    vf_store(f, vf_add(vf_load(f), vf_mul(vf_set1(a->d[0]), t)));
}

// Sums of 16 products per lane of 4 bytes fit into 16 bits: 16 * 2 * 127 * 2.
static void tq2_0(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16]) {
    (void)columns;
    const kin_panel_tq2_0 *p = (const kin_panel_tq2_0 *)panel;
    const vb mask = vb_set1(3);
    vs part[4] = {vs_zero(), vs_zero(), vs_zero(), vs_zero()};
    for (int h = 0; h < 2; h++) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            vb w = vb_load(p->q[8 * h + j]);
            const int8_t *x = a->q + 128 * h + 4 * j;
            part[0] = vs_dot(part[0], vb_and(w, mask), x);
            part[1] = vs_dot(part[1], vb_and(vb_shr(w, 2), mask), x + 32);
            part[2] = vs_dot(part[2], vb_and(vb_shr(w, 4), mask), x + 64);
            part[3] = vs_dot(part[3], vb_and(vb_shr(w, 6), mask), x + 96);
        }
    }
    vi sum = vi_set1(minus_all(a));
    for (int t = 0; t < 4; t++) sum = vi_add(sum, vi_from_vs(part[t]));
    add_block(f[0], a, p->d, sum);
}

SIMD_INLINE void digits(vs *part, const uint8_t *bytes, const int n, const int8_t *x, const int step) {
    vb left = vb_load(bytes);
#pragma GCC unroll 5
    for (int i = 0; i < n; i++) part[i] = vs_dot(part[i], vb_next_digit(&left), x + i * step);
}

static void tq1_0(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16]) {
    (void)columns;
    const kin_panel_tq1_0 *p = (const kin_panel_tq1_0 *)panel;
    vs part[5] = {vs_zero(), vs_zero(), vs_zero(), vs_zero(), vs_zero()};
    for (int j = 0; j < 8; j++) digits(part, p->q[j], 5, a->q + 4 * j, 32);
    for (int j = 0; j < 4; j++) digits(part, p->q[8 + j], 5, a->q + 160 + 4 * j, 16);
    digits(part, p->q[12], 4, a->q + 240, 4);
    vi sum = vi_set1(minus_all(a));
    for (int i = 0; i < 5; i++) sum = vi_add(sum, vi_from_vs(part[i]));
    add_block(f[0], a, p->d, sum);
}

kin_fused SIMD_FN(kin_fused_one_of)(int type) {
    switch (type) {
    case KIN_TYPE_NVFP4: return nvfp4;
    case KIN_TYPE_MXFP4: return mxfp4;
    case KIN_TYPE_TQ2_0: return tq2_0;
    case KIN_TYPE_TQ1_0: return tq1_0;
#ifdef SIMD_PERMUTES
    default: return SIMD_FN(kin_fused_grid_of)(type);
#else
    default: return NULL;
#endif
    }
}

#endif
