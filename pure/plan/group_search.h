// Finds the best plan with groups in its ring. One group with the whole model and a ring of single devices are the two extremes.
//
// Candidates are sets of 2 to KIN_GROUP_SEARCHED devices that reach each other, and whose shared layers take less time than the
// shares one after the other (kin_group_saves_s) or that are short of memory (kin_group_is_short); for the latter, each method of
// sharing is a candidate of its own (kin_group_shares). For each choice of disjoint candidates, each group is put in the place of
// its last device, and `exact` (exact.c) finds the best ring in which all of them compute, if it beats the best known. So the
// result is the best plan that these candidates allow, and proven if each search is.
//
// Limits: candidates are made from the KIN_GROUP_POOL fastest devices; the best KIN_GROUP_CANDIDATES of these are used, starting
// with a set of disjoint ones; at most KIN_GROUP_SETS choices are searched.
//
// Pure: no I/O, no clock, no threads.
#pragma once

#include <stddef.h>

#include "pure/plan/group.h"
#include "pure/plan/latency.h"
#include "pure/plan/scheduler.h"

enum {
    KIN_GROUP_SEARCHED = 4,
    KIN_GROUP_POOL = 16,
    KIN_GROUP_CANDIDATES = 96,
    KIN_GROUP_SETS = 512,
    KIN_GROUP_EXPLAIN_MAX = 640,
};

typedef struct kin_grouped_plan {
    kin_plan plan; // groups.n 0: there is no plan with groups, and `reason` says why. bound_s holds for all such plans, if proven
    kin_group_time times[KIN_GROUPS_MAX];
    int n_streamed[KIN_GROUPS_MAX]; // layers of the group that the member shortest of memory reads for each token
    kin_prediction prediction;      // from the timeline
    bool is_proven;                 // no plan with these candidates is better
    bool is_only_tried;             // none is faster than below_s: this is the best group on its own
    char reason[KIN_FACTS_MAX_REASON];
} kin_grouped_plan;

// Finds the best plan with groups that takes less than below_s or, if there is none, the plan with the best group, although it is
// slower. Fails if out of memory, or if facts are not possible.
int kin_plan_grouped(const kin_facts *facts, const kin_plan_options *options, double below_s, kin_grouped_plan *out,
                     kin_err *err);

// Writes a sentence such as "a group is faster: desk + head share 32 layers, 12 of them from disk, 2 x 32 sums of 0.11 ms cost
// 7.0 ms; sharing the layers gains 21 ms of computing and 40 ms of waiting for disks: 63 ms a token, the ring 124". It begins
// with "no group: " if the group was only tried, and with "a ring is faster: " for other plans that are slower. ring: the best
// ring of single devices.
void kin_grouped_explain(const kin_facts *facts, const kin_grouped_plan *plan, const kin_prediction *ring, char *buf, size_t n);
