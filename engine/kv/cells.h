// The cells of one layer, token by token: keys and values are read out of a cell and written into another one, of the same layer
// on another device.
//
// Plain functions. Thread: the one that owns the KV cache.
#pragma once

#include <ggml.h>
#include <stdint.h>

#include "kernels/kernels.h"

typedef struct kin_kv_cells {
    kin_kv_layout layout;
    const kin_kernels *kernels; // blocks are laid out as kin_kv_layout says; NULL: cells are rows of ggml's tensors
    struct ggml_tensor *k, *v;
} kin_kv_cells;

// Returns the numbers of a row: f32 [n_head_kv][k_dim], [n_head_kv][v_dim].
static inline int kin_kv_cells_width(const kin_kv_layout *layout) {
    return layout->n_head_kv * (layout->k_dim + layout->v_dim);
}

// A row that was read out of a cell and is written into another gives it the same numbers: those of F16 are exact in f32, and
// those of Q8_0 have the same scale again, because the largest of a block is 127 times it.
void kin_kv_cells_get(const kin_kv_cells *cells, int64_t cell, float *row);
void kin_kv_cells_set(const kin_kv_cells *cells, int64_t cell, const float *row);
