#include "cluster/assignment.h"

#include <string.h>

#include "pure/proto/id.h"

// Adds the device of a stop, or those of the group that it stands for. In this order the head computes last: it is member 0.
static int add_stop(kin_assignment *out, const kin_plan *plan, int device, const kin_proto_id *ids, const kin_model *model,
                    int kv_type, kin_err *err) {
    const kin_group *group = kin_plan_group_of(plan, device);
    kin_share shares[KIN_SHARE_RANKS] = {{0}};
    kin_member_windows windows;
    if (group && kin_share_split(model, kv_type, group->weights, group->n, shares, err) != 0) return KIN_FAIL;
    kin_plan_windows(plan, device, &windows.windows);
    for (int k = 0; k < windows.windows.n; k++) windows.rounds[k] = k;
    for (int rank = 0; rank < (group ? group->n : 1); rank++) {
        int d = group ? group->devices[rank] : device, i = d == 0 ? 0 : out->n_members++;
        kin_assert(i < KIN_FACTS_MAX_DEVICES);
        out->ids[i] = ids[d];
        out->windows[i] = windows;
        out->shares[i] = shares[rank];
        out->memory[i] = plan->memory[d];
    }
    return 0;
}

int kin_assignment_lay_out(kin_assignment *out, const kin_plan *plan, const kin_proto_id *ids, const kin_model *model,
                           int kv_type, kin_err *err) {
    out->n_members = 1;
    out->n_rounds = plan->n_rounds;
    for (int i = 0; i < plan->n_stops; i++) {
        if (add_stop(out, plan, plan->stops[kin_plan_turn(plan, i)].device, ids, model, kv_type, err) != 0) return KIN_FAIL;
    }
    return 0;
}

int kin_assignment_find(const kin_assignment *p, const kin_proto_id *id) {
    for (int i = 1; i < p->n_members; i++) {
        if (kin_proto_id_equal(&p->ids[i], id)) return i;
    }
    return -1;
}

void kin_assignment_fill(const kin_assignment *p, int i, kin_proto_plan *m) {
    const kin_member_windows *w = &p->windows[i];
    m->memory = p->memory[i];
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
                                          .n_gpu = (uint16_t)window->n_gpu_layers,
                                          .n_cpu_moe = (uint16_t)window->n_cpu_moe};
    }
}
