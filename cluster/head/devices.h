// The devices of a cluster, at its head: the membership with its driver, and the control links.
//
// The parts of the cluster report events here. Each is one step of the membership, whose actions are queued and carried out in
// order by the cluster, at top level only: actions may cause events, and so further steps, whose actions are queued behind.
//
// Owner: kin_cluster. Its other parts may use `membership` and `connections`, and not change the fields. Thread: the loop's.
#pragma once

#include "cluster/connections.h"
#include "pure/proto/membership.h"

typedef struct kin_cluster_devices_callbacks {
    void (*enter)(void *user, uint32_t epoch,
                  uint32_t question); // a step's epoch, before its actions; which question's plan it has
    void (*apply)(void *user, const kin_membership_action *action);
    void (*changed)(void *user); // the state may have changed, and all actions are carried out
    kin_connections_callbacks links;
} kin_cluster_devices_callbacks;

typedef struct kin_cluster_action {
    bool enters;
    kin_membership_action of_membership;
} kin_cluster_action;

typedef struct kin_cluster_devices {
    kin_membership *membership;
    kin_connections *connections;
    const kin_cluster_devices_callbacks *callbacks;
    void *user;
    kin_cluster_action *actions; // [cap], of which [next, n) are pending
    int next, n, cap;
    bool is_draining;
} kin_cluster_devices;

int kin_cluster_devices_open(kin_cluster_devices *devices, const kin_membership_options *options,
                             const kin_cluster_devices_callbacks *callbacks, void *user, kin_err *err);
// Ends the links. Later calls of the membership's functions are allowed until close.
void kin_cluster_devices_end(kin_cluster_devices *devices, const char *reason);
void kin_cluster_devices_close(kin_cluster_devices *devices);

// Runs one step of the membership, and its actions.
void kin_cluster_devices_act(kin_cluster_devices *devices, const kin_membership_event *event);

// Returns the device at the other end of that control link; NULL: none yet.
const kin_membership_device *kin_cluster_devices_on(const kin_cluster_devices *devices, uint32_t link);
// Returns the device with that id; NULL: it is not here, or the head.
const kin_membership_device *kin_cluster_devices_with(const kin_cluster_devices *devices, const kin_proto_id *id);
// Returns the control link of the device with that id; 0: it is gone.
uint32_t kin_cluster_devices_link_of(const kin_cluster_devices *devices, const kin_proto_id *id);
// True if the ring is up.
bool kin_cluster_devices_are_serving(const kin_cluster_devices *devices);
