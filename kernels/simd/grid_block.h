// Shared by the kernels for types with grids (kernels/grids.h): zeros, scales and minima of unpacked blocks.
#pragma once

#include <string.h>

#include "kernels/grids.h"
#include "kernels/panel.h"
#include "kernels/simd/block.h"
#include "kernels/simd/scales.h"

// Weights are unsigned here: a type's zero is added to them. In a grid with magnitudes, a negative weight is 2 * zero minus the
// positive one.
enum { ZERO_IQ3_XXS = 62, ZERO_IQ3_S = 15, ZERO_IQ2 = 43, ZERO_IQ1 = 9 };

// Unpacks 2 n scales of 4 bits to odd numbers.
SIMD_INLINE void odd_scales(const uint8_t (*nibbles)[16], const int n, int8_t (*scale)[16]) {
    for (int i = 0; i < n; i++) {
        const rows_u8 x = load_rows(nibbles[i]);
        store_rows(scale[2 * i], (x << 1 & 30) | 1);
        store_rows(scale[2 * i + 1], (x >> 3 & 30) | 1);
    }
}

// Computes the minima for this zero. halves: 16 columns share a scale, otherwise 32.
SIMD_INLINE void mins(kin_block *e, const int zero, const bool halves) {
    for (int j = 0; j < 8; j++) {
        const vi first = vi_load_i8(e->scale[halves ? 2 * j : j]), second = vi_load_i8(e->scale[halves ? 2 * j + 1 : j]);
        const vi times = vi_set1(zero);
        vi_store((int32_t *)e->min[j], vi_pair(vi_mul_add(vi_zero(), first, times), vi_mul_add(vi_zero(), second, times)));
    }
}

SIMD_INLINE vf load_d(const void *p, float factor) { return vf_mul(vf_load_f16((const uint16_t *)p), vf_set1(factor)); }

// Unpacks the scales of IQ1_S.
SIMD_INLINE void scales_iq1_s(const kin_panel_iq1_s *p, int8_t (*scale)[16]) {
    for (int g = 0; g < 8; g++) {
        rows_u16 x;
        memcpy(&x, p->high[g], sizeof x);
        store_rows(scale[g], __builtin_convertvector((x >> 11 & 14) | 1, rows_u8));
    }
}

// Unpacks the scales of IQ1_M, and returns the factors of its rows.
SIMD_INLINE vf scales_iq1_m(const kin_panel_iq1_m *p, int8_t (*scale)[16]) {
    rows_u16 d = {0};
    uint16_t half[16];
    for (int g = 0; g < 8; g++) {
        const rows_u8 x = load_rows(p->scale[g]);
        store_rows(scale[2 * g], (x << 1 & 14) | 1);
        store_rows(scale[2 * g + 1], (x >> 2 & 14) | 1);
        d |= WIDEN(rows_u16, x >> 6) << 2 * g;
    }
    memcpy(half, &d, sizeof half);
    return load_d(half, 0.125f);
}
