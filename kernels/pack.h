// Internals of packing. A function packs a block of up to 16 rows: rows, as in GGUF -> their places in the panel. n: GGUF blocks
// of each row.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/panel.h"

typedef struct kin_pack_rows {
    const uint8_t *at; // the first row's block
    size_t step;       // bytes from one row to the next
    int n;             // at most KIN_PANEL_ROWS
} kin_pack_rows;

static inline const uint8_t *kin_pack_row(kin_pack_rows rows, int row) {
    return rows.at + (size_t)row * rows.step;
}

// The rows' next bytes: `bytes` further on.
static inline kin_pack_rows kin_pack_from(kin_pack_rows rows, ptrdiff_t bytes) {
    rows.at += bytes;
    return rows;
}

// Places n bytes of each row in groups of four, one group every 64 bytes.
void kin_pack_interleave(kin_pack_rows rows, int n, void *planes);

// Places n bytes of each row, one every 16 bytes.
void kin_pack_transpose(kin_pack_rows rows, int n, void *columns);

// Places two bytes of each row next to each other.
void kin_pack_halves(kin_pack_rows rows, void *halves);

// Packs the first 16 bytes of Q4_K and Q5_K: d, d_min, and eight scales and minima of 6 bits each in 12 bytes, of which the first
// eight have the low six bits of scales and minima 0 to 3, and the high two bits of 4 to 7; the last four have the low nibbles of
// 4 to 7.
void kin_pack_head_k4(kin_pack_rows rows, kin_panel_scales_k4 *scales, uint8_t d[32], uint8_t d_min[32]);

// ---- pack_grid.c

void kin_pack_iq3_xxs(kin_pack_rows rows, int n, void *panel);
void kin_pack_iq3_s(kin_pack_rows rows, int n, void *panel);
void kin_pack_iq2_xxs(kin_pack_rows rows, int n, void *panel);
void kin_pack_iq2_xs(kin_pack_rows rows, int n, void *panel);
void kin_pack_iq2_s(kin_pack_rows rows, int n, void *panel);
void kin_pack_iq1_s(kin_pack_rows rows, int n, void *panel);
void kin_pack_iq1_m(kin_pack_rows rows, int n, void *panel);
