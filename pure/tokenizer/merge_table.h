// Merge table of byte-level BPE: maps a pair of adjacent symbols to its rank and its result.
//
// Sized once for a known number of merges. After the last add any thread may read it.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct kin_merge {
    uint32_t left, right; // symbols
    uint32_t rank;        // 0 is applied first
    uint32_t result;      // symbol
} kin_merge;

typedef struct kin_merge_table {
    kin_merge *slots; // [n_slots], a power of 2; left == UINT32_MAX: free
    uint32_t n_slots;
} kin_merge_table;

// Reserves room for n merges. Returns 0, or KIN_FAIL if memory runs out.
int kin_merge_table_init(kin_merge_table *table, size_t n);
void kin_merge_table_fini(kin_merge_table *table);

// Adds a merge; at most n times. Symbols are below UINT32_MAX. A pair that is already present keeps its rank.
void kin_merge_table_add(kin_merge_table *table, kin_merge merge);

// Returns the merge of two adjacent symbols, or NULL.
const kin_merge *kin_merge_table_find(const kin_merge_table *table, uint32_t left, uint32_t right);
