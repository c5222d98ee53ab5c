// A plan as the planner gave it, for devices that are known by their ids: who is the how manieth member of the ring, with which
// windows. The head is the last member.
//
// Plain data. Owner: ring/cluster.c. Thread: the loop's.
#pragma once

#include "model/manifest.h"
#include "pure/plan/hand.h"
#include "pure/plan/rounds.h"
#include "pure/proto/message.h"

typedef struct kin_planned {
    kin_ring_plan ring;
    kin_proto_id ids[KIN_ROUNDS_MAX_MEMBERS]; // of the members but the head
    kin_member_windows windows[KIN_ROUNDS_MAX_MEMBERS];
    int n_rounds; // 0: there is no plan yet
} kin_planned;

// From ring and ids: the windows of all.
int kin_planned_lay_out(kin_planned *planned, int n_layer, kin_err *err);

// Which member that device is; -1: none.
int kin_planned_find(const kin_planned *planned, const kin_proto_id *id);

// What a member has to do, in bytes that the roster compares // [KIN_PLANNED_STAGE_BYTES]. Returns how many.
enum { KIN_PLANNED_STAGE_BYTES = 16 + KIN_MAX_WINDOWS * (int)(sizeof(kin_window) + sizeof(int)) };
size_t kin_planned_stage(const kin_planned *planned, int i, uint8_t *bytes);

// The member's part of the message: rounds, windows, memory.
void kin_planned_fill(const kin_planned *planned, int i, kin_proto_plan *message);
