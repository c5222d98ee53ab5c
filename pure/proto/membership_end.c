#include "pure/proto/membership_end.h"

#include <stdio.h>

void kin_membership_drop_next(kin_membership *r) {
    if (!r->next.question) return;
    for (int m = 0; m < r->next.n_members; m++) r->devices[r->next.members[m]].prefetch = (kin_proto_progress){0};
    r->next.question = 0;
    r->yields = false;
    r->changed = true;
}

void kin_membership_drop_next_with(kin_membership *r, int i) {
    for (int m = 0; m < r->next.n_members && r->next.question; m++) {
        if (r->next.members[m] == i) kin_membership_drop_next(r);
    }
}

static void fail_requests(kin_membership *r, const char *reason) {
    kin_membership_action *fail = kin_membership_act(r, KIN_MEMBERSHIP_FAIL);
    snprintf(fail->text, sizeof fail->text, "%s", reason);
}

void kin_membership_end_epoch(kin_membership *r, const char *reason) {
    if (!r->in_force) return;
    r->in_force = r->is_up = r->own_ring_open = false;
    kin_membership_drop_next(r);
    r->own_ring_error[0] = '\0';
    r->ended_at = r->now;
    r->change++; // the same plan again is a new epoch
    if (r->n_requests > 0) fail_requests(r, reason);
    r->n_requests = 0;
    if (r->n_members > 0) kin_membership_act(r, KIN_MEMBERSHIP_CLOSE_RING);
    for (int m = 0; m < r->n_members; m++) {
        int i = r->members[m];
        kin_membership_device *d = &r->devices[i];
        d->stage = 0;
        d->ring_open = false;
        d->ring_error[0] = '\0';
        bool worked = d->state == KIN_DEVICE_PREPARING || d->state == KIN_DEVICE_READY;
        if (worked) kin_membership_set_state(r, i, KIN_DEVICE_JOINED);
        if (worked || d->state == KIN_DEVICE_FAILED) {
            kin_membership_action *end = kin_membership_act(r, KIN_MEMBERSHIP_SEND_END);
            end->link = d->link;
            end->device = i;
            snprintf(end->text, sizeof end->text, "%s", reason);
        }
    }
    kin_membership_log(r, KIN_LOG_DEBUG, "plan %u ended: %s", r->epoch, reason);
    r->changed = true;
}

void kin_membership_log_break(kin_membership *r, kin_log_level level, const char *sentence) {
    if (r->broke_requests) fail_requests(r, sentence);
    kin_membership_log(r, r->broke_requests ? KIN_LOG_DEBUG : level, "%s", sentence);
    r->broken[0] = '\0';
}

void kin_membership_log_once(kin_membership *r, int i, kin_log_level level, const char *sentence) {
    bool is_member = kin_membership_is_member(r, i);
    if (is_member && r->broken[0])
        kin_membership_log_break(r, level, sentence);
    else
        kin_membership_log(r, is_member && r->n_requests > 0 ? KIN_LOG_DEBUG : level, "%s", sentence);
}

uint64_t kin_membership_rest_ns(const kin_membership *r, int n_failures) {
    uint64_t rest = r->options.rest_min_ns;
    for (int n = 0; n < n_failures && rest < r->options.rest_max_ns; n++) rest *= 2;
    return rest < r->options.rest_max_ns ? rest : r->options.rest_max_ns;
}

void kin_membership_leave_out(kin_membership *r, int i, const char *sentence) {
    kin_membership_device *d = &r->devices[i];
    char with_rest[KIN_MEMBERSHIP_SENTENCE * 2 + 64];
    uint64_t rest = kin_membership_rest_ns(r, d->n_failures++);
    bool works = r->in_force && kin_membership_is_member(r, i);
    r->rest_until[i] = r->now + rest;
    snprintf(with_rest, sizeof with_rest, "%s; it is left out for %.1f s", sentence, (double)rest / 1e9);
    kin_membership_log_once(r, i, KIN_LOG_WARN, with_rest);
    kin_membership_set_state(r, i, KIN_DEVICE_FAILED);
    kin_membership_drop_next_with(r, i);
    r->change++;
    if (works) kin_membership_end_epoch(r, with_rest);
}
