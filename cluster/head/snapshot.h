// The state of the epoch as the computing thread sees it: the head's work, the members, and the cluster's current activity. Plain
// data.
#pragma once

#include "cluster/head/devices.h"
#include "cluster/head/plans.h"
#include "pipeline/local_stage.h"

typedef struct kin_cluster_snapshot {
    uint64_t version; // incremented at each change
    uint32_t epoch;   // 0: none
    bool up;
    kin_local_work own;
    int n_members, n_stages; // n_stages: a group is one stage
    kin_border_set borders;
    bool is_exact;                        // no device has layers on a GPU, or uses ggml's kernels
    char broken[KIN_MEMBERSHIP_SENTENCE]; // why the last request was ended
    char doing[KIN_MEMBERSHIP_SENTENCE];
    kin_err given_up; // why; empty: not given up
} kin_cluster_snapshot;

// The loop's thread: brings it up to date, except `broken` and `given_up`. Returns true if an epoch has begun since the last
// time.
bool kin_cluster_snapshot_update(kin_cluster_snapshot *snapshot, const kin_cluster_devices *devices,
                                 const kin_cluster_plans *plans);
