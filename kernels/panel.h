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
    KIN_TYPE_Q8_0 = 8,
    KIN_TYPE_Q2_K = 10,
    KIN_TYPE_Q3_K = 11,
    KIN_TYPE_Q4_K = 12,
    KIN_TYPE_Q5_K = 13,
    KIN_TYPE_Q6_K = 14,
    KIN_TYPE_IQ4_XS = 23,
    KIN_TYPE_BF16 = 30,
    KIN_TYPE_MXFP4 = 39,
};

// Returns the bytes of this many columns of a panel: of 256, a block; of all, the panel.
size_t kin_panel_bytes(int type, int64_t columns);

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
