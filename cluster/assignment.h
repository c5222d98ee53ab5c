// An assignment: a plan with the ids of its devices: which device is member i of the ring, and its windows. The head is the last
// member.
//
// Plain data. Owner: cluster/cluster.c. Thread: the loop's.
#pragma once

#include "model/manifest.h"
#include "model/share.h"
#include "pure/plan/manual_plan.h"
#include "pure/plan/rounds.h"
#include "pure/proto/message.h"

typedef struct kin_assignment {
    kin_ring_plan ring;
    kin_proto_id ids[KIN_ROUNDS_MAX_MEMBERS]; // of the members without the head
    kin_member_windows windows[KIN_ROUNDS_MAX_MEMBERS];
    kin_share shares[KIN_ROUNDS_MAX_MEMBERS]; // of each layer, for members of groups
    int n_rounds;                             // 0: there is no plan yet
    uint32_t question;                        // the planner's question that it answers
} kin_assignment;

// Computes all windows from ring and ids, and the shares of groups for a KV cache of that type (an enum ggml_type).
int kin_assignment_lay_out(kin_assignment *planned, const kin_model *model, int kv_type, kin_err *err);

// Returns the member index of that device; -1: none.
int kin_assignment_find(const kin_assignment *planned, const kin_proto_id *id);

// Serializes a member's work into bytes that the membership compares // [KIN_ASSIGNMENT_BYTES]. Returns their number.
enum { KIN_ASSIGNMENT_BYTES = 16 + (int)sizeof(kin_share) + KIN_MAX_WINDOWS * (int)(sizeof(kin_window) + sizeof(int)) };
size_t kin_assignment_of(const kin_assignment *planned, int i, uint8_t *bytes);

// Fills in the member's part of the message: rounds, windows, memory, its share of a group.
void kin_assignment_fill(const kin_assignment *planned, int i, kin_proto_plan *message);
