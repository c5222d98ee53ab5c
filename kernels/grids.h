// The grids of the IQ formats: the weights that an index stands for. They are part of the file format. Constant data.
//
// IQ2 and IQ1: 8 columns of 4 bits: bits 8 i to 8 i + 3 are column i, the 4 bits above them column 4 + i. In IQ2 0, 1 and 2 mean
// 8, 25 and 43; in IQ1 -1, 0 and 1. IQ3: 4 columns of a byte each.
#pragma once

#include <stdint.h>

extern const uint32_t kin_grid_iq2_xxs[256];
extern const uint32_t kin_grid_iq2_xs[512];
extern const uint32_t kin_grid_iq2_s[1024];
extern const uint32_t kin_grid_iq1[2048];
extern const uint32_t kin_grid_iq3_xxs[256]; // at most 62
extern const uint32_t kin_grid_iq3_s[512];   // at most 15

// The weights of IQ3 that numbers from 0 to 7 mean.
#define KIN_GRID_IQ3_XXS(i) ((i) == 7 ? 62 : 8 * (i) + 4)
#define KIN_GRID_IQ3_S(i) (2 * (i) + 1)

// The same in two bytes, for looking up many bytes at once, if the processor may be able to: 4 columns of 2 bits each, or, in
// IQ3, two columns' numbers of 4 bits each, lowest first.
#ifdef __x86_64__
extern const uint8_t kin_grid_bytes_iq2_xxs[2][256];
extern const uint8_t kin_grid_bytes_iq2_xs[2][512];
extern const uint8_t kin_grid_bytes_iq2_s[2][1024];
extern const uint8_t kin_grid_bytes_iq1[2][2048];
extern const uint8_t kin_grid_bytes_iq3_xxs[2][256];
extern const uint8_t kin_grid_bytes_iq3_s[2][512];
#endif
