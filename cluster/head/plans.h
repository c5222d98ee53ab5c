// The plans of a cluster, laid out for its members: the active one, one that is prepared beside it, and the planner's latest
// answer.
//
// Owner: kin_cluster. Its other parts may read the plans, and use `message`. Thread: the loop's.
#pragma once

#include "cluster/assignment.h"
#include "cluster/head_options.h"

enum { KIN_CLUSTER_SEQUENCES = 1 << 16 }; // most in a step

typedef struct kin_cluster_plans {
    const kin_cluster_options *o;
    kin_assignment *active, *next, *asked; // next: prepared beside it; asked: the latest answer
    kin_proto_message *message;            // scratch: a plan to be sent
} kin_cluster_plans;

int kin_cluster_plans_open(kin_cluster_plans *plans, const kin_cluster_options *options, kin_err *err);
void kin_cluster_plans_close(kin_cluster_plans *plans);

// Returns the answer to that question: the latest, or the one that is prepared.
const kin_assignment *kin_cluster_plans_answer(const kin_cluster_plans *plans, uint32_t question);
// Makes that answer the active plan.
void kin_cluster_plans_activate(kin_cluster_plans *plans, uint32_t question);
// Keeps the latest answer as `next`.
void kin_cluster_plans_keep_next(kin_cluster_plans *plans);

// Fills in the i-th member's part of a plan, without its neighbours.
void kin_cluster_plans_fill(const kin_cluster_plans *plans, const kin_assignment *of, int i, kin_proto_plan *out);
