// Prefetching for a plan that is not active yet, at the membership's request: devices are told to fetch and pack (PREFETCH), and
// the head packs its own part in a thread of the lowest priority.
//
// Owner: kin_cluster. Thread: the loop's, except pack.
#pragma once

#include "cluster/head/devices.h"
#include "cluster/head/plans.h"
#include "cluster/ring_member.h"

typedef struct kin_cluster_prefetch {
    const kin_cluster_options *o;
    kin_cluster_devices *devices;
    const kin_cluster_plans *plans;
    const kin_ring_member *ring; // has the packing thread
    uint32_t own_ticket;         // question whose part is packed, or was
} kin_cluster_prefetch;

// Handles the membership's PREFETCH action.
void kin_cluster_prefetch_begin(kin_cluster_prefetch *prefetch, const kin_membership_action *action);

// Any thread: packs the head's own part; see kin_ring_member_options.
int kin_cluster_prefetch_pack(const kin_cluster_options *options, const kin_prepacking_job *job, const atomic_bool *stop,
                              kin_packed **held, kin_err *err);
// The head's own part is packed.
void kin_cluster_prefetch_note_packed(kin_cluster_prefetch *prefetch, uint32_t question);
// Handles a device's answer to PREFETCH.
void kin_cluster_prefetch_handle_answer(kin_cluster_prefetch *prefetch, uint32_t from, const kin_proto_prefetched *m);
