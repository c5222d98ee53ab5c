// Lost steps: asks the devices where they are, and leaves out the one that has lost a step.
//
// Owner: kin_cluster. Thread: the loop's.
#pragma once

#include "cluster/head/devices.h"
#include "cluster/head/plans.h"
#include "cluster/head/poll.h"
#include "cluster/ring_member.h"
#include "pipeline/head.h"
#include "pipeline/lost_step.h"
#include "pipeline/relay.h"

typedef struct kin_cluster_steps {
    kin_cluster_devices *devices;
    const kin_cluster_plans *plans;
    const kin_ring_member *ring;
    const kin_relay *relay;
    const kin_head_counts *counts;
    kin_cluster_poll poll; // runs beside the steps; no caller blocks on its answers
    kin_lost_step lost;
} kin_cluster_steps;

void kin_cluster_steps_init(kin_cluster_steps *steps, kin_cluster_devices *devices, const kin_cluster_plans *plans,
                            const kin_ring_member *ring, const kin_relay *relay, const kin_head_counts *counts,
                            kin_cluster_polls *polls);
void kin_cluster_steps_fini(kin_cluster_steps *steps);

// Call it ten times a second.
void kin_cluster_steps_tick(kin_cluster_steps *steps, kin_time now);
