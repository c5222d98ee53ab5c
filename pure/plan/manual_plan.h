// Plans without a model of time: even shares, shares by memory (the paper's MemSched, A.10), and plans that a person wrote.
//
// Pure: no I/O, no clock, no threads.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pure/plan/rounds.h"

// A machine that could take part. The head is the last candidate.
typedef struct kin_candidate {
    const char *name;
    uint64_t memory; // bytes
    bool has_layers; // in the last plan
} kin_candidate;

// As a person writes it down.
typedef struct kin_manual_plan_entry {
    char name[64];
    int n_layers, n_gpu_layers; // of a window
    uint64_t memory;            // most bytes; 0: what the device can spare
    int group;                  // entries of the same number share each layer of the first one's window; 0: of no group
    double weight;              // of its share
} kin_manual_plan_entry;

typedef struct kin_manual_plan {
    int n_entries; // 0: no plan by hand
    kin_manual_plan_entry entries[KIN_ROUNDS_MAX_MEMBERS];
} kin_manual_plan;

// A member's place among members that follow each other in the ring and share each layer (model/share.h). n_ranks 0: none.
typedef struct kin_ring_group {
    int rank, n_ranks;
    double weight; // of its share
} kin_ring_group;

// What each member does, in the order of the ring: the head comes last.
typedef struct kin_ring_plan {
    int n_rounds; // 0: shares are of a round, and rounds follow; else they are of all rounds together (pure/plan/rounds.h)
    int n_members;
    int candidate[KIN_ROUNDS_MAX_MEMBERS]; // which one
    kin_round_share shares[KIN_ROUNDS_MAX_MEMBERS];
    uint64_t memory[KIN_ROUNDS_MAX_MEMBERS];
    kin_ring_group groups[KIN_ROUNDS_MAX_MEMBERS]; // of a group only rank 0 has layers in `shares`
} kin_ring_plan;

// The same windows for all devices of a group: those of its rank 0. windows // [n_members] of the plan
void kin_ring_plan_share_windows(const kin_ring_plan *plan, kin_member_windows *windows);

// Windows of (about) the same size for every member, in n_rounds rounds. A device for which there is no layer is no member.
int kin_plan_even(const kin_candidate *candidates, int n, int n_layer, int n_rounds, kin_ring_plan *out, kin_err *err);

// In proportion to memory.
int kin_plan_by_memory(const kin_candidate *candidates, int n, int n_layer, int n_rounds, kin_ring_plan *out, kin_err *err);

// All of them are one group, which shares all layers; on its own the head has them. Ranks by name, the head last: each device
// finds its slices in its cache, in whatever order they join. n_most: devices that can share a layer of the model; where more are
// there, those that had layers in the last plan come first, then the others in their order. Less than 2: all, for who lays out
// the plan says why that cannot be.
int kin_plan_one_group(const kin_candidate *candidates, int n, int n_most, int n_layer, kin_ring_plan *out, kin_err *err);

// Whether some devices could be those of the plan: fails where it names one twice.
int kin_manual_plan_check(const kin_manual_plan *plan, kin_err *err);
// Whether its windows could be those of n_layer layers.
int kin_manual_plan_check_layers(const kin_manual_plan *plan, int n_layer, kin_err *err);

// As written, in the order written, of a plan that was checked. A group with the head comes last. Fails while one of the named
// devices is not among the candidates.
int kin_manual_plan_apply(const kin_manual_plan *plan, const kin_candidate *candidates, int n, kin_ring_plan *out, kin_err *err);
