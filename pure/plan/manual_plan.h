// Plans without a model of time: even shares, shares by memory (the paper's MemSched, A.10), and plans that a person wrote.
//
// Pure: no I/O, no clock, no threads.
#pragma once

#include <stdint.h>

#include "pure/plan/rounds.h"

// A machine that could take part. The head is the last candidate.
typedef struct kin_candidate {
    const char *name;
    uint64_t memory; // bytes
} kin_candidate;

// As a person writes it down.
typedef struct kin_manual_plan_entry {
    char name[64];
    int n_layers, n_gpu_layers; // of a window
    uint64_t memory;            // most bytes; 0: what the device can spare
} kin_manual_plan_entry;

typedef struct kin_manual_plan {
    int n_entries; // 0: no plan by hand
    kin_manual_plan_entry entries[KIN_ROUNDS_MAX_MEMBERS];
} kin_manual_plan;

// What each member does, in the order of the ring: the head comes last.
typedef struct kin_ring_plan {
    int n_rounds; // 0: shares are of a round, and rounds follow; else they are of all rounds together (pure/plan/rounds.h)
    int n_members;
    int candidate[KIN_ROUNDS_MAX_MEMBERS]; // which one
    kin_round_share shares[KIN_ROUNDS_MAX_MEMBERS];
    uint64_t memory[KIN_ROUNDS_MAX_MEMBERS];
} kin_ring_plan;

// Windows of (about) the same size for every member, in n_rounds rounds.
int kin_plan_even(const kin_candidate *candidates, int n, int n_layer, int n_rounds, kin_ring_plan *out, kin_err *err);

// In proportion to memory.
int kin_plan_by_memory(const kin_candidate *candidates, int n, int n_layer, int n_rounds, kin_ring_plan *out, kin_err *err);

// As written, in the order written. Fails while one of the named devices is not among the candidates.
int kin_manual_plan_apply(const kin_manual_plan *plan, const kin_candidate *candidates, int n, kin_ring_plan *out, kin_err *err);
