#include "pure/proto/membership_begin.h"

#include "pure/proto/epoch.h"
#include "pure/proto/membership_view.h"

// Plans of a dry run are logged at debug level only.
static kin_log_level level_of_plan(const kin_membership *r) {
    return r->options.dry_run ? KIN_LOG_DEBUG : KIN_LOG_INFO;
}

static void log_plan(kin_membership *r) {
    if (r->n_members == 0)
        kin_membership_log(r, KIN_LOG_DEBUG, "plan %u: no device", r->epoch);
    else
        kin_membership_log(r, KIN_LOG_DEBUG, "plan %u: %d device%s", r->epoch, r->n_members, r->n_members == 1 ? "" : "s");
}

void kin_membership_log_doing(kin_membership *r) {
    char doing[KIN_MEMBERSHIP_SENTENCE];
    kin_membership_log(r, level_of_plan(r), "%s", kin_membership_doing(r, doing, sizeof doing));
}

// The first plan is made early, so that its devices prepare while others may still join.
static bool may_be_up(const kin_membership *r) {
    if (r->was_up || (r->options.n_expected > 0 && kin_membership_n_available(r) >= r->options.n_expected)) return true;
    return r->change == r->change_answered && r->now >= kin_membership_later(r->joined_at, r->options.join_wait_ns);
}

void kin_membership_check_ready(kin_membership *r) {
    if (!r->in_force || r->is_up || (r->n_members > 0 && !r->own_ring_open) || !may_be_up(r)) return;
    for (int m = 0; m < r->n_members; m++) {
        const kin_membership_device *d = &r->devices[r->members[m]];
        if (d->state != KIN_DEVICE_READY || !d->ring_open) return;
    }
    r->is_up = true;
    r->last_break[0] = '\0';
    kin_membership_act(r, KIN_MEMBERSHIP_UP);
    kin_membership_log_doing(r);
    r->was_up = true;
    r->changed = true;
}

void kin_membership_begin_epoch(kin_membership *r, uint32_t question, int n, const uint8_t *members, const uint64_t *works) {
    r->planned_by = question;
    r->epoch = kin_epoch_next(r->epoch);
    r->has_plan = r->in_force = true;
    r->n_members = n;
    for (int m = 0; m < n; m++) {
        r->members[m] = members[m];
        r->works[m] = works[m];
    }
    log_plan(r);
    for (int m = n - 1; m >= 0; m--) { // from last to first, so that a member that connects to its next one finds it informed
        int i = members[m];
        kin_membership_set_state(r, i, KIN_DEVICE_PREPARING);
        r->devices[i].stage = m + 1;
        r->devices[i].ring_open = false;
        r->devices[i].ring_since = r->now;
        r->devices[i].ring_error[0] = '\0';
        kin_membership_action *send = kin_membership_act(r, KIN_MEMBERSHIP_SEND_PLAN);
        send->device = i;
        send->link = r->devices[i].link;
    }
    r->own_ring_since = r->now;
    if (n > 0) kin_membership_act(r, KIN_MEMBERSHIP_OPEN_RING)->device = members[0];
    r->changed = true;
    kin_membership_check_ready(r);
}
