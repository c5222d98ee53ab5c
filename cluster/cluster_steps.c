// Lost steps: asks the devices where they are, and leaves out the one that has lost a step.
#include <stdio.h>

#include "cluster/cluster_impl.h"

#define POLL_NS UINT64_C(500000000) // for the devices to answer

static kin_step_place own_place(kin_cluster *c, uint32_t epoch) {
    kin_neighbours_stats own = kin_neighbours_stats_now(c->ring.neighbours);
    if (own.epoch != epoch) return (kin_step_place){.is_known = true};
    return (kin_step_place){
        .is_known = true, .n_came = own.n_came, .n_left = own.n_left, .moving = own.moving + kin_relay_moving(c->relay)};
}

// Returns what the m-th member reported last; unknown if its report is old or of another epoch.
static kin_step_place place_of(const kin_cluster *c, int m, uint32_t epoch) {
    const kin_membership_device *d = kin_cluster_device_with(c, &c->plan->ids[m]);
    if (!d) return (kin_step_place){.is_known = false};
    kin_status_sample sample = kin_connections_sample_of(c->connections, d->link);
    const kin_proto_status *s = &sample.now;
    if (!sample.is_fresh || s->epoch != epoch) return (kin_step_place){.is_known = false};
    return (kin_step_place){.is_known = true,
                            .idles = s->work == KIN_PROTO_IDLES,
                            .fetches = s->work == KIN_PROTO_FETCHES,
                            .n_came = s->n_came,
                            .n_left = s->n_left,
                            .n_signs = s->n_signs,
                            .moving = s->moving};
}

static void leave_out(kin_cluster *c, const kin_lost_step_found *found, uint32_t epoch) {
    char why[128];
    if (found->kind == KIN_LOST_STEP_IN)
        snprintf(why, sizeof why,
                 "has lost a step: it received it more than %d s ago, has not sent it on, and waits for the next one",
                 KIN_LOST_STEP_MS / 1000);
    else if (found->kind == KIN_LOST_STEP_TO)
        snprintf(why, sizeof why, "for %d s", found->seconds);
    else
        snprintf(why, sizeof why, "has held a step for %d s without progress, ten times longer than ever before", found->seconds);
    kin_cluster_act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_LOSES,
                                               .epoch = epoch,
                                               .loser = found->member,
                                               .is_hop = found->kind == KIN_LOST_STEP_TO,
                                               .reason = why,
                                               .progress_made = kin_cluster_progress_made(c)});
}

static void compare_places(kin_cluster *c, kin_time now, uint32_t epoch, const kin_step_place *own) {
    kin_step_place places[KIN_LOST_STEP_MEMBERS];
    int n = c->plan->n_members - 1;
    for (int m = 0; m < n; m++) places[m] = place_of(c, m + 1, epoch);
    kin_lost_step_found found = kin_lost_step_compare(&c->steps.lost, now, places, n, own);
    if (found.kind != KIN_LOST_STEP_NONE) leave_out(c, &found, epoch);
}

void kin_cluster_steps_tick(kin_cluster *c, kin_time now) {
    uint32_t epoch = kin_membership_epoch(c->membership);
    bool is_up =
        kin_membership_state_now(c->membership) == KIN_MEMBERSHIP_SERVING && kin_membership_n_requests(c->membership) > 0;
    kin_step_place own = {.is_known = true};
    if (is_up && c->plan->n_members > 1) own = own_place(c, epoch);
    if (kin_lost_step_is_due(&c->steps.lost, now, epoch, &own)) {
        c->steps.until = now + POLL_NS;
        kin_connections_ask(c->connections);
        return;
    }
    if (!c->steps.until || (now < c->steps.until && !kin_connections_has_answered(c->connections))) return;
    c->steps.until = 0;
    kin_connections_ask_no_more(c->connections);
    if (own.n_left > own.n_came) compare_places(c, now, epoch, &own);
}
