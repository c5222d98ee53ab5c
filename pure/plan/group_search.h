// The best plan with groups in its ring: one group of the whole model and a ring of single devices are the ends of one scale.
//
// Candidates are the sets of 2 to KIN_GROUP_SEARCHED devices that reach each other and whose layers take less than the shares one
// after the other (kin_group_saves_s), or that are short of memory (kin_group_is_short); of the latter, each way to share is a
// candidate of its own (kin_group_shares). For each choice of candidates that have no device in common, each group
// is put in the place of its last device, and `exact` (exact.c) finds the best ring in which all of them compute, if it is better
// than what is known. So the answer is the best of all that these candidates allow, and proven where each search is.
//
// Limits: candidates are made of the KIN_GROUP_POOL fastest devices; of these the best KIN_GROUP_CANDIDATES are taken, those of
// a cover without common devices first; at most KIN_GROUP_SETS choices of them are searched.
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
    KIN_GROUP_SAY_MAX = 640,
};

typedef struct kin_grouped_plan {
    kin_grouping grouping; // n 0: there is no plan with groups, and `reason` says why
    kin_group_time times[KIN_GROUPS_MAX];
    int n_streamed[KIN_GROUPS_MAX]; // layers of the group that its fullest member reads for each token
    kin_plan plan;             // of the facts with these groups (kin_grouping_apply); bound_s: of all such plans, if it is proven
    kin_prediction prediction; // by the timeline
    bool is_proven;            // no plan with these candidates is better
    bool is_only_tried;        // none is faster than below_s: this is the best group on its own
    char reason[KIN_FACTS_MAX_REASON];
} kin_grouped_plan;

// The best plan with groups of those that take less than below_s, or, where there is none, the one with the best group, which is
// slower. Fails for want of memory, or where facts cannot be.
int kin_plan_grouped(const kin_facts *facts, const kin_plan_options *options, double below_s, kin_grouped_plan *out,
                     kin_err *err);

// "a group is faster: desk + head share 32 layers, 12 of them from disk, 2 x 32 sums of 0.11 ms cost 7.0 ms; sharing the layers
// gains 21 ms of computing and 40 ms of waiting for disks: 63 ms a token, the ring 124"; "no group: " of one that was only
// tried, "a ring is faster: " of others that are slower. ring: what the best ring of single devices takes.
void kin_grouped_say(const kin_facts *facts, const kin_grouped_plan *plan, const kin_prediction *ring, char *buf, size_t n);
