// How attention is cut into tasks. For kernels/ only; the interface is kernels.h.
//
// A tile is consecutive rows with the same block table. Tasks are numbered [kv head][tile][span].
#pragma once

#include "kernels/kernels.h"

enum {
    KIN_TILE_QUERIES = 64,  // of a tile, for one kv head, at most
    KIN_TILE_VALUES = 8192, // of its queries: 64 of 128, 32 of 256 (they are kept in the first two caches with a tile of K or V)
};

// The row after the last one of the tile that begins at `row`.
int64_t kin_attention_tile_end(const kin_attention *a, int64_t row);

// The first row of a tile. Quick where a caller's tiles ascend: `a` remembers the last one.
int64_t kin_attention_tile_row(kin_attention *a, int64_t tile);

// Queries of one kv head that are computed together, at most.
static inline int kin_attention_queries(const kin_attention *a) {
    int n = KIN_TILE_VALUES / a->kv.head_dim;
    return n < KIN_TILE_QUERIES ? n : KIN_TILE_QUERIES;
}

// A span's result for one query, in `partial` [n_rows][n_head][n_spans]: maximum, sum, [head_dim] values. In floats.
static inline int64_t kin_attention_partial_floats(const kin_kv_layout *kv) {
    return kv->head_dim + 16;
}
enum { KIN_PARTIAL_MAX = 0, KIN_PARTIAL_SUM = 1, KIN_PARTIAL_VALUES = 16 };
