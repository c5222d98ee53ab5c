// Groups of devices that share each layer (tensor parallelism). The timeline model treats each group as one device.
//
//     layer of a group = max over members of attention + max over members of feed-forward + 2 sums
//     sum of n tokens  = max over members of (rtt / 2 + sum over others of n * bytes / rate) + fixed
//
// Each member computes its share at its own speed, and both sums of a layer wait for the slowest. A sum is one exchange of all
// members with all others. A step passes through the members one after the other before they compute it: so links to a group
// include the links inside it, and if the head's group is alone in the ring, the path from the head through the group is the
// head's link with itself.
//
// Shares are dealt as the engine deals them: pieces of attention and of the feed-forward block, in proportion to weights. If
// everything fits in memory, the weights are the members' speeds. If not, each member streams its slices from its own disk
// (device_time.h), and other shares may be better:
//
//     by speed    1 / time of a layer
//     by memory   the bytes that it can keep, so the group has the most layers that do not stream
//     by disk     all members take the same time T for the whole model, computing or reading:
//                 min(T / time, (kept + T * disk) / bytes)
//
// Groups compute on CPUs only.
//
// The last device of a group stands for it and has the group's times and links; the head is always last.
//
// Pure: no I/O, no clock, no threads.
#pragma once

#include "pure/plan/device_time.h"
#include "pure/plan/facts.h"

enum { KIN_GROUPS_MAX = KIN_FACTS_MAX_DEVICES / 2 };

typedef enum kin_group_shares { KIN_SHARES_BY_SPEED, KIN_SHARES_BY_MEMORY, KIN_SHARES_BY_DISK, KIN_N_SHARES } kin_group_shares;

typedef struct kin_group {
    int n;
    int devices[KIN_GROUP_MAX];    // in rank order
    double weights[KIN_GROUP_MAX]; // they determine the shares
} kin_group;

// No device is in two groups.
typedef struct kin_grouping {
    int n;
    kin_group groups[KIN_GROUPS_MAX];
} kin_grouping;

typedef struct kin_group_time {
    double layer_s;            // computing a mean layer together, without sums
    double apart_s;            // the members' shares of it one after the other, as in a ring
    double sum_s, sum_token_s; // one of a layer's two sums: time per pass, and per token
    double layers_kept;        // mean layers that all members can keep in memory
    double layers_max;         // the same, including layers that stream
    double reads_s;            // per layer, if the group has the whole model and streams: time saved by reading in parallel
} kin_group_time;

static inline int kin_group_last(const kin_group *group) {
    return group->devices[group->n - 1];
}

kin_device_set kin_group_members(const kin_group *group);

// Returns the device's share of each layer by its weight, 0 to 1. The device must be in the group.
double kin_group_share(const kin_group *group, int device);

// Returns the computing time that sharing saves per layer, minus the layer's sums.
double kin_group_saves_s(const kin_group_time *time);

// Takes the times of a group with shares by speed. True if some member lacks memory for its share of all layers. Then other
// shares may be better, and the group may help even if it saves no computing, because its disks read in parallel.
bool kin_group_is_short(const kin_facts *facts, const kin_group_time *by_speed);

// Sets the rates of these devices for one token, from which the times of groups are computed. rates // [KIN_FACTS_MAX_DEVICES]
void kin_group_rates(const kin_facts *facts, kin_device_set devices, kin_device_rates *rates);

// Makes a group of these devices, ordered by name with the head last, so that each device keeps its rank and its slices.
void kin_group_of(const kin_facts *facts, const kin_device_rates *rates, kin_device_set members, kin_group_shares by,
                  kin_group *out);

// True if both groups deal the same pieces to the same devices.
bool kin_group_is_same(const kin_facts *facts, const kin_group *a, const kin_group *b);

// Computes the group's times. Fails with a sentence if the group is not possible.
int kin_group_time_of(const kin_facts *facts, const kin_device_rates *rates, const kin_group *group, kin_group_time *out,
                      kin_err *err);

// Puts the group into `out`, a copy of `facts` at first: its last device stands for it, and the others are in no ring any more.
void kin_group_put(const kin_facts *facts, const kin_device_rates *rates, const kin_group *group, const kin_group_time *time,
                   kin_facts *out);

// Copies the facts and puts all these groups into them. Fails if one is not possible.
int kin_grouping_apply(const kin_facts *facts, const kin_grouping *grouping, kin_facts *out, kin_err *err);
