// Merger: joins adjacent symbols, best pair first, until no pair can be joined. SPM and BPE share it.
//
// A rule decides whether two neighbours may be joined and in which order; among equals the leftmost pair goes first. For n
// symbols the rule is called at most 3n times, and the time is O(n log n): a heap holds the candidates, and candidates that a
// join has made stale are skipped when they are popped.
//
// Working memory of encode calls; it grows to the largest run and is reused. One thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KIN_SYMBOL_NONE UINT32_MAX

typedef struct kin_symbol {
    uint32_t at, len; // bytes of the text; len 0: joined into its left neighbour
    uint32_t id;      // assigned by the rule
    int32_t prev, next;
} kin_symbol;

typedef struct kin_candidate {
    uint64_t order; // rule's order << 32 | left
    int32_t right;
    uint32_t len; // of both symbols when the candidate was found
    uint32_t id;  // id of the joined symbol
} kin_candidate;

typedef struct kin_merger {
    kin_symbol *symbols; // [n]
    size_t n, cap;
    kin_candidate *heap; // [n_heap], room for 2 * cap
    size_t n_heap;
} kin_merger;

// Returns true if `left` and its right neighbour may be joined; then sets order (smaller first) and the id of the result.
typedef bool (*kin_merge_rule)(const void *rules, const char *text, const kin_symbol *left, const kin_symbol *right,
                               uint32_t *order, uint32_t *id);

void kin_merger_fini(kin_merger *merger); // zero-initialise before first use

// Removes all symbols and makes room for n. Fails if memory runs out.
int kin_merger_begin(kin_merger *merger, size_t n, kin_err *err);

// Appends a symbol; at most n times after begin.
void kin_merger_add(kin_merger *merger, uint32_t at, uint32_t len, uint32_t id);

// Joins symbols. The result is the symbols with len > 0, in order.
void kin_merger_run(kin_merger *merger, kin_merge_rule rule, const void *rules, const char *text);
