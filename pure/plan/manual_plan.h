// Plans without a model of time: even shares, shares by memory (the paper's MemSched, A.10), one group, and plans written by a
// person.
//
// Pure: no I/O, no clock, no threads.
#pragma once

#include "pure/plan/plan.h"

enum { KIN_CANDIDATE_NAME = 64 };

// A machine that can take part. Number 0 is the head.
typedef struct kin_candidate {
    char name[KIN_CANDIDATE_NAME];
    uint64_t memory; // bytes
    bool has_layers; // it had layers in the last plan
} kin_candidate;

// One line of a plan written by a person.
typedef struct kin_manual_plan_entry {
    char name[KIN_CANDIDATE_NAME];
    int n_layers, n_gpu_layers; // of a window
    int n_cpu_moe;              // how many of its GPU layers have their experts on the CPU
    uint64_t memory;            // limit in bytes; 0: what the device can spare
    int group;                  // entries with the same number share each layer of the first one's window; 0: not in a group
    double weight;              // determines its share of a layer
} kin_manual_plan_entry;

// What a person wrote: names instead of numbers of devices.
typedef struct kin_manual_plan {
    int n_entries; // 0: no manual plan
    kin_manual_plan_entry entries[KIN_FACTS_MAX_DEVICES];
} kin_manual_plan;

// Gives every candidate // [n] windows of (about) the same size in n_rounds rounds. A device without layers is not in the ring.
int kin_plan_even(const kin_candidate *candidates, int n, int n_layer, int n_rounds, kin_plan *out, kin_err *err);

// The same in proportion to memory.
int kin_plan_by_memory(const kin_candidate *candidates, int n, int n_layer, int n_rounds, kin_plan *out, kin_err *err);

// Puts all devices into one group that shares all layers; a standalone head has all layers. Ranks are ordered by name, the head
// last, so each device finds its slices in its cache regardless of the order of joining. n_most: most devices that can share a
// layer of the model; if there are more, those that had layers in the last plan come first, then the others in their order.
// n_most < 2 means all; layout then reports the error.
void kin_plan_one_group(const kin_candidate *candidates, int n, int n_most, int n_layer, kin_plan *out);

// Fails if the plan names a device twice.
int kin_manual_plan_check(const kin_manual_plan *plan, kin_err *err);
// Fails if its windows cannot cover n_layer layers.
int kin_manual_plan_check_layers(const kin_manual_plan *plan, int n_layer, kin_err *err);

// Applies a checked plan in the order in which it is written. A group with the head comes last. Fails while a named device is not
// among the candidates.
int kin_manual_plan_apply(const kin_manual_plan *plan, const kin_candidate *candidates, int n, int n_layer, kin_plan *out,
                          kin_err *err);
