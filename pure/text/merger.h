// Merger: joins neighbouring symbols, best pair first, until none can be joined. The common core of SPM and BPE.
//
// A rule says whether two neighbours may be joined and how early; among equals the leftmost pair goes first.
// With n symbols there are at most 3n questions to the rule, and O(n log n) time: a heap holds the candidates, and those
// that a join has made stale are skipped when they surface.
//
// Working memory of one encode call; grows to the largest run and is used again. One thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KIN_SYMBOL_NONE UINT32_MAX

typedef struct kin_symbol {
    uint32_t at, len; // bytes of the text; len 0: joined into its left neighbour
    uint32_t id;      // of the rule's making
    int32_t prev, next;
} kin_symbol;

typedef struct kin_candidate {
    uint64_t order; // rule's order << 32 | left
    int32_t right;
    uint32_t len; // of both together when the candidate was found
    uint32_t id;  // what they become
} kin_candidate;

typedef struct kin_merger {
    kin_symbol *symbols; // [n]
    size_t n, cap;
    kin_candidate *heap; // [n_heap], room for 2 * cap
    size_t n_heap;
} kin_merger;

// May `left` and its right neighbour be joined? If so sets order (smaller first) and the id of the result.
typedef bool (*kin_merge_rule)(const void *rules, const char *text, const kin_symbol *left, const kin_symbol *right,
                               uint32_t *order, uint32_t *id);

void kin_merger_fini(kin_merger *merger); // begin with {0}

// Forgets all symbols and makes room for n. Fails without memory.
int kin_merger_begin(kin_merger *merger, size_t n, kin_err *err);

// Appends a symbol; at most n since begin.
void kin_merger_add(kin_merger *merger, uint32_t at, uint32_t len, uint32_t id);

// Afterwards symbols with len > 0 are the result, in order.
void kin_merger_run(kin_merger *merger, kin_merge_rule rule, const void *rules, const char *text);
