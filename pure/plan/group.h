// Groups of devices that share each layer (tensor parallelism), as the timeline model sees them: one device each.
//
//     layer of a group = max over members of attention + max over members of feed-forward + 2 sums
//     sum of n tokens  = max over members of (rtt / 2 + sum over others of n * bytes / rate) + fixed
//
// Each member computes its share at its own pace, and both sums of a layer wait for the slowest. A sum is one exchange of all
// with all. A step passes the members one after the other before they compute it: links to a group have its own links in them,
// and where the head's group is alone in the ring the way from the head through it is the link of the head with itself.
//
// Shares are dealt as the engine deals them: pieces of attention and of the feed-forward block, in proportion to weights. Where
// all fits, these are the members' speeds. Where it does not, each member streams its slices from its own disk (device_time.h),
// and other shares may be better:
//
//     by speed    1 / time of a layer
//     by memory   the bytes that it can keep: so the group has the most layers of which none streams
//     by disk     all members take as long for the whole model, computing or reading: min(T / time, (kept + T * disk) / bytes)
//
// Groups compute on processors only.
//
// The last device of a group stands for it: it has the group's times and links, and the head is always the last one.
//
// Pure: no I/O, no clock, no threads.
#pragma once

#include "pure/plan/device_time.h"
#include "pure/plan/facts.h"

enum { KIN_GROUPS_MAX = KIN_FACTS_MAX_DEVICES / 2 };

typedef enum kin_group_shares { KIN_SHARES_BY_SPEED, KIN_SHARES_BY_MEMORY, KIN_SHARES_BY_DISK, KIN_N_SHARES } kin_group_shares;

typedef struct kin_group {
    int n;
    int devices[KIN_GROUP_MAX];    // in the order of the ranks
    double weights[KIN_GROUP_MAX]; // of the shares
} kin_group;

// No device is in two of them.
typedef struct kin_grouping {
    int n;
    kin_group groups[KIN_GROUPS_MAX];
} kin_grouping;

typedef struct kin_group_time {
    double layer_s;            // computing a mean layer together, without sums
    double apart_s;            // the members' shares of it one after the other, as in a ring
    double sum_s, sum_token_s; // one of two for a layer: of a pass, and for each token of it
    double layers_kept;        // mean ones that all members have memory for
    double layers_max;         // with those that stream
    double reads_s; // of a layer, where a group of the whole model streams: what the members read, together instead of one by one
} kin_group_time;

static inline int kin_group_last(const kin_group *group) {
    return group->devices[group->n - 1];
}

kin_device_set kin_group_members(const kin_group *group);

// Of each layer, as its weight has it; 0 to 1. The device is in the group.
double kin_group_share(const kin_group *group, int device);

// What computing a layer gains by being shared, less its sums.
double kin_group_saves_s(const kin_group_time *time);

// Of a group with shares by speed: not every member has memory for its share of all layers. Then other shares may be better, and
// the group may be of use although it saves nothing: its disks read at once.
bool kin_group_is_short(const kin_facts *facts, const kin_group_time *by_speed);

// One token's rates of these devices, which times of groups are made from. rates // [KIN_FACTS_MAX_DEVICES]
void kin_group_rates(const kin_facts *facts, kin_device_set devices, kin_device_rates *rates);

// These devices, the head last, others by name, so that each has the rank, and the slices, that it had before.
void kin_group_of(const kin_facts *facts, const kin_device_rates *rates, kin_device_set members, kin_group_shares by,
                  kin_group *out);

// Whether both deal the same pieces to the same devices.
bool kin_group_is_same(const kin_facts *facts, const kin_group *a, const kin_group *b);

// Fails with a sentence where there can be no such group.
int kin_group_time_of(const kin_facts *facts, const kin_device_rates *rates, const kin_group *group, kin_group_time *out,
                      kin_err *err);

// Puts the group into `out`, which began as a copy of `facts`: its last device stands for it, the others are in no ring any more.
void kin_group_put(const kin_facts *facts, const kin_device_rates *rates, const kin_group *group, const kin_group_time *time,
                   kin_facts *out);

// The facts with all these groups in them. Fails where one cannot be.
int kin_grouping_apply(const kin_facts *facts, const kin_grouping *grouping, kin_facts *out, kin_err *err);
