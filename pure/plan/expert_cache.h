// Which experts stay in memory when not all of them fit: the table of a cache of experts, without their bytes.
//
// A layer's router chooses the experts of each token; those that are not in memory are read, and others leave. All layers share
// one budget. Every expert has a worth, and the least worthy leave first. An expert that the current step needs never leaves,
// even if the budget is exceeded for it.
//
//   worth = fast + SLOW_WEIGHT * slow
//
// fast and slow count the tokens that used the expert, halved every HALF_FAST and HALF_SLOW tokens of its layer. fast is recency:
// texts use some experts again soon. slow is how much the model prefers the expert at all. bench/experts compares this with LRU
// and with counts alone (docs/EXPERTS.md).
//
// Pure: no I/O, no clock, no threads. Owner: engine/experts.h, or a simulation.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct kin_expert_cache kin_expert_cache;

typedef enum kin_expert_policy {
    KIN_EXPERTS_MIXED, // the worth above
    KIN_EXPERTS_LRU,   // the expert that was not used for the longest time leaves
    KIN_EXPERTS_LFU,   // slow alone
    KIN_EXPERTS_N_POLICIES,
} kin_expert_policy;

typedef struct kin_expert_cache_options {
    int n_layer, n_expert;
    const uint64_t *bytes; // [n_layer] of each expert of a layer; 0: the layer's experts are not in the cache. Copied
    uint64_t budget;       // bytes
    kin_expert_policy policy;
} kin_expert_cache_options;

int kin_expert_cache_open(kin_expert_cache **out, const kin_expert_cache_options *options, kin_err *err);
void kin_expert_cache_close(kin_expert_cache *cache);

// The changes that a layer's step requires. An expert's number is layer * n_expert + expert.
typedef struct kin_expert_changes {
    int32_t *evicted; // [n_layer * n_expert] of which n_evicted are set; they leave first
    size_t n_evicted;
    int32_t *missing; // [n_expert] of which n_missing are set: to be read; in ascending order, but for fill and expect
    size_t n_missing;
} kin_expert_changes;

// A step of n_tokens tokens has come to a layer; uses // [n_expert]: how many of them use each expert. Those with uses are in the
// cache from now on, and stay at least until the next call. The result is valid until the next call.
const kin_expert_changes *kin_expert_cache_use(kin_expert_cache *cache, int il, const int32_t *uses, int n_tokens);

// The same for a step that does not need all of its experts at once. `count` begins it. `need` comes for each group of its
// experts
// // [n]: they are in the cache from then on, and stay until the next call of `need`, `count` or `use`. What is `missing` is in
// the order of `experts`.
void kin_expert_cache_count(kin_expert_cache *cache, int il, const int32_t *uses, int n_tokens);
const kin_expert_changes *kin_expert_cache_need(kin_expert_cache *cache, const int32_t *experts, int n);

// A layer's next step will likely use these experts, or later groups of the step that is there need them: they are in the cache
// from now on, and stay until then, but as many as there is room for without those that are needed or expected already. What is
// `missing` is to be read; it is in the order of `experts`. n: at most n_expert.
const kin_expert_changes *kin_expert_cache_expect(kin_expert_cache *cache, int il, const int32_t *experts, int n);

// Removes an expert that was expected but was not read.
void kin_expert_cache_remove(kin_expert_cache *cache, int32_t number);

// Changes the budget. Experts that the last step needs stay; they leave in a later step. Those that are only expected may leave.
const kin_expert_changes *kin_expert_cache_set_budget(kin_expert_cache *cache, uint64_t budget);

// Removes a layer's experts from the cache, because their bytes have changed. They must not be in use.
const kin_expert_changes *kin_expert_cache_forget(kin_expert_cache *cache, int il);

// Counts of an earlier run: *slow* above // [n_layer * n_expert]. Layers without experts in the cache are skipped by both.
void kin_expert_cache_set_counts(kin_expert_cache *cache, const float *counts);
void kin_expert_cache_get_counts(const kin_expert_cache *cache, float *counts);

// Adds the most worthy experts that were used at all, at most n (at most n_expert), as far as there is room without evicting
// others. They are `missing` in the order of their worth.
const kin_expert_changes *kin_expert_cache_fill(kin_expert_cache *cache, size_t n);

bool kin_expert_cache_has(const kin_expert_cache *cache, int32_t number);
uint64_t kin_expert_cache_held(const kin_expert_cache *cache); // bytes

// Divides a budget for weights between experts and the other weights. The others are used by every token, so they come first; but
// experts get room for those of one layer, or half of the budget if that is less, and always for those of a token. other: bytes
// of the other weights; ring: what is enough to stream them; layer: bytes of all experts of a layer; token: of those that a token
// uses in it. Returns the experts' part.
uint64_t kin_expert_cache_divide(uint64_t budget, uint64_t other, uint64_t ring, uint64_t layer, uint64_t token);
