// KV pages of sequences on the devices' disks and on the head's (engine/kv/store.h). The next member that stores pages, or else
// the head, keeps a copy of each page that a device has written. A member that takes over layers, after a loss or in a better
// plan, fetches the pages that it lacks (fetch/page_fetch.h), so all members get the addresses of the others.
#include <string.h>

#include "cluster/cluster_impl.h"
#include "pure/proto/id.h"

void kin_cluster_init_pages(kin_cluster *c) {
    c->o.shard.kv_disk.peers = &c->ring.peers; // the head's own pages need no copy: without the head there are no sequences
    c->o.shard.wire = c->o.wire_type;
    memcpy(&c->o.shard.kv_disk.model, c->o.manifest->hash, sizeof c->o.shard.kv_disk.model);
}

void kin_cluster_open_pages(kin_cluster *c) {
    const kin_kv_disk *disk = &c->o.shard.kv_disk;
    if (disk->dir && c->ring.server) kin_ring_member_share_pages(&c->ring, disk->dir, disk->cap);
}

// Waits until the copies of pages that others wrote while the head computed are here.
void kin_cluster_settle_pages(kin_cluster *c) {
    if (c->ring.pages) kin_page_fetch_settle(c->ring.pages);
}

// Iterates over the devices that are there, except the one on link `but`; sets kept->id and endpoint. False: no more. *i: starts
// at 0.
static bool next_device(const kin_cluster *c, int *i, uint32_t but, kin_proto_kept *kept) {
    for (; *i < KIN_MEMBERSHIP_DEVICES; ++*i) {
        const kin_membership_device *d = kin_membership_device_at(c->membership, *i);
        if (!d || d->link == but || !kin_connections_endpoint(c->connections, d->link, &kept->endpoint)) continue;
        kept->id = d->id;
        ++*i;
        return true;
    }
    return false;
}

void kin_cluster_register_page_peers(kin_cluster *c) {
    kin_proto_kept kept = {0};
    if (!c->ring.pages) return;
    kin_page_fetch_forget(c->ring.pages);
    for (int i = 0; next_device(c, &i, 0, &kept);) kin_page_fetch_know(c->ring.pages, &kept.id, &kept.endpoint);
}

void kin_cluster_register_peer(kin_cluster *c, uint32_t link) {
    kin_proto_message m = {.type = KIN_FRAME_KEPT, .kept = {.page_bytes = 1}};
    if (!c->ring.pages) return;
    for (int i = 0; next_device(c, &i, link, &m.kept);) kin_connections_send(c->connections, link, 0, &m);
}

// ---- copies

static bool is_replica(const kin_cluster *c, const kin_proto_id *id) {
    for (int i = 0; i < c->pages.n_keepers; i++) {
        if (kin_proto_id_equal(&c->pages.keepers[i], id)) return true;
    }
    return false;
}

static uint32_t link_of(const kin_cluster *c, const kin_proto_id *id) {
    const kin_membership_device *d = kin_cluster_device_with(c, id);
    return d && kin_connections_link(c->connections, d->link) ? d->link : 0;
}

static void forget_gone_keepers(kin_cluster *c) {
    kin_cluster_pages *p = &c->pages;
    for (int i = 0; i < p->n_keepers; i++) {
        if (!link_of(c, &p->keepers[i])) p->keepers[i--] = p->keepers[--p->n_keepers];
    }
}

static void add_replica(kin_cluster *c, const kin_proto_id *id) {
    kin_cluster_pages *p = &c->pages;
    if (is_replica(c, id)) return;
    if (p->n_keepers == KIN_MEMBERSHIP_DEVICES) forget_gone_keepers(c);
    kin_assert(p->n_keepers < KIN_MEMBERSHIP_DEVICES); // the others are members, as this one is
    p->keepers[p->n_keepers++] = *id;
}

void kin_cluster_forget_replica(kin_cluster *c, const kin_proto_id *id) {
    kin_cluster_pages *p = &c->pages;
    for (int i = 0; i < p->n_keepers; i++) {
        if (kin_proto_id_equal(&p->keepers[i], id)) p->keepers[i--] = p->keepers[--p->n_keepers];
    }
}

// Returns the link of the replica: the next member after the i-th that stores pages; 0: the head.
static uint32_t find_replica(const kin_cluster *c, int i) {
    for (int k = i + 1; k < c->plan->n_members; k++) {
        uint32_t link = is_replica(c, &c->plan->ids[k]) ? link_of(c, &c->plan->ids[k]) : 0;
        if (link) return link;
    }
    return 0;
}

void kin_cluster_handle_kept(kin_cluster *c, uint32_t from, const kin_proto_message *said) {
    const kin_membership_device *d = kin_cluster_device_of(c, from);
    kin_proto_message m = *said;
    if (!d || !c->ring.pages || !kin_connections_endpoint(c->connections, from, &m.kept.endpoint)) return;
    int i = kin_assignment_find(c->plan, &d->id);
    m.kept.id = d->id;
    add_replica(c, &d->id);
    if (i < 0 || m.kept.n_names == 0) return;
    uint32_t replica = find_replica(c, i);
    c->pages.bytes += (uint64_t)m.kept.n_names * m.kept.page_bytes;
    if (replica) {
        kin_connections_send(c->connections, replica, 0, &m);
    } else {
        kin_page_fetch_know(c->ring.pages, &m.kept.id, &m.kept.endpoint);
        kin_page_fetch_copy(c->ring.pages, &m.kept);
    }
}
