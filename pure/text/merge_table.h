// Merge table: which two neighbours byte-level BPE may join, how early, and into what.
//
// Sized once for a known number of merges. After the last add, reading is safe from any thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct kin_merge {
    uint32_t left, right; // symbols
    uint32_t rank;        // 0 first
    uint32_t result;      // symbol
} kin_merge;

typedef struct kin_merge_table {
    kin_merge *slots; // [n_slots], a power of 2; left == UINT32_MAX: free
    uint32_t n_slots;
} kin_merge_table;

// Room for n merges. Returns 0, or KIN_FAIL without memory.
int kin_merge_table_init(kin_merge_table *table, size_t n);
void kin_merge_table_fini(kin_merge_table *table);

// Symbols are below UINT32_MAX. A pair that is there already keeps its rank. At most n times.
void kin_merge_table_add(kin_merge_table *table, kin_merge merge);

// The merge of two neighbours, or NULL.
const kin_merge *kin_merge_table_find(const kin_merge_table *table, uint32_t left, uint32_t right);
