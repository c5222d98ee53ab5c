#include "cluster/head/pages.h"

#include "pure/proto/id.h"

// Iterates over the devices that are there, except the one on link `but`; sets kept->id and endpoint. False: no more. *i: starts
// at 0.
static bool next_device(const kin_cluster_pages *p, int *i, uint32_t but, kin_proto_kept *kept) {
    for (; *i < KIN_MEMBERSHIP_DEVICES; ++*i) {
        const kin_membership_device *d = kin_membership_device_at(p->devices->membership, *i);
        if (!d || d->link == but || !kin_connections_endpoint(p->devices->connections, d->link, &kept->endpoint)) continue;
        kept->id = d->id;
        ++*i;
        return true;
    }
    return false;
}

void kin_cluster_pages_register_all(const kin_cluster_pages *p) {
    kin_proto_kept kept = {0};
    if (!p->ring->pages) return;
    kin_page_fetch_forget(p->ring->pages);
    for (int i = 0; next_device(p, &i, 0, &kept);) kin_page_fetch_know(p->ring->pages, &kept.id, &kept.endpoint);
}

void kin_cluster_pages_register_with(const kin_cluster_pages *p, uint32_t link) {
    kin_proto_message m = {.type = KIN_FRAME_KEPT, .kept = {.page_bytes = 1}};
    if (!p->ring->pages) return;
    for (int i = 0; next_device(p, &i, link, &m.kept);) kin_connections_send(p->devices->connections, link, 0, &m);
}

// ---- copies

static bool is_replica(const kin_cluster_pages *p, const kin_proto_id *id) {
    for (int i = 0; i < p->n_replicas; i++) {
        if (kin_proto_id_equal(&p->replicas[i], id)) return true;
    }
    return false;
}

static void forget_gone_replicas(kin_cluster_pages *p) {
    for (int i = 0; i < p->n_replicas; i++) {
        if (!kin_cluster_devices_link_of(p->devices, &p->replicas[i])) p->replicas[i--] = p->replicas[--p->n_replicas];
    }
}

static void add_replica(kin_cluster_pages *p, const kin_proto_id *id) {
    if (is_replica(p, id)) return;
    if (p->n_replicas == KIN_MEMBERSHIP_DEVICES) forget_gone_replicas(p);
    kin_assert(p->n_replicas < KIN_MEMBERSHIP_DEVICES); // the others are members, as this one is
    p->replicas[p->n_replicas++] = *id;
}

void kin_cluster_pages_forget(kin_cluster_pages *p, const kin_proto_id *id) {
    for (int i = 0; i < p->n_replicas; i++) {
        if (kin_proto_id_equal(&p->replicas[i], id)) p->replicas[i--] = p->replicas[--p->n_replicas];
    }
}

// Returns the link of the replica: the next member after the i-th that stores pages; 0: the head.
static uint32_t find_replica(const kin_cluster_pages *p, int i) {
    const kin_assignment *plan = p->plans->active;
    for (int k = i + 1; k < plan->n_members; k++) {
        uint32_t link = is_replica(p, &plan->ids[k]) ? kin_cluster_devices_link_of(p->devices, &plan->ids[k]) : 0;
        if (link) return link;
    }
    return 0;
}

void kin_cluster_pages_handle_kept(kin_cluster_pages *p, uint32_t from, const kin_proto_message *said) {
    const kin_membership_device *d = kin_cluster_devices_on(p->devices, from);
    kin_proto_message m = *said;
    if (!d || !p->ring->pages || !kin_connections_endpoint(p->devices->connections, from, &m.kept.endpoint)) return;
    int i = kin_assignment_find(p->plans->active, &d->id);
    m.kept.id = d->id;
    add_replica(p, &d->id);
    if (i < 0 || m.kept.n_names == 0) return;
    uint32_t replica = find_replica(p, i);
    p->bytes += (uint64_t)m.kept.n_names * m.kept.page_bytes;
    if (replica) {
        kin_connections_send(p->devices->connections, replica, 0, &m);
    } else {
        kin_page_fetch_know(p->ring->pages, &m.kept.id, &m.kept.endpoint);
        kin_page_fetch_copy(p->ring->pages, &m.kept);
    }
}
