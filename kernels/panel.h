// The packed layouts: 16 rows of a matrix interleaved, 256 columns a block, in as many bytes as the rows take in GGUF.
//
// 4 columns of 16 rows stand together: 64 bytes where a weight is a byte, one lane of 4 bytes for each row. Smaller weights are
// cut into planes of bits that unpack to such vectors with a mask and a shift.
#pragma once

#include <stdint.h>

// Numbers of types in GGUF (and ggml).
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

// Eight 6-bit scales and minima for each row.
typedef struct kin_panel_scales_k4 {
    uint8_t low[8][16];  // [32 columns][row]: bits 0-3 of the scale, 0-3 of the minimum
    uint8_t high[4][16]; // [j][row]: bits 4-5 of scale j, scale j + 4, minimum j, minimum j + 4
} kin_panel_scales_k4;

// GGUF: 144 bytes a row: d, d_min f16; 12 bytes of scales; 128 bytes of nibbles, of which 32 bytes hold 64 columns.
typedef struct kin_panel_q4_k {
    uint8_t q[32][64]; // [8 i + j]: low nibbles columns 64 i + 4 j, high ones 64 i + 32 + 4 j
    kin_panel_scales_k4 scales;
    uint8_t d[32], d_min[32]; // f16 [row]
} kin_panel_q4_k;
