// How attention is divided into tasks. Private to kernels/; the interface is kernels.h.
//
// A tile is a run of consecutive rows with the same block table, or one row that attends to chosen positions. If a row has more
// queries of one kv head than a tile, they are divided into parts of nearly equal size. Tasks are numbered [kv
// head][part][tile][span].
#pragma once

#include "kernels/kernels.h"

enum {
    KIN_GROUP_CELLS = 4,    // cells that are read together where groups of positions are chosen: they are in one block
    KIN_TILE_QUERIES = 64,  // maximum per tile, for one kv head
    KIN_TILE_VALUES = 8192, // maximum values of a tile's queries: 64 of 128, 32 of 256, 14 of 576 (with a tile of K or V
                            // they fit in the first two cache levels)
};

// True if a row attends to chosen positions only.
static inline bool kin_attention_chooses(const kin_attention *a, int64_t row) {
    if (a->chosen_groups) return a->n_cells[row] - a->n_cells[row] % a->chosen_step > a->n_chosen;
    return (a->chosen || a->chosen_blocks) && a->n_cells[row] > a->n_chosen;
}
// Returns how many cells a row attends to: n_cells, or the number of chosen ones.
static inline int32_t kin_attention_end(const kin_attention *a, int64_t row) {
    const int32_t n = a->n_cells[row];
    if (!kin_attention_chooses(a, row)) return n;
    if (a->chosen_groups) return a->n_chosen + n % a->chosen_step;
    if (!a->chosen) return a->n_chosen - a->chosen_step + (n - 1) % a->chosen_step + 1;
    return a->chosen_pool > 1 ? a->n_chosen - a->chosen_pool + 1 + n % a->chosen_pool : a->n_chosen;
}
// Returns the position that takes a place in the spans of a row whose choice is one of positions or of groups.
static inline int32_t kin_attention_position(const kin_attention *a, int64_t row, int place) {
    const int step = a->chosen_step;
    if (!kin_attention_chooses(a, row)) return place;
    if (!a->chosen_groups) return a->chosen[row * a->n_chosen + place];
    if (place >= a->n_chosen) return a->n_cells[row] - a->n_cells[row] % step + place - a->n_chosen;
    return a->chosen_groups[row * (a->n_chosen / step) + place / step] * step + place % step;
}
// Returns the table of cache blocks that a row attends to, for a kv head: entry i has its cells 64 i to 64 i + 63.
static inline const int32_t *kin_attention_blocks(const kin_attention *a, int64_t row, int head) {
    if (!a->chosen_blocks || !kin_attention_chooses(a, row)) return a->blocks[row];
    return a->chosen_blocks + (row * a->kv.n_head_kv + head) * (a->n_chosen / KIN_KV_CELLS);
}

// Returns the end (one past the last row) of the tile that begins at `row`.
int64_t kin_attention_tile_end(const kin_attention *a, int64_t row);

// Returns the first row of a tile. Fast if a caller asks for tiles in ascending order: `a` remembers the last one.
int64_t kin_attention_tile_row(kin_attention *a, int64_t tile);

// Returns the maximum number of queries of one kv head that are computed together.
static inline int kin_attention_queries(const kin_attention *a) {
    int n = KIN_TILE_VALUES / (a->kv.k_dim > a->kv.v_dim ? a->kv.k_dim : a->kv.v_dim);
    return n < KIN_TILE_QUERIES ? n : KIN_TILE_QUERIES;
}

// Returns the number of parts, and the first query of a part within its group.
static inline int64_t kin_attention_parts(const kin_attention *a) {
    const int64_t group = a->n_head / a->kv.n_head_kv, most = kin_attention_queries(a);
    return (group + most - 1) / most;
}
static inline int64_t kin_attention_part_begin(const kin_attention *a, int64_t part) {
    return a->n_head / a->kv.n_head_kv * part / kin_attention_parts(a);
}

// A span's result for one query, in `partial` [n_rows][n_head][n_spans]: maximum, sum, [v_dim] values. Size in floats.
static inline int64_t kin_attention_partial_floats(const kin_kv_layout *kv) {
    return kv->v_dim + 16;
}
enum { KIN_PARTIAL_MAX = 0, KIN_PARTIAL_SUM = 1, KIN_PARTIAL_VALUES = 16 };
