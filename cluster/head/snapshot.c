#include "cluster/head/snapshot.h"

#include <stdio.h>
#include <string.h>

// Describes what devices are busy with, for the waiting user.
static void describe(const kin_membership *membership, char *buf, size_t n) {
    kin_membership_doing(membership, buf, n);
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        static const char *const stages[] = {"hashing", "fetching", "packing", "loading"};
        const kin_membership_device *d = kin_membership_device_at(membership, i);
        size_t used = strlen(buf);
        if (!d || d->state != KIN_DEVICE_PREPARING || d->progress.total == 0 || used + 1 >= n) continue;
        const kin_proto_progress *p = &d->progress;
        snprintf(buf + used, n - used, "; %s: %s %d %%", d->name, stages[p->stage], (int)(100 * p->done / p->total));
        used = strlen(buf);
        if (p->rate && used + 1 < n) {
            snprintf(buf + used, n - used, " at %.0f MB/s, %.0f s left", (double)p->rate / 1e6,
                     (double)(p->total - p->done) / (double)p->rate);
        }
    }
}

// True if the plan's devices give a row the same bits in every step; the head's own weights are checked elsewhere.
static bool is_exact(const kin_cluster_devices *devices, const kin_assignment *plan) {
    for (int i = 0; i < plan->n_members; i++) {
        if (kin_windows_n_gpu_layers(&plan->windows[i].windows) > 0) return false;
        const kin_membership_device *d = kin_cluster_devices_with(devices, &plan->ids[i]);
        if (d && d->features & KIN_PROTO_INEXACT) return false;
    }
    return true;
}

// Returns the layers at which windows begin.
static kin_border_set borders_of(const kin_assignment *plan) {
    kin_border_set borders = {0};
    for (int i = 0; i < plan->n_members; i++) {
        const kin_windows *w = &plan->windows[i].windows;
        for (int k = 0; k < w->n; k++) kin_border_set_add(&borders, w->at[k].layer_begin);
    }
    return borders;
}

// Notes the head's work in the active plan, and which devices take part.
static void set_plan(kin_cluster_snapshot *to, const kin_cluster_devices *devices, const kin_assignment *plan) {
    to->own = (kin_local_work){
        .windows = plan->windows[0], .share = plan->shares[0], .n_rounds = plan->n_rounds, .memory = plan->memory[0]};
    to->n_members = plan->n_members;
    to->n_stages = 0;
    for (int i = 0; i < plan->n_members; i++) to->n_stages += plan->shares[i].rank == 0;
    to->borders = borders_of(plan);
    to->is_exact = is_exact(devices, plan);
}

bool kin_cluster_snapshot_update(kin_cluster_snapshot *s, const kin_cluster_devices *devices, const kin_cluster_plans *plans) {
    uint32_t epoch = kin_membership_epoch(devices->membership);
    if (!kin_membership_accepts(devices->membership, epoch)) epoch = 0;
    bool has_begun = epoch && s->epoch != epoch;
    if (has_begun) set_plan(s, devices, plans->active);
    s->epoch = epoch;
    s->up = kin_cluster_devices_are_serving(devices);
    describe(devices->membership, s->doing, sizeof s->doing);
    return has_begun;
}
