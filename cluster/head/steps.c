#include "cluster/head/steps.h"

#include <stdio.h>

static kin_step_place own_place(kin_cluster_steps *s, uint32_t epoch) {
    kin_neighbours_stats own = kin_neighbours_stats_now(s->ring->neighbours);
    if (own.epoch != epoch) return (kin_step_place){.is_known = true};
    return (kin_step_place){
        .is_known = true, .n_came = own.n_came, .n_left = own.n_left, .moving = own.moving + kin_relay_moving(s->relay)};
}

// Returns what the m-th member reported last; unknown if its report is old or of another epoch.
static kin_step_place place_of(const kin_cluster_steps *s, int m, uint32_t epoch) {
    const kin_membership_device *d = kin_cluster_devices_with(s->devices, &s->plans->active->ids[m]);
    if (!d) return (kin_step_place){.is_known = false};
    kin_status_sample sample = kin_connections_sample_of(s->devices->connections, d->link);
    const kin_proto_status *status = &sample.now;
    if (!sample.is_fresh || status->epoch != epoch) return (kin_step_place){.is_known = false};
    return (kin_step_place){.is_known = true,
                            .idles = status->work == KIN_PROTO_IDLES,
                            .fetches = status->work == KIN_PROTO_FETCHES,
                            .n_came = status->n_came,
                            .n_left = status->n_left,
                            .n_signs = status->n_signs,
                            .moving = status->moving};
}

static void leave_out(kin_cluster_steps *s, const kin_lost_step_found *found, uint32_t epoch) {
    char why[128];
    if (found->kind == KIN_LOST_STEP_IN)
        snprintf(why, sizeof why,
                 "has lost a step: it received it more than %d s ago, has not sent it on, and waits for the next one",
                 KIN_LOST_STEP_MS / 1000);
    else if (found->kind == KIN_LOST_STEP_TO)
        snprintf(why, sizeof why, "for %d s", found->seconds);
    else
        snprintf(why, sizeof why, "has held a step for %d s without progress, ten times longer than ever before", found->seconds);
    kin_cluster_devices_act(s->devices, &(kin_membership_event){.kind = KIN_MEMBERSHIP_LOSES,
                                                                .epoch = epoch,
                                                                .loser = found->member,
                                                                .is_hop = found->kind == KIN_LOST_STEP_TO,
                                                                .reason = why,
                                                                .progress_made = atomic_load(&s->counts->n_generated)});
}

static void compare_places(kin_cluster_steps *s, kin_time now, uint32_t epoch, const kin_step_place *own) {
    kin_step_place places[KIN_LOST_STEP_MEMBERS];
    int n = s->plans->active->n_members - 1;
    for (int m = 0; m < n; m++) places[m] = place_of(s, m + 1, epoch);
    kin_lost_step_found found = kin_lost_step_compare(&s->lost, now, places, n, own);
    if (found.kind != KIN_LOST_STEP_NONE) leave_out(s, &found, epoch);
}

void kin_cluster_steps_tick(kin_cluster_steps *s, kin_time now) {
    uint32_t epoch = kin_membership_epoch(s->devices->membership);
    bool is_up = kin_cluster_devices_are_serving(s->devices) && kin_membership_n_requests(s->devices->membership) > 0;
    kin_step_place own = {.is_known = true};
    if (is_up && s->plans->active->n_members > 1) own = own_place(s, epoch);
    if (kin_lost_step_is_due(&s->lost, now, epoch, &own))
        kin_cluster_poll_begin(&s->poll, now);
    else if (kin_cluster_poll_ends(&s->poll, now) && own.n_left > own.n_came)
        compare_places(s, now, epoch, &own);
}

void kin_cluster_steps_init(kin_cluster_steps *s, kin_cluster_devices *devices, const kin_cluster_plans *plans,
                            const kin_ring_member *ring, const kin_relay *relay, const kin_head_counts *counts,
                            kin_cluster_polls *polls) {
    *s = (kin_cluster_steps){.devices = devices, .plans = plans, .ring = ring, .relay = relay, .counts = counts};
    kin_cluster_poll_init(&s->poll, polls);
}

void kin_cluster_steps_fini(kin_cluster_steps *s) {
    kin_cluster_poll_fini(&s->poll);
}
