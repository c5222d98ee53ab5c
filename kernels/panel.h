// The packed layouts: 16 rows of a matrix interleaved, in blocks of 256 columns, in as many bytes as the rows take in GGUF.
//
// 4 columns of 16 rows are stored together: 64 bytes if a weight is a byte, one 4-byte lane per row. Smaller weights are split
// into bit planes that unpack to such vectors with a mask and a shift.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Type numbers of GGUF (and ggml).
enum {
    KIN_TYPE_F32 = 0,
    KIN_TYPE_F16 = 1,
    KIN_TYPE_Q4_0 = 2,
    KIN_TYPE_Q4_1 = 3,
    KIN_TYPE_Q5_0 = 6,
    KIN_TYPE_Q5_1 = 7,
    KIN_TYPE_Q8_0 = 8,
    KIN_TYPE_Q2_K = 10,
    KIN_TYPE_Q3_K = 11,
    KIN_TYPE_Q4_K = 12,
    KIN_TYPE_Q5_K = 13,
    KIN_TYPE_Q6_K = 14,
    KIN_TYPE_IQ2_XXS = 16,
    KIN_TYPE_IQ2_XS = 17,
    KIN_TYPE_IQ3_XXS = 18,
    KIN_TYPE_IQ1_S = 19,
    KIN_TYPE_IQ4_NL = 20,
    KIN_TYPE_IQ3_S = 21,
    KIN_TYPE_IQ2_S = 22,
    KIN_TYPE_IQ4_XS = 23,
    KIN_TYPE_IQ1_M = 29,
    KIN_TYPE_BF16 = 30,
    KIN_TYPE_TQ1_0 = 34,
    KIN_TYPE_TQ2_0 = 35,
    KIN_TYPE_MXFP4 = 39,
    KIN_TYPE_NVFP4 = 40,
    KIN_TYPE_Q1_0 = 41,
    KIN_TYPE_Q2_0 = 42,
};

enum { KIN_PANEL_BLOCK_MOST = 16 * 8 * 34 }; // bytes of the largest block of a panel: Q8_0

// Returns the bytes of this many columns of a panel: of 256, a block; of all, the panel.
size_t kin_panel_bytes(int type, int64_t columns);

// Packs a block: `columns` (at most 256) of n rows (at most 16), which are row_bytes apart, as in GGUF. Other rows of the block
// stay as they are, or become zeros.
void kin_panel_pack_block(int type, int columns, int n, const uint8_t *rows, size_t row_bytes, uint8_t *block);

// ---- types with blocks of 256 columns in GGUF

// Eight 6-bit scales and minima per row.
typedef struct kin_panel_scales_k4 {
    uint8_t low[8][16];  // [32 columns][row]: bits 0-3 of the scale, 0-3 of the minimum
    uint8_t high[4][16]; // [j][row]: bits 4-5 of scale j, scale j + 4, minimum j, minimum j + 4
} kin_panel_scales_k4;

// GGUF: 144 bytes per row: d, d_min f16; 12 bytes of scales; 128 bytes of nibbles, of which 32 bytes hold 64 columns.
typedef struct kin_panel_q4_k {
    uint8_t q[32][64]; // [8 i + j]: low nibbles columns 64 i + 4 j, high ones 64 i + 32 + 4 j
    kin_panel_scales_k4 scales;
    uint8_t d[32], d_min[32]; // f16 [row]
} kin_panel_q4_k;

// GGUF: 176 bytes per row: like Q4_K, with 32 bytes of bit 4 after the scales.
typedef struct kin_panel_q5_k {
    uint8_t low[32][64]; // as in Q4_K
    uint8_t high[8][64]; // [j]: bit g is columns 32 g + 4 j
    kin_panel_scales_k4 scales;
    uint8_t d[32], d_min[32]; // f16 [row]
} kin_panel_q5_k;

// GGUF: 210 bytes per row: 128 bytes of low nibbles; 64 bytes of bits 4-5; 16 scales; d f16.
//
// 16 columns are three vectors u, v, w. Bits 0-5 of their bytes are columns 0-3, 4-7 and 8-11. Bits 6-7 are chosen so that ((u >>
// 2) ^ (v >> 4) ^ (w >> 6)) & 63, with 16-bit shifts, is columns 12-15: one mask for all.
typedef struct kin_panel_q6_k {
    int8_t scale[16][16]; // [16 columns][row]
    uint8_t q[16][3][64]; // [16 columns][u, v, w]
    uint8_t d[32];        // f16 [row]
} kin_panel_q6_k;

// GGUF: 110 bytes per row: 32 bytes of bit 2; 64 bytes of bits 0-1; 16 scales of 6 bits; d f16.
typedef struct kin_panel_q3_k {
    uint8_t low[16][64];                         // [8 h + j]: bits 2 t and 2 t + 1 are columns 128 h + 32 t + 4 j
    uint8_t high[8][64];                         // [j]: bit g is columns 32 g + 4 j
    uint8_t scale_low[8][16], scale_high[4][16]; // [j][row]: bits 0-3 of scales j and j + 8; 4-5 of j, j + 4, j + 8, j + 12
    uint8_t d[32];                               // f16 [row]
} kin_panel_q3_k;

// GGUF: 84 bytes per row: 16 bytes of scales and minima; 64 bytes of weights; d, d_min f16.
typedef struct kin_panel_q2_k {
    uint8_t q[16][64];        // like `low` of Q3_K
    uint8_t scale[16][16];    // [16 columns][row]: low nibble: scale; high nibble: minimum
    uint8_t d[32], d_min[32]; // f16 [row]
} kin_panel_q2_k;

// GGUF: 136 bytes per row: d f16; 2 + 4 bytes of 6-bit scales; 128 bytes of nibbles, which are indices into a table.
typedef struct kin_panel_iq4_xs {
    uint8_t q[32][64];                           // [4 g + j]: low nibbles columns 32 g + 4 j, high ones 32 g + 16 + 4 j
    uint8_t scale_low[4][16], scale_high[2][16]; // [j][row]: bits 0-3 of scales 2 j, 2 j + 1; 4-5 of 4 j, 4 j + 1, ...
    uint8_t d[32];                               // f16 [row]
} kin_panel_iq4_xs;

// ---- types with blocks of 32 columns in GGUF
//
// A block of 32 g columns (the last one of a row may have fewer than 256) is g times the weights, then g times the scales.

// GGUF: 34 bytes: d f16; 32 signed bytes.
typedef struct kin_panel_q8_0 {
    int8_t q[8][64]; // [j]: columns 4 j
} kin_panel_q8_0;

// GGUF: 18 bytes: d f16; 16 bytes of nibbles. MXFP4: 17 bytes: an exponent; 16 bytes of nibbles, which index a table.
typedef struct kin_panel_q4_0 {
    uint8_t q[4][64]; // [j]: low nibbles columns 4 j, high ones 16 + 4 j
} kin_panel_q4_0;

typedef struct kin_panel_scale_f16 {
    uint8_t d[32]; // f16 [row]
} kin_panel_scale_f16;

typedef struct kin_panel_scale_e8m0 {
    uint8_t e[16]; // [row]: 2^(e - 128)
} kin_panel_scale_e8m0;

// GGUF: IQ4_NL: 18 bytes like Q4_0, with indices into the table of IQ4_XS.
//
// GGUF: Q5_0: 22 bytes: d f16; 4 bytes of bit 4; 16 bytes of nibbles.
typedef struct kin_panel_q5_0 {
    uint8_t low[4][64]; // as in Q4_0
    uint8_t high[64];   // bit j is columns 4 j
} kin_panel_q5_0;

// GGUF: Q4_1: 20 bytes: d, m f16; 16 bytes of nibbles. Q5_1: 24 bytes: d, m f16; then as Q5_0. A weight is d * q + m.
typedef struct kin_panel_scale_min {
    uint8_t d[32], m[32]; // f16 [row]
} kin_panel_scale_min;

// GGUF: NVFP4: 36 bytes for 64 columns: 4 scales of 8 bits, one for 16 columns; 32 bytes of nibbles as in MXFP4.
typedef struct kin_panel_nvfp4 {
    uint8_t q[4][64]; // [2 h + j]: low nibbles columns 16 h + 4 j, high ones 16 h + 8 + 4 j
} kin_panel_nvfp4;

typedef struct kin_panel_scale_ue4m3 {
    uint8_t e[2][16]; // [16 columns][row]: 4 bits of exponent, 3 of mantissa
} kin_panel_scale_ue4m3;

// GGUF: Q2_0: 18 bytes for 64 columns: d f16; 16 bytes of 2-bit weights. The scale is stored for each 64 columns.
typedef struct kin_panel_q2_0 {
    uint8_t q[2][64]; // [h]: bits 2 t and 2 t + 1 are columns 16 h + 4 t
} kin_panel_q2_0;

// GGUF: Q1_0: 18 bytes for 128 columns: d f16; 16 bytes of bits. The scale is stored for each 128 columns.
typedef struct kin_panel_q1_0 {
    uint8_t q[64]; // bit j is columns 4 j
} kin_panel_q1_0;

// ---- types of three values, with blocks of 256 columns in GGUF

// GGUF: 54 bytes per row: 52 bytes of five weights each (the last four bytes: of four), in base 3; d f16. A byte is the fraction
// of 256 whose digits are the weights, rounded up.
typedef struct kin_panel_tq1_0 {
    uint8_t q[13][64]; // digit n is columns 32 n + 4 j of [j < 8], 160 + 16 n + 4 (j - 8) of [j < 12], 240 + 4 n of the last
    uint8_t d[32];     // f16 [row]
} kin_panel_tq1_0;

// GGUF: 66 bytes per row: 64 bytes of weights; d f16.
typedef struct kin_panel_tq2_0 {
    uint8_t q[16][64]; // like `low` of Q3_K
    uint8_t d[32];     // f16 [row]
} kin_panel_tq2_0;

// ---- types whose weights are entries of a grid (grids.h), with blocks of 256 columns in GGUF
//
// An index stands for 8 columns (IQ3: for 4) of one row.

// The signs of 256 columns. IQ2_XXS, IQ2_XS and IQ3_XXS store 7 of 8: the number of negative weights in columns 8 i to 8 i + 7 is
// even. Then byte 3 of odd vectors has other data.
typedef struct kin_panel_signs {
    uint8_t q[8][64]; // [j]: bit g is columns 32 g + 4 j
} kin_panel_signs;

// GGUF: 98 bytes per row: d f16; 64 indices; for each 32 columns 4 times 7 signs, and a scale of 4 bits.
typedef struct kin_panel_iq3_xxs {
    kin_panel_signs signs; // byte 3 of [2 i + 1]: scales 2 i and 2 i + 1, 4 bits each
    uint8_t index[64][16]; // [4 columns][row]
    uint8_t d[32];         // f16 [row]
} kin_panel_iq3_xxs;

// GGUF: 110 bytes per row: d f16; the low 8 bits of 64 indices; their ninth bits; 32 bytes of signs; 8 scales of 4 bits.
typedef struct kin_panel_iq3_s {
    kin_panel_signs signs;
    uint8_t index[64][16]; // [4 columns][row]
    uint8_t high[8][16];   // [32 columns][row]: bit j is 4 columns
    uint8_t scale[4][16];  // [64 columns][row]
    uint8_t d[32];         // f16 [row]
} kin_panel_iq3_s;

// GGUF: 66 bytes per row: d f16; for each 32 columns 4 indices, 4 times 7 signs, and a scale of 4 bits.
typedef struct kin_panel_iq2_xxs {
    kin_panel_signs signs; // byte 3 as in IQ3_XXS
    uint8_t index[32][16]; // [8 columns][row]
    uint8_t d[32];         // f16 [row]
} kin_panel_iq2_xxs;

// GGUF: 74 bytes per row: d f16; 32 times 9 bits of index and 7 signs; 16 scales of 4 bits.
typedef struct kin_panel_iq2_xs {
    kin_panel_signs signs; // byte 3 of [2 i + 1]: bit g is the ninth bit of index 4 g + i
    uint8_t index[32][16]; // [8 columns][row]: its low 8 bits
    uint8_t scale[8][16];  // [32 columns][row]
    uint8_t d[32];         // f16 [row]
} kin_panel_iq2_xs;

// GGUF: 82 bytes per row: d f16; the low 8 bits of 32 indices; 32 bytes of signs; 2 more bits per index; 16 scales of 4 bits.
typedef struct kin_panel_iq2_s {
    kin_panel_signs signs;
    uint8_t index[32][16]; // [8 columns][row]
    uint8_t high[8][16];   // [32 columns][row]
    uint8_t scale[8][16];  // [32 columns][row]
    uint8_t d[32];         // f16 [row]
} kin_panel_iq2_s;

// GGUF: 50 bytes per row: d f16; the low 8 bits of 32 indices; for each 32 columns 4 times 3 more bits, a scale of 3 bits, and
// the sign of what is added to all weights.
typedef struct kin_panel_iq1_s {
    uint8_t index[32][16]; // [8 columns][row]
    uint8_t high[8][32];   // u16 [32 columns][row]
    uint8_t d[32];         // f16 [row]
} kin_panel_iq1_s;

// GGUF: 56 bytes per row: the low 8 bits of 32 indices; 16 bytes with 3 more bits and a sign as above for each 8 columns; 16
// scales of 3 bits, and the f16 d, 4 bits after each 4 scales.
typedef struct kin_panel_iq1_m {
    uint8_t index[32][16]; // [8 columns][row]
    uint8_t high[16][16];  // [16 columns][row]
    uint8_t scale[8][16];  // [32 columns][row]: 2 scales, and 2 bits of d, lowest first
} kin_panel_iq1_m;
