#include "pure/proto/membership_next.h"

#include <stdio.h>
#include <string.h>

#include "pure/proto/label.h"
#include "pure/proto/membership_begin.h"
#include "pure/proto/membership_end.h"

enum { WAITS_WITHOUT_NUMBERS = 10 };

// ---- preparing it

static bool is_prepared_already(const kin_membership *r, int n, const uint8_t *members, const uint64_t *works) {
    return r->next.question && n == r->next.n_members && memcmp(members, r->next.members, (size_t)n) == 0 &&
           memcmp(works, r->next.works, (size_t)n * sizeof *works) == 0;
}

// True if this is what the device computes now.
static bool has_already(const kin_membership *r, int i, uint64_t work) {
    for (int m = 0; m < r->n_members; m++) {
        if (r->members[m] == i) return r->works[m] == work;
    }
    return false;
}

static void order_prefetch(kin_membership *r, uint32_t link, int i) {
    kin_membership_action *prefetch = kin_membership_act(r, KIN_MEMBERSHIP_PREFETCH);
    prefetch->link = link;
    prefetch->device = i;
    prefetch->question = r->next.question;
    prefetch->rate_limited = r->next.rate_limited;
}

static void order_all_prefetches(kin_membership *r) {
    for (int m = 0; m < r->next.n_members; m++) {
        if (!r->next.has[m]) order_prefetch(r, r->devices[r->next.members[m]].link, r->next.members[m]);
    }
    if (!r->next.own_has) order_prefetch(r, KIN_MEMBERSHIP_OWN, 0);
}

static bool is_busy(const kin_membership *r) {
    bool was_busy = r->last_request_at > 0 && r->now < kin_membership_later(r->last_request_at, r->options.gentle_ns);
    return r->n_requests > 0 || was_busy;
}

// The same plan answers another question, by whose number the planner and the driver know it.
static void renumber_next(kin_membership *r, uint32_t question) {
    if (!r->is_renumbered) return;
    r->is_renumbered = false;
    r->next.question = question;
    order_all_prefetches(r);
}

void kin_membership_prepare_next(kin_membership *r, const kin_membership_event *event, const uint8_t *members,
                                 const uint64_t *works) {
    int n = event->n_stages;
    if (r->now < r->no_next_until) return;
    if (is_prepared_already(r, n, members, works)) {
        renumber_next(r, event->question);
        return;
    }
    if (r->next.question && r->next.is_soon && !r->asked_now) r->asked_soon = 0; // it is dropped for one that may take long
    kin_membership_drop_next(r);
    r->is_renumbered = false;
    r->next.is_soon = r->asked_now != 0;
    r->next.begun_at = r->now;
    r->next.question = event->question;
    r->next.n_members = n;
    r->next.own_has = false;
    r->next.rate_limited = is_busy(r);
    r->next.moved_at = r->now;
    for (int m = 0; m < n; m++) {
        r->next.members[m] = members[m];
        r->next.works[m] = works[m];
        r->next.has[m] = has_already(r, members[m], works[m]);
    }
    kin_membership_log(r, KIN_LOG_DEBUG, "preparing a better plan with %d device%s", n, n == 1 ? "" : "s");
    order_all_prefetches(r);
    r->changed = true;
}

// ---- how it goes

static int find_member(const kin_membership *r, uint32_t link) {
    for (int m = 0; m < r->next.n_members; m++) {
        if (r->devices[r->next.members[m]].link == link) return m;
    }
    return -1;
}

// A device that works in the ring goes on with what it has, and another plan is made a while later. Any other device is left out.
static void give_up(kin_membership *r, int m, const char *reason) {
    char whom[KIN_MEMBERSHIP_SENTENCE], sentence[KIN_MEMBERSHIP_SENTENCE + KIN_MEMBERSHIP_REASON + 64],
        why[KIN_MEMBERSHIP_REASON];
    int i = r->next.members[m];
    kin_label_set_sentence(why, sizeof why - 1, reason);
    snprintf(sentence, sizeof sentence, "%s cannot prepare a better plan: %s", kin_membership_whom(r, i, whom), why);
    if (!kin_membership_is_member(r, i)) {
        kin_membership_leave_out(r, i, sentence);
        return;
    }
    kin_membership_log(r, KIN_LOG_WARN, "%s", sentence);
    r->no_next_until = r->now + kin_membership_rest_ns(r, r->n_next_failures++);
    kin_membership_drop_next(r);
}

// The rate changes as long as bytes arrive: over a slow link a chunk may take longer than the head waits.
static bool is_same_progress(const kin_proto_progress *a, const kin_proto_progress *b) {
    return a->stage == b->stage && a->done == b->done && a->total == b->total && a->rate == b->rate;
}

static void note_progress(kin_membership *r, int m, const kin_membership_event *event) {
    kin_proto_progress *known = &r->devices[r->next.members[m]].prefetch;
    if (event->is_here || !is_same_progress(known, event->progress)) r->next.moved_at = r->now;
    r->next.has[m] = event->is_here;
    *known = *event->progress;
}

// Reported numbers move only while fetching, so hashing and packing may take longer.
static bool is_stuck(const kin_membership *r, int m) {
    kin_proto_stage stage = r->devices[r->next.members[m]].prefetch.stage;
    bool has_numbers = stage == KIN_PROTO_FETCHING || r->devices[r->next.members[m]].prefetch.total == 0;
    uint64_t wait = has_numbers ? r->options.prefetch_wait_ns : WAITS_WITHOUT_NUMBERS * r->options.prefetch_wait_ns;
    return r->now >= kin_membership_later(r->next.moved_at, wait);
}

void kin_membership_handle_prefetched(kin_membership *r, const kin_membership_event *event) {
    if (!r->next.question || event->question != r->next.question) return;
    bool is_own = event->link == KIN_MEMBERSHIP_OWN;
    int m = is_own ? -1 : find_member(r, event->link);
    if (m < 0 && !is_own) return;
    r->changed = true;
    if (is_own) {
        r->next.moved_at = r->now;
        r->next.own_has = event->is_here || event->reason; // it packs when the epoch begins what it could not pack now
    } else if (event->reason) {
        give_up(r, m, event->reason);
    } else {
        note_progress(r, m, event);
    }
}

static int who_is_missing(const kin_membership *r) {
    for (int m = 0; m < r->next.n_members; m++) {
        if (!r->next.has[m]) return m;
    }
    return -1;
}

// ---- members that are not ready soon

static bool is_late(const kin_membership *r, int m) {
    const kin_proto_progress *p = &r->devices[r->next.members[m]].prefetch;
    uint64_t spent_ns = r->now - r->next.begun_at;
    if (r->next.has[m] || spent_ns < r->options.late_ns || p->done >= p->total || p->rate == 0) return false;
    return (double)(p->total - p->done) / (double)p->rate > (double)r->options.soon_ns / 1e9;
}

// Asks the planner, once, for the best plan of the other devices.
static void check_late(kin_membership *r) {
    uint32_t late = 0, others = 0;
    for (int m = 0; m < r->next.n_members; m++) late |= is_late(r, m) ? UINT32_C(1) << r->next.members[m] : 0;
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        if (kin_membership_is_available(r, i) && !(late >> i & 1)) others |= UINT32_C(1) << i;
    }
    if (!late || others == r->asked_soon || r->asking || r->late) return;
    kin_membership_log(r, KIN_LOG_DEBUG,
                       "fetching the better plan takes long: asking the planner for one without the slow devices");
    r->late = late;
    r->change++;
}

void kin_membership_end_soon(kin_membership *r) {
    r->is_renumbered = true;
    r->change++;
}

static void switch_to_next(kin_membership *r) {
    uint8_t members[KIN_MEMBERSHIP_DEVICES];
    uint64_t works[KIN_MEMBERSHIP_DEVICES];
    uint32_t question = r->next.question, answered = r->change_answered, change = r->change;
    int n = r->next.n_members;
    memcpy(members, r->next.members, sizeof members);
    memcpy(works, r->next.works, sizeof works);
    kin_membership_end_epoch(r, "a better plan is ready");
    r->change_answered = r->change - (change - answered); // a device that joined in the meantime still has to be planned for
    r->n_next_failures = 0;
    if (r->next.is_soon) r->change++; // then the best plan with all devices
    kin_membership_begin_epoch(r, question, n, members, works);
}

// A member could not prefetch, and the time for which the ring stays as it is has passed: asks the planner again.
static void replan_after_wait(kin_membership *r) {
    if (!r->no_next_until || r->now < r->no_next_until) return;
    r->no_next_until = 0;
    r->change++;
}

void kin_membership_check_next(kin_membership *r) {
    replan_after_wait(r);
    if (!r->next.question) return;
    int m = who_is_missing(r);
    if (m < 0 && r->next.own_has) {
        if (!r->yields) r->changed = true;
        r->yields = true;
        if (r->n_requests == 0) switch_to_next(r);
        return;
    }
    if (m >= 0 && is_stuck(r, m)) {
        give_up(r, m, "it makes no progress");
        return;
    }
    if (m < 0 && r->now >= kin_membership_later(r->next.moved_at, r->options.prefetch_wait_ns)) {
        r->next.own_has = true; // it packs when the epoch begins
        return;
    }
    if (m >= 0) check_late(r);
    if (r->next.rate_limited == is_busy(r)) return;
    r->next.rate_limited = !r->next.rate_limited;
    order_all_prefetches(r);
}
