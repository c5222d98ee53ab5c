// Addresses at which the members of the active plan reach each other.
//
// Owner: kin_cluster. Thread: the loop's.
#pragma once

#include "cluster/head/devices.h"
#include "cluster/head/plans.h"
#include "cluster/measurements.h"
#include "net/endpoint.h"

typedef struct kin_cluster_routes {
    const kin_cluster_options *o;
    const kin_cluster_devices *devices;
    const kin_cluster_plans *plans;
    const kin_measurements *measurements; // which pairs do not reach each other
    const kin_endpoint *own;
} kin_cluster_routes;

// Returns the addresses of the i-th member, a device. False: it is gone.
bool kin_cluster_routes_endpoint(const kin_cluster_routes *routes, int i, kin_proto_endpoint *out);

// Fills in the id and addresses with which the i-th member reaches another one. No addresses: it goes through the head, or for
// the head itself, to the address at which that member reached it.
void kin_cluster_routes_fill(const kin_cluster_routes *routes, int i, int other, kin_proto_id *id, kin_proto_endpoint *endpoint);

// Fills in the devices of the i-th member's group, as that member reaches them.
void kin_cluster_routes_fill_group(const kin_cluster_routes *routes, int i, kin_proto_group *group);
