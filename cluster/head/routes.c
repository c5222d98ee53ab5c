#include "cluster/head/routes.h"

#include "pure/proto/label.h"

bool kin_cluster_routes_endpoint(const kin_cluster_routes *r, int i, kin_proto_endpoint *out) {
    const kin_membership_device *d = kin_cluster_devices_with(r->devices, &r->plans->active->ids[i]);
    return d && kin_connections_endpoint(r->devices->connections, d->link, out);
}

void kin_cluster_routes_fill(const kin_cluster_routes *r, int i, int other, kin_proto_id *id, kin_proto_endpoint *endpoint) {
    bool is_head = other == 0;
    *id = r->plans->active->ids[other];
    if (!is_head && !kin_measurements_is_apart(r->measurements, &r->plans->active->ids[i], id))
        kin_cluster_routes_endpoint(r, other, endpoint);
    if (!is_head) return;
    endpoint->port = kin_endpoint_port(r->own);
    for (int k = 0; k < r->o->n_advertise; k++) {
        kin_label_set(endpoint->address[endpoint->n_addresses++], KIN_PROTO_MAX_STR, r->o->advertise[k]);
    }
}

void kin_cluster_routes_fill_group(const kin_cluster_routes *r, int i, kin_proto_group *g) {
    for (int k = 0; k < g->n_ranks; k++)
        kin_cluster_routes_fill(r, i, kin_assignment_behind(r->plans->active, i, k - g->rank), &g->id[k], &g->endpoint[k]);
}
