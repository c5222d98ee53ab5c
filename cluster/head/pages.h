// KV pages of sequences on the devices' disks and on the head's (engine/kv/store.h). The next member that stores pages, or else
// the head, keeps a copy of each page that a device has written. A member that takes over layers, after a loss or in a better
// plan, fetches the pages that it lacks (fetch/page_fetch.h), so all members get the addresses of the others.
//
// Owner: kin_cluster. Thread: the loop's.
#pragma once

#include "cluster/head/devices.h"
#include "cluster/head/plans.h"
#include "cluster/ring_member.h"

typedef struct kin_cluster_pages {
    const kin_cluster_devices *devices;
    const kin_cluster_plans *plans;
    const kin_ring_member *ring;
    kin_proto_id replicas[KIN_MEMBERSHIP_DEVICES]; // [n_replicas] devices that offered to store pages
    int n_replicas;
    uint64_t bytes; // for which copies were requested
} kin_cluster_pages;

void kin_cluster_pages_register_all(const kin_cluster_pages *pages); // with the head; when a plan becomes active
// Registers the other devices' addresses with that device.
void kin_cluster_pages_register_with(const kin_cluster_pages *pages, uint32_t link);
void kin_cluster_pages_forget(kin_cluster_pages *pages, const kin_proto_id *id); // a restarted device may not store pages
// Handles a device's KEPT.
void kin_cluster_pages_handle_kept(kin_cluster_pages *pages, uint32_t from, const kin_proto_message *said);
