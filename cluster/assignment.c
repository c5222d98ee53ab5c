#include "cluster/assignment.h"

#include <string.h>

#include "pure/proto/id.h"

static int lay_out_windows(kin_assignment *p, int n_layer, kin_err *err) {
    const kin_ring_plan *ring = &p->ring;
    if (ring->n_rounds) {
        p->n_rounds = ring->n_rounds;
        return kin_rounds_spread(ring->shares, ring->n_members, ring->n_rounds, n_layer, p->windows, err);
    }
    p->n_rounds = kin_rounds_lay_out(ring->shares, ring->n_members, n_layer, p->windows, err);
    return p->n_rounds < 0 ? KIN_FAIL : 0;
}

// Computes the shares of the group that begins with member i.
static int share_layers(kin_assignment *p, int i, const kin_model *model, int kv_type, kin_err *err) {
    const kin_ring_group *groups = &p->ring.groups[i];
    double weights[KIN_SHARE_RANKS] = {0};
    for (int k = 0; k < groups[0].n_ranks && k < KIN_SHARE_RANKS; k++) weights[k] = groups[k].weight;
    return kin_share_split(model, kv_type, weights, groups[0].n_ranks, &p->shares[i], err);
}

int kin_assignment_lay_out(kin_assignment *p, const kin_model *model, int kv_type, kin_err *err) {
    memset(p->shares, 0, sizeof p->shares);
    if (lay_out_windows(p, model->hp.n_layer, err) != 0) return KIN_FAIL;
    kin_ring_plan_share_windows(&p->ring, p->windows);
    for (int i = 0; i < p->ring.n_members; i++) {
        bool begins = p->ring.groups[i].n_ranks > 0 && p->ring.groups[i].rank == 0;
        if (begins && share_layers(p, i, model, kv_type, err) != 0) return KIN_FAIL;
    }
    return 0;
}

int kin_assignment_find(const kin_assignment *p, const kin_proto_id *id) {
    for (int i = 0; i < p->ring.n_members - 1; i++) {
        if (kin_proto_id_equal(&p->ids[i], id)) return i;
    }
    return -1;
}

size_t kin_assignment_of(const kin_assignment *p, int i, uint8_t *bytes) {
    const kin_member_windows *w = &p->windows[i];
    size_t n = 0;
    memcpy(bytes + n, &p->n_rounds, sizeof p->n_rounds);
    n += sizeof p->n_rounds;
    memcpy(bytes + n, &p->ring.memory[i], sizeof p->ring.memory[i]);
    n += sizeof p->ring.memory[i];
    memcpy(bytes + n, &p->shares[i], sizeof p->shares[i]);
    n += sizeof p->shares[i];
    memcpy(bytes + n, w->windows.at, (size_t)w->windows.n * sizeof w->windows.at[0]);
    n += (size_t)w->windows.n * sizeof w->windows.at[0];
    memcpy(bytes + n, w->rounds, (size_t)w->windows.n * sizeof w->rounds[0]);
    return n + (size_t)w->windows.n * sizeof w->rounds[0];
}

void kin_assignment_fill(const kin_assignment *p, int i, kin_proto_plan *m) {
    const kin_member_windows *w = &p->windows[i];
    m->memory = p->ring.memory[i];
    const kin_share *share = &p->shares[i];
    m->n_rounds = (uint16_t)p->n_rounds;
    m->group.n_ranks = share->n_ranks;
    m->group.rank = share->rank;
    m->group.head_begin = (uint16_t)share->head_begin;
    m->group.head_end = (uint16_t)share->head_end;
    m->group.ff_begin = (uint32_t)share->ff_begin;
    m->group.ff_end = (uint32_t)share->ff_end;
    m->n_windows = w->windows.n;
    for (int k = 0; k < w->windows.n; k++) {
        const kin_window *window = &w->windows.at[k];
        m->window[k] = (kin_proto_window){.round = (uint16_t)w->rounds[k],
                                          .layer_begin = (uint16_t)window->layer_begin,
                                          .layer_end = (uint16_t)window->layer_end,
                                          .n_gpu = (uint16_t)window->n_gpu_layers};
    }
}
