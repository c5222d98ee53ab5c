// An assignment: a plan laid out for the members of its ring: their ids, windows and shares of layers. Member 0 is the head. The
// others follow in the order of the ring, each device of a group for itself; after the last one comes the head again.
//
// Plain data. Owner: cluster/head/plans.h. Thread: the loop's.
#pragma once

#include "model/manifest.h"
#include "model/share.h"
#include "pure/plan/plan.h"
#include "pure/proto/message.h"

typedef struct kin_assignment {
    int n_members, n_rounds;                 // 0: there is no plan yet
    kin_proto_id ids[KIN_FACTS_MAX_DEVICES]; // [n_members]
    kin_member_windows windows[KIN_FACTS_MAX_DEVICES];
    kin_share shares[KIN_FACTS_MAX_DEVICES]; // of each layer, for members of groups
    uint64_t memory[KIN_FACTS_MAX_DEVICES];  // limit in bytes; 0: what the device can spare
    uint32_t question;                       // the planner's question that it answers
} kin_assignment;

// Lays out a plan; `ids` are those of its devices. The shares of groups fit a KV cache of that type (an enum ggml_type). Fails if
// the model's layers cannot be shared so.
int kin_assignment_lay_out(kin_assignment *out, const kin_plan *plan, const kin_proto_id *ids, const kin_model *model,
                           int kv_type, kin_err *err);

// Returns the member index of that device; -1: none, or the head.
int kin_assignment_find(const kin_assignment *planned, const kin_proto_id *id);

// Returns the member that is `by` places behind member i in the ring; `by` may be negative.
static inline int kin_assignment_behind(const kin_assignment *planned, int i, int by) {
    return (i + by + planned->n_members) % planned->n_members;
}

// Fills in the member's part of the message: rounds, windows, memory, its share of a group.
void kin_assignment_fill(const kin_assignment *planned, int i, kin_proto_plan *message);
