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
