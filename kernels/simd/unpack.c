// Blocks of panels (panel.h) -> bytes and scales.
#include "kernels/panel.h"
#include "kernels/simd/block.h"

// Bits of w, moved to the left (to the right where `left` is negative), then masked.
SIMD_INLINE vb bits(vb w, int left, uint8_t mask) {
    if (left > 0) w = vb_shl(w, left);
    if (left < 0) w = vb_shr(w, -left);
    return vb_and(w, vb_set1(mask));
}

SIMD_INLINE void load_f16(const uint8_t *p, float *y) { vf_store(y, vf_load_f16((const uint16_t *)p)); }

// The 6-bit scales and minima of Q4_K and Q5_K. A minimum stands for both halves of its 32 columns.
SIMD_INLINE void scales_k4(const kin_panel_scales_k4 *s, kin_block *e) {
    vb high = vb_load(s->high);
    int8_t min[8][16];
    for (int i = 0; i < 2; i++) {
        vb low = vb_load(s->low[4 * i]);
        vb_store(e->scale[4 * i], vb_or(bits(low, 0, 15), bits(high, i ? 2 : 4, 0x30)));
        vb_store(min[4 * i], vb_or(bits(low, -4, 15), bits(high, i ? -2 : 0, 0x30)));
    }
    for (int j = 0; j < 8; j++) {
        vi m = vi_load_i8(min[j]);
        vi_store((int32_t *)e->min[j], vi_pair(m, m));
    }
}

static void unpack_q4_k(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_q4_k *p = (const kin_panel_q4_k *)panel;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 8; j++) {
            vb w = vb_load(p->q[8 * i + j]);
            vb_store(e->q[16 * i + j], bits(w, 0, 15));
            vb_store(e->q[16 * i + 8 + j], bits(w, -4, 15));
        }
    }
    scales_k4(&p->scales, e);
    load_f16(p->d, e->d);
    load_f16(p->d_min, e->d_min);
}

// Weights are unsigned: what their zero is, times the scale, becomes the minimum of 16 columns. zero = 2^shift
SIMD_INLINE void mins_of_scales(kin_block *e, int shift) {
    for (int j = 0; j < 8; j++) {
        vi first = vi_load_i8(e->scale[2 * j]), second = vi_load_i8(e->scale[2 * j + 1]);
        vi_store((int32_t *)e->min[j], vi_pair(vi_shl(first, shift), vi_shl(second, shift)));
    }
}

static void unpack_q6_k(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_q6_k *p = (const kin_panel_q6_k *)panel;
    for (int h = 0; h < 2; h++) {
        for (int j = 0; j < 8; j++) {
            vb low = vb_load(p->low[16 * h + j]), low_2 = vb_load(p->low[16 * h + 8 + j]), high = vb_load(p->high[8 * h + j]);
            vb_store(e->q[32 * h + j], vb_or(bits(low, 0, 15), bits(high, 4, 0x30)));
            vb_store(e->q[32 * h + 8 + j], vb_or(bits(low_2, 0, 15), bits(high, 2, 0x30)));
            vb_store(e->q[32 * h + 16 + j], vb_or(bits(low, -4, 15), bits(high, 0, 0x30)));
            vb_store(e->q[32 * h + 24 + j], vb_or(bits(low_2, -4, 15), bits(high, -2, 0x30)));
        }
    }
    for (int i = 0; i < 4; i++) vb_store(e->scale[4 * i], vb_load(p->scale[4 * i]));
    mins_of_scales(e, 5);
    load_f16(p->d, e->d);
}

static void unpack_q8_0(const uint8_t *panel, int columns, kin_block *e) {
    const kin_panel_q8_0 *p = (const kin_panel_q8_0 *)panel;
    const kin_panel_scale_f16 *scale = (const kin_panel_scale_f16 *)(p + columns / 32);
    for (int g = 0; g < columns / 32; g++) {
        for (int j = 0; j < 8; j++) vb_store_s8(e->q[8 * g + j], vb_load(p[g].q[j]));
        load_f16(scale[g].d, e->d_32[g]);
    }
}

static void unpack_q4_0(const uint8_t *panel, int columns, kin_block *e) {
    const kin_panel_q4_0 *p = (const kin_panel_q4_0 *)panel;
    const kin_panel_scale_f16 *scale = (const kin_panel_scale_f16 *)(p + columns / 32);
    for (int g = 0; g < columns / 32; g++) {
        for (int j = 0; j < 4; j++) {
            vb w = vb_load(p[g].q[j]);
            vb_store(e->q[8 * g + j], bits(w, 0, 15));
            vb_store(e->q[8 * g + 4 + j], bits(w, -4, 15));
        }
        load_f16(scale[g].d, e->d_32[g]);
    }
}

kin_unpack SIMD_FN(kin_unpack_of)(int type) {
    switch (type) {
    case KIN_TYPE_Q4_K: return unpack_q4_k;
    case KIN_TYPE_Q6_K: return unpack_q6_k;
    case KIN_TYPE_Q8_0: return unpack_q8_0;
    case KIN_TYPE_Q4_0: return unpack_q4_0;
    default: return NULL;
    }
}
