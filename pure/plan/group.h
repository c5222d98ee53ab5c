// A group of devices that share each layer (tensor parallelism): what a token would take with them, and which group is the best.
//
//     T = hops + 2 L sum_s + L (max over members of attention_s + max over members of feed_forward_s) + output_s
//
// Each member computes its share at its own pace, and both sums of a layer wait for the slowest. A sum is one exchange of all
// with all: half a round trip, the parts that go out on one link one after the other, and a fixed cost. Hops: a step passes the
// members one after the other and comes back to the head, before and while they compute.
//
// Shares are dealt as the engine deals them: pieces of attention and of the feed-forward block, in proportion to each member's
// speed. A member's share must fit its memory: groups whose weights stream are not predicted.
//
// Pure: no I/O, no clock, no threads.
#pragma once

#include <stddef.h>

#include "pure/plan/facts.h"

enum { KIN_GROUP_MAX = 8, KIN_GROUP_SAY_MAX = 240 };

typedef struct kin_group_plan {
    int n;                         // members; 0: there is no such group, and `reason` says why
    int devices[KIN_GROUP_MAX];    // in the order of the ranks, the head last
    double weights[KIN_GROUP_MAX]; // of the shares
    double tpot_s;
    double compute_s; // of the layers, and the output
    double sum_s;     // one of 2 n_layer
    double sums_s, hops_s;
    char reason[KIN_FACTS_MAX_REASON];
} kin_group_plan;

// The group of `n` devices with these weights: the rest of it.
void kin_group_time(const kin_facts *facts, kin_group_plan *group);

// The group of these devices, with shares by speed; the head is one of them.
void kin_group_predict(const kin_facts *facts, kin_device_set members, kin_group_plan *out);

// The group with the least time among all that have the head. Up to KIN_GROUP_EXACT devices beside the head every set of them is
// tried; of more only the fastest ones together. leave_out: not these.
enum { KIN_GROUP_EXACT = 10 };
void kin_group_best(const kin_facts *facts, kin_device_set leave_out, kin_group_plan *out);

// "2 devices that share each layer: 2 x 32 sums of 0.11 ms cost 7.0 ms, sharing the layers gains 21 ms: 63 ms instead of 77".
// ring_s: what the ring takes, of which computing is ring_compute_s.
void kin_group_say(const kin_facts *facts, const kin_group_plan *group, double ring_s, double ring_compute_s, char *buf,
                   size_t n);
