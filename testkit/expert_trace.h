// Generated routings of a mixture of experts, and what a cache of experts does with them.
//
// Kinds: skewed: each layer prefers some experts, whatever the text; local: no expert is preferred, but a text uses a few experts
// of each layer for a while; both; flat: each token chooses independently.
#pragma once

#include <stdint.h>

#include "pure/plan/expert_cache.h"

typedef enum kin_trace_kind {
    KIN_TRACE_SKEWED,
    KIN_TRACE_LOCAL,
    KIN_TRACE_BOTH,
    KIN_TRACE_FLAT,
    KIN_TRACE_N_KINDS,
} kin_trace_kind;

extern const char *const kin_trace_names[KIN_TRACE_N_KINDS];

typedef struct kin_expert_trace {
    int n_layer, n_expert, n_used, n_tokens;
    int32_t *chosen; // [n_tokens][n_layer][n_used], all different within a token's layer
} kin_expert_trace;

// Generates a trace with the shape that is set in it.
int kin_expert_trace_make(kin_expert_trace *trace, kin_trace_kind kind, uint64_t seed, kin_err *err);
void kin_expert_trace_free(kin_expert_trace *trace);

// The fraction of uses that find their expert in a cache of n_slots experts, after the first n_warm tokens.
int kin_expert_trace_replay(const kin_expert_trace *trace, kin_expert_policy policy, int64_t n_slots, int n_warm, double *hits,
                            kin_err *err);

// The same in n_first tokens of a cache that is empty at first (hits[0]), and of one that is filled with the experts that the
// first n_learn tokens used most (hits[1]). n_gap tokens lie between, so that the text is another one.
int kin_expert_trace_restart(const kin_expert_trace *trace, int64_t n_slots, int n_learn, int n_gap, int n_first, double hits[2],
                             kin_err *err);

// The same as kin_expert_trace_replay for Belady's cache, which knows the future: the expert leaves that is needed last. No cache
// has more hits.
int kin_expert_trace_belady(const kin_expert_trace *trace, int64_t n_slots, int n_warm, double *hits, kin_err *err);
