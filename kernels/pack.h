// Internals of packing. A function packs one row of a block: b, as in GGUF -> its places in the panel. n: GGUF blocks in b.
#pragma once

#include <stdint.h>
#include <string.h>

#include "kernels/panel.h"

// Places n bytes in groups of four, one group every 64 bytes.
static inline void kin_pack_interleave(const uint8_t *b, int n, int row, void *planes) {
    for (int i = 0; i < n / 4; i++) memcpy((uint8_t *)planes + 64 * i + 4 * row, b + 4 * i, 4);
}

// Places n bytes, one every 16 bytes.
static inline void kin_pack_transpose(const uint8_t *b, int n, int row, void *columns) {
    for (int i = 0; i < n; i++) ((uint8_t *)columns)[16 * i + row] = b[i];
}

// ---- pack_grid.c

void kin_pack_iq3_xxs(const uint8_t *b, int n, int row, void *panel);
void kin_pack_iq3_s(const uint8_t *b, int n, int row, void *panel);
void kin_pack_iq2_xxs(const uint8_t *b, int n, int row, void *panel);
void kin_pack_iq2_xs(const uint8_t *b, int n, int row, void *panel);
void kin_pack_iq2_s(const uint8_t *b, int n, int row, void *panel);
void kin_pack_iq1_s(const uint8_t *b, int n, int row, void *panel);
void kin_pack_iq1_m(const uint8_t *b, int n, int row, void *panel);
