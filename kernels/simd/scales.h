// Shared by unpacking to a block (unpack.c) and multiplying while unpacking (fused.c, fused_one.c): a table, nibbles and scales.
#pragma once

#include <string.h>

#include "kernels/panel.h"
#include "kernels/simd/simd.h"

// Twice the values of 4-bit floats, plus 12, which makes them unsigned.
static const int8_t table_fp4[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

SIMD_INLINE vb low_bits(vb w) { return vb_and(w, vb_set1(15)); }
SIMD_INLINE vb high_bits(vb w) { return vb_and(vb_shr(w, 4), vb_set1(15)); }

// A small number of each of 16 rows, in the compilers' own vectors, because they do not vectorize every loop over the rows.
// Vectors of 64 bytes only where nothing is widened to them: gcc 12 would do that one by one.
typedef uint8_t rows_u8 __attribute__((vector_size(16)));
typedef uint16_t rows_u16 __attribute__((vector_size(32)));
#define WIDEN(type, x) __builtin_convertvector(x, type)

SIMD_INLINE rows_u8 load_rows(const void *p) {
    rows_u8 x;
    memcpy(&x, p, sizeof x);
    return x;
}
SIMD_INLINE void store_rows(void *p, rows_u8 x) { memcpy(p, &x, sizeof x); }

// Computes 2^(e - 128) for 16 rows. The smallest two have no exponent; without them no loop needs a condition.
SIMD_INLINE vf vf_load_e8m0(const uint8_t *e) {
    int32_t bits[16];
    uint8_t has_tiny = 0;
    for (int r = 0; r < 16; r++) has_tiny |= e[r] < 2;
    for (int r = 0; r < 16; r++) bits[r] = (int32_t)((e[r] - 1u) << 23);
    for (int r = 0; r < 16 && has_tiny; r++)
        if (e[r] < 2) bits[r] = e[r] ? 1 << 22 : 1 << 21;
    return vf_bits(vi_load(bits));
}

// Computes half of 2^(exponent - 7) (1 + mantissa / 8), since weights are doubled; 2^-10 mantissa without exponent; 0 for 127. A
// half with the same exponent and mantissa is 2^7 times smaller.
SIMD_INLINE vf vf_load_ue4m3(const uint8_t *p) {
    const rows_u16 e = WIDEN(rows_u16, load_rows(p)), bits = (e & 127) << 7 & (rows_u16)(e != 127);
    uint16_t half[16];
    memcpy(half, &bits, sizeof half);
    return vf_mul(vf_load_f16(half), vf_set1(0x1p7f));
}

// Unpacks the 6-bit scales and minima of Q4_K and Q5_K.
SIMD_INLINE void unpack_scales_k4(const kin_panel_scales_k4 *s, int8_t scale[8][16], int8_t min[8][16]) {
    const vb top = vb_set1(0x30), high = vb_load(s->high), low = vb_load(s->low[0]), low_2 = vb_load(s->low[4]);
    vb_store(scale[0], vb_or(low_bits(low), vb_and(vb_shl(high, 4), top)));
    vb_store(scale[4], vb_or(low_bits(low_2), vb_and(vb_shl(high, 2), top)));
    vb_store(min[0], vb_or(high_bits(low), vb_and(high, top)));
    vb_store(min[4], vb_or(high_bits(low_2), vb_and(vb_shr(high, 2), top)));
}
