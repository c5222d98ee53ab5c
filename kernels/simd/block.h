// An unpacked block of a packed matrix: the common form that the kernels for all types use.
#pragma once

#include <stdint.h>

#include "kernels/kernels.h"
#include "kernels/simd/simd.h"

// 256 columns of 16 rows, in the first-level cache. Weights are unsigned bytes, or signed ones in the form of vb_store_s8.
typedef struct kin_block {
    uint8_t q[64][64];      // [4 columns][row][column]
    int8_t scale[16][16];   // KIN_ACT_256: [group of columns][row]
    int16_t min[8][16][2];  // [32 columns][row][16 columns]
    float d[16], d_min[16]; // [row]
    float d_32[8][16];      // KIN_ACT_32: [32 columns][row]
    union {
        float m_32[8][16];  // KIN_ACT_32: added to each weight // [32 columns][row]
        float d_16[16][16]; // KIN_ACT_32, instead of d_32: [16 columns][row]
    };
} __attribute__((aligned(64))) kin_block;

// Unpacks a block of a panel that has `columns` columns.
typedef void (*kin_unpack)(const uint8_t *panel, int columns, kin_block *e);
kin_unpack SIMD_FN(kin_unpack_of)(int type);
kin_unpack SIMD_FN(kin_unpack_grid_of)(int type); // of the types with grids, for kin_unpack_of

// Adds a block's products with activation rows to f // [rows of a][16 rows of the block]
typedef void (*kin_dot)(const kin_block *e, int columns, const kin_act *a, float (*f)[16]);
const kin_dot *SIMD_FN(kin_dots_of)(int type); // [SIMD_ROWS]: for 1, 2, ... rows of a

// Multiplies a block with n activation rows without unpacking it first: adds the products to f // [n][16 rows of the block].
// NULL: this back-end has none for this type and number of rows.
typedef void (*kin_fused)(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16]);
kin_fused SIMD_FN(kin_fused_of)(int type, int64_t n, int variant);
// Those for a single row that kin_fused_of gets from other files: fused_one.c, grid_permutes.c.
kin_fused SIMD_FN(kin_fused_one_of)(int type);
kin_fused SIMD_FN(kin_fused_grid_of)(int type);

// Multiplies a block of 16 rows as in GGUF, `step` bytes apart, with n = 1 activation row: adds the products to f // [16]. NULL:
// this back-end has none.
typedef void (*kin_fused_rows)(const uint8_t *rows, size_t step, int columns, const kin_act *a, float *f);
kin_fused_rows SIMD_FN(kin_fused_rows_of)(int type, int64_t n);
