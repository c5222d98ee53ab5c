// Unpacks blocks of panels (panel.h) to bytes and scales.
#include "kernels/panel.h"
#include "kernels/simd/block.h"
#include "kernels/simd/scales.h"

// Shifts w to the left (to the right if `left` is negative), then masks it.
SIMD_INLINE vb bits(vb w, int left, uint8_t mask) {
    if (left > 0) w = vb_shl(w, left);
    if (left < 0) w = vb_shr(w, -left);
    return vb_and(w, vb_set1(mask));
}

SIMD_INLINE void load_f16(const uint8_t *p, float *y) { vf_store(y, vf_load_f16((const uint16_t *)p)); }

// Loads the scales of n groups of 32 columns.
SIMD_INLINE void load_scales(const kin_panel_scale_f16 *scale, int n, kin_block *e) {
    for (int g = 0; g < n; g++) load_f16(scale[g].d, e->d_32[g]);
}

// Stores the low nibbles of a vector, and the high ones.
SIMD_INLINE void store_nibbles(vb w, uint8_t low[64], uint8_t high[64]) {
    vb_store(low, bits(w, 0, 15));
    vb_store(high, bits(w, -4, 15));
}

// Stores the four fields of 2 bits of a vector, `step` vectors apart.
SIMD_INLINE void store_pairs(vb w, uint8_t (*q)[64], const int step) {
#pragma GCC unroll 4
    for (int t = 0; t < 4; t++) vb_store(q[t * step], bits(w, -2 * t, 3));
}

// Unpacks the scales and minima of Q4_K and Q5_K. A minimum applies to both halves of its 32 columns.
SIMD_INLINE void scales_k4(const kin_panel_scales_k4 *s, kin_block *e) {
    int8_t min[8][16];
    unpack_scales_k4(s, e->scale, min);
    for (int j = 0; j < 8; j++) {
        vi m = vi_load_i8(min[j]);
        vi_store((int32_t *)e->min[j], vi_pair(m, m));
    }
}

static void unpack_q4_k(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_q4_k *p = (const kin_panel_q4_k *)panel;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 8; j++) store_nibbles(vb_load(p->q[8 * i + j]), e->q[16 * i + j], e->q[16 * i + 8 + j]);
    }
    scales_k4(&p->scales, e);
    load_f16(p->d, e->d);
    load_f16(p->d_min, e->d_min);
}

static void unpack_q5_k(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_q5_k *p = (const kin_panel_q5_k *)panel;
    for (int j = 0; j < 8; j++) {
        vb high = vb_load(p->high[j]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            vb w = vb_load(p->low[8 * i + j]);
            vb_store(e->q[16 * i + j], vb_or(bits(w, 0, 15), bits(high, 4 - 2 * i, 16)));
            vb_store(e->q[16 * i + 8 + j], vb_or(bits(w, -4, 15), bits(high, 3 - 2 * i, 16)));
        }
    }
    scales_k4(&p->scales, e);
    load_f16(p->d, e->d);
    load_f16(p->d_min, e->d_min);
}

// Weights are stored unsigned: their zero point times the scale becomes the minimum of 16 columns. zero = 2^shift
SIMD_INLINE void mins_of_scales(kin_block *e, int shift) {
    for (int j = 0; j < 8; j++) {
        vi first = vi_load_i8(e->scale[2 * j]), second = vi_load_i8(e->scale[2 * j + 1]);
        vi_store((int32_t *)e->min[j], vi_pair(vi_shl(first, shift), vi_shl(second, shift)));
    }
}

static void unpack_q6_k(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_q6_k *p = (const kin_panel_q6_k *)panel;
    for (int g = 0; g < 16; g++) {
        vb a = vb_load(p->q[g][0]), b = vb_load(p->q[g][1]), c = vb_load(p->q[g][2]);
        vb_store(e->q[4 * g], bits(a, 0, 63));
        vb_store(e->q[4 * g + 1], bits(b, 0, 63));
        vb_store(e->q[4 * g + 2], bits(c, 0, 63));
        vb_store(e->q[4 * g + 3], vb_and(vb_xor(vb_xor(vb_shr(a, 2), vb_shr(b, 4)), vb_shr(c, 6)), vb_set1(63)));
    }
    for (int i = 0; i < 4; i++) vb_store(e->scale[4 * i], vb_load(p->scale[4 * i]));
    mins_of_scales(e, 5);
    load_f16(p->d, e->d);
}

static void unpack_q3_k(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_q3_k *p = (const kin_panel_q3_k *)panel;
    for (int h = 0; h < 2; h++) {
        for (int j = 0; j < 8; j++) {
            vb low = vb_load(p->low[8 * h + j]), high = vb_load(p->high[j]);
            if (h) high = vb_shr(high, 4);
#pragma GCC unroll 4
            for (int t = 0; t < 4; t++) vb_store(e->q[32 * h + 8 * t + j], vb_or(bits(low, -2 * t, 3), bits(high, 2 - t, 4)));
        }
    }
    vb low = vb_load(p->scale_low), low_2 = vb_load(p->scale_low[4]), high = vb_load(p->scale_high), middle = vb_set1(32);
    vb_store(e->scale[0], vb_sub(vb_or(bits(low, 0, 15), bits(high, 4, 0x30)), middle));
    vb_store(e->scale[4], vb_sub(vb_or(bits(low_2, 0, 15), bits(high, 2, 0x30)), middle));
    vb_store(e->scale[8], vb_sub(vb_or(bits(low, -4, 15), bits(high, 0, 0x30)), middle));
    vb_store(e->scale[12], vb_sub(vb_or(bits(low_2, -4, 15), bits(high, -2, 0x30)), middle));
    mins_of_scales(e, 2);
    load_f16(p->d, e->d);
}

static void unpack_q2_k(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_q2_k *p = (const kin_panel_q2_k *)panel;
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 8; j++) store_pairs(vb_load(p->q[8 * h + j]), e->q + 32 * h + j, 8);
    int8_t min[16][16];
    for (int i = 0; i < 4; i++) {
        vb scale = vb_load(p->scale[4 * i]);
        vb_store(e->scale[4 * i], bits(scale, 0, 15));
        vb_store(min[4 * i], bits(scale, -4, 15));
    }
    for (int j = 0; j < 8; j++) vi_store((int32_t *)e->min[j], vi_pair(vi_load_i8(min[2 * j]), vi_load_i8(min[2 * j + 1])));
    load_f16(p->d, e->d);
    load_f16(p->d_min, e->d_min);
}

// Nibbles of 32 columns are indices into a table. Signed values are stored in the form that vi_dot_s8 expects.
SIMD_INLINE void look_up_rows(const uint8_t planes[4][64], const int8_t table[16], bool is_signed, uint8_t q[8][64]) {
    for (int j = 0; j < 4; j++) {
        vb w = vb_load(planes[j]), low = vb_lookup(table, bits(w, 0, 15)), high = vb_lookup(table, bits(w, -4, 15));
        is_signed ? vb_store_s8(q[j], low) : vb_store(q[j], low);
        is_signed ? vb_store_s8(q[4 + j], high) : vb_store(q[4 + j], high);
    }
}

_Static_assert(SIMD_S8_BIAS == 0 || SIMD_S8_BIAS == 128, "signed bytes are stored as they are, or with 128 added");

static const int8_t table_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void unpack_iq4_xs(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_iq4_xs *p = (const kin_panel_iq4_xs *)panel;
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        look_up_rows(p->q + 4 * g, table_iq4, true, e->q + 8 * g);
        const rows_u8 low = load_rows(p->scale_low[g / 2]) >> g % 2 * 4, high = load_rows(p->scale_high[g / 4]) >> g % 4 * 2;
        store_rows(e->scale[g], ((low & 15) | (high & 3) << 4) - 32);
        vi min = vi_shl(vi_load_i8(e->scale[g]), 7); // SIMD_S8_BIAS times the scale: unused if the bias is 0
        vi_store((int32_t *)e->min[g], vi_pair(min, min));
    }
    load_f16(p->d, e->d);
}

static void unpack_q8_0(const uint8_t *panel, int columns, kin_block *e) {
    const kin_panel_q8_0 *p = (const kin_panel_q8_0 *)panel;
    const kin_panel_scale_f16 *scale = (const kin_panel_scale_f16 *)(p + columns / 32);
    for (int g = 0; g < columns / 32; g++)
        for (int j = 0; j < 8; j++) vb_store_s8(e->q[8 * g + j], vb_load(p[g].q[j]));
    load_scales(scale, columns / 32, e);
}

// Unpacks the weights of Q4_0 and Q4_1.
SIMD_INLINE void unpack_4_bits(const kin_panel_q4_0 *p, int columns, kin_block *e) {
    for (int g = 0; g < columns / 32; g++)
        for (int j = 0; j < 4; j++) store_nibbles(vb_load(p[g].q[j]), e->q[8 * g + j], e->q[8 * g + 4 + j]);
}

static void unpack_q4_0(const uint8_t *panel, int columns, kin_block *e) {
    const kin_panel_q4_0 *p = (const kin_panel_q4_0 *)panel;
    unpack_4_bits(p, columns, e);
    load_scales((const kin_panel_scale_f16 *)(p + columns / 32), columns / 32, e);
}

static void unpack_mxfp4(const uint8_t *panel, int columns, kin_block *e) {
    const kin_panel_q4_0 *p = (const kin_panel_q4_0 *)panel;
    const kin_panel_scale_e8m0 *scale = (const kin_panel_scale_e8m0 *)(p + columns / 32);
    for (int g = 0; g < columns / 32; g++) {
        look_up_rows(p[g].q, table_fp4, false, e->q + 8 * g);
        vf_store(e->d_32[g], vf_load_e8m0(scale[g].e));
    }
}

static void unpack_iq4_nl(const uint8_t *panel, int columns, kin_block *e) {
    const kin_panel_q4_0 *p = (const kin_panel_q4_0 *)panel;
    for (int g = 0; g < columns / 32; g++) look_up_rows(p[g].q, table_iq4, true, e->q + 8 * g);
    load_scales((const kin_panel_scale_f16 *)(p + columns / 32), columns / 32, e);
}

SIMD_INLINE void load_scale_min(const kin_panel_scale_min *scale, int n, kin_block *e) {
    for (int g = 0; g < n; g++) {
        load_f16(scale[g].d, e->d_32[g]);
        load_f16(scale[g].m, e->m_32[g]);
    }
}

static void unpack_q4_1(const uint8_t *panel, int columns, kin_block *e) {
    const kin_panel_q4_0 *p = (const kin_panel_q4_0 *)panel;
    unpack_4_bits(p, columns, e);
    load_scale_min((const kin_panel_scale_min *)(p + columns / 32), columns / 32, e);
}

// Unpacks the weights of Q5_0 and Q5_1.
SIMD_INLINE void unpack_5_bits(const kin_panel_q5_0 *p, int columns, kin_block *e) {
    for (int g = 0; g < columns / 32; g++) {
        vb high = vb_load(p[g].high);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            vb w = vb_load(p[g].low[j]);
            vb_store(e->q[8 * g + j], vb_or(bits(w, 0, 15), bits(high, 4 - j, 16)));
            vb_store(e->q[8 * g + 4 + j], vb_or(bits(w, -4, 15), bits(high, -j, 16)));
        }
    }
}

static void unpack_q5_0(const uint8_t *panel, int columns, kin_block *e) {
    const kin_panel_q5_0 *p = (const kin_panel_q5_0 *)panel;
    unpack_5_bits(p, columns, e);
    load_scales((const kin_panel_scale_f16 *)(p + columns / 32), columns / 32, e);
}

static void unpack_q5_1(const uint8_t *panel, int columns, kin_block *e) {
    const kin_panel_q5_0 *p = (const kin_panel_q5_0 *)panel;
    unpack_5_bits(p, columns, e);
    load_scale_min((const kin_panel_scale_min *)(p + columns / 32), columns / 32, e);
}

static void unpack_nvfp4(const uint8_t *panel, int columns, kin_block *e) {
    const kin_panel_nvfp4 *p = (const kin_panel_nvfp4 *)panel;
    const kin_panel_scale_ue4m3 *scale = (const kin_panel_scale_ue4m3 *)(p + columns / 32);
    for (int g = 0; g < columns / 32; g++) {
        for (int j = 0; j < 4; j++) {
            vb w = vb_load(p[g].q[j]);
            uint8_t(*q)[64] = e->q + 8 * g + j / 2 * 4 + j % 2;
            vb_store(q[0], vb_lookup(table_fp4, bits(w, 0, 15)));
            vb_store(q[2], vb_lookup(table_fp4, bits(w, -4, 15)));
        }
        for (int h = 0; h < 2; h++) vf_store(e->d_16[2 * g + h], vf_load_ue4m3(scale[g].e[h]));
    }
}

static void unpack_q2_0(const uint8_t *panel, int columns, kin_block *e) {
    const kin_panel_q2_0 *p = (const kin_panel_q2_0 *)panel;
    const kin_panel_scale_f16 *scale = (const kin_panel_scale_f16 *)(p + columns / 32);
    for (int g = 0; g < columns / 32; g++) {
        for (int h = 0; h < 2; h++) store_pairs(vb_load(p[g].q[h]), e->q + 8 * g + 4 * h, 1);
        load_f16(scale[g / 2].d, e->d_32[g]);
    }
}

// A bit is -1 or 1: unpacks 0 or 2.
static void unpack_q1_0(const uint8_t *panel, int columns, kin_block *e) {
    const kin_panel_q1_0 *p = (const kin_panel_q1_0 *)panel;
    const kin_panel_scale_f16 *scale = (const kin_panel_scale_f16 *)(p + columns / 32);
    for (int g = 0; g < columns / 32; g++) {
        vb w = vb_load(p[g].q);
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) vb_store(e->q[8 * g + j], bits(w, 1 - j, 2));
        load_f16(scale[g / 4].d, e->d_32[g]);
    }
}

// Weights 0, 1, 2 minus 1, with the scale 1.
SIMD_INLINE void scales_of_three(kin_block *e) {
    vi one = vi_set1(1), ones = vi_pair(one, one);
    for (int j = 0; j < 8; j++) {
        vi_store_i8(e->scale[j], one);
        vi_store((int32_t *)e->min[j], ones);
    }
}

// Unpacks n digits of 64 bytes, each to q[i * step].
SIMD_INLINE void unpack_digits(const uint8_t *bytes, const int n, uint8_t (*q)[64], int step) {
    vb left = vb_load(bytes);
    for (int i = 0; i < n; i++) vb_store(q[i * step], vb_next_digit(&left));
}

static void unpack_tq1_0(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_tq1_0 *p = (const kin_panel_tq1_0 *)panel;
    for (int j = 0; j < 8; j++) unpack_digits(p->q[j], 5, e->q + j, 8);
    for (int j = 0; j < 4; j++) unpack_digits(p->q[8 + j], 5, e->q + 40 + j, 4);
    unpack_digits(p->q[12], 4, e->q + 60, 1);
    scales_of_three(e);
    load_f16(p->d, e->d);
}

static void unpack_tq2_0(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_tq2_0 *p = (const kin_panel_tq2_0 *)panel;
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 8; j++) store_pairs(vb_load(p->q[8 * h + j]), e->q + 32 * h + j, 8);
    scales_of_three(e);
    load_f16(p->d, e->d);
}

kin_unpack SIMD_FN(kin_unpack_of)(int type) {
    switch (type) {
    case KIN_TYPE_Q4_K: return unpack_q4_k;
    case KIN_TYPE_Q5_K: return unpack_q5_k;
    case KIN_TYPE_Q6_K: return unpack_q6_k;
    case KIN_TYPE_Q3_K: return unpack_q3_k;
    case KIN_TYPE_Q2_K: return unpack_q2_k;
    case KIN_TYPE_IQ4_XS: return unpack_iq4_xs;
    case KIN_TYPE_Q8_0: return unpack_q8_0;
    case KIN_TYPE_Q4_0: return unpack_q4_0;
    case KIN_TYPE_MXFP4: return unpack_mxfp4;
    case KIN_TYPE_IQ4_NL: return unpack_iq4_nl;
    case KIN_TYPE_Q4_1: return unpack_q4_1;
    case KIN_TYPE_Q5_0: return unpack_q5_0;
    case KIN_TYPE_Q5_1: return unpack_q5_1;
    case KIN_TYPE_NVFP4: return unpack_nvfp4;
    case KIN_TYPE_Q2_0: return unpack_q2_0;
    case KIN_TYPE_Q1_0: return unpack_q1_0;
    case KIN_TYPE_TQ1_0: return unpack_tq1_0;
    case KIN_TYPE_TQ2_0: return unpack_tq2_0;
    default: return SIMD_FN(kin_unpack_grid_of)(type);
    }
}
