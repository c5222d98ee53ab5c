#include "pure/proto/membership_epoch.h"

#include <stdio.h>
#include <string.h>

#include "pure/proto/label.h"
#include "pure/proto/membership_begin.h"
#include "pure/proto/membership_end.h"
#include "pure/proto/membership_next.h"
#include "pure/proto/membership_view.h"

enum { BREAKS_MOST = 2 }; // most breaks of a hop without progress

// ---- when to ask the planner

static kin_time latest(kin_time a, kin_time b) {
    return a > b ? a : b;
}

static bool everybody_is_here(const kin_membership *r) {
    if (!r->has_plan && r->options.n_expected == 0) return false;
    for (int m = 0; m < r->n_members; m++) {
        if (!kin_membership_is_available(r, r->members[m])) return false;
    }
    return kin_membership_n_available(r) >= r->options.n_expected;
}

static kin_time due(const kin_membership *r) {
    kin_time at = kin_membership_later(r->ended_at, r->options.spacing_ns);
    if (r->in_force) return latest(at, kin_membership_later(r->joined_at, r->options.join_wait_ns));
    if (everybody_is_here(r)) return at;
    for (int m = 0; m < r->n_members; m++) {
        bool is_lost = r->devices[r->members[m]].state == KIN_DEVICE_LOST;
        if (is_lost) at = latest(at, kin_membership_later(r->ended_at, r->options.lost_wait_ns));
    }
    if (!r->was_up && kin_membership_n_available(r) > 0)
        return latest(at, kin_membership_later(r->joined_at, r->options.plan_wait_ns));
    return latest(at, kin_membership_later(r->joined_at, r->options.join_wait_ns));
}

// True if a device has joined a moment ago and will send its facts soon.
static bool somebody_enters(const kin_membership *r) {
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        const kin_membership_device *d = &r->devices[i];
        if (d->state == KIN_DEVICE_GREETED && r->now - d->since < r->options.join_wait_ns) return true;
    }
    return false;
}

void kin_membership_check_due(kin_membership *r) {
    if (r->change == r->change_answered || (r->asking && r->change == r->change_asked)) return;
    if (r->now < due(r) || somebody_enters(r)) return;
    kin_membership_action *ask = kin_membership_act(r, KIN_MEMBERSHIP_ASK);
    ask->question = ++r->question;
    uint32_t about = 0;
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        if (!kin_membership_is_available(r, i) || r->late >> i & 1) continue;
        ask->devices[ask->n_devices++] = (uint8_t)i;
        about |= UINT32_C(1) << i;
    }
    if (r->late) r->asked_soon = about;
    r->asked_now = r->late;
    r->late = 0;
    r->asking = true;
    r->is_short = false;
    r->change_asked = r->change;
}

// ---- the planner's answer

static bool is_for_now(kin_membership *r, const kin_membership_event *event) {
    if (!r->asking || event->question != r->question) return false;
    r->asking = false;
    if (r->change_asked != r->change) r->asked_soon = 0;
    return r->change_asked == r->change; // otherwise a device joined or left in the meantime: ask again
}

static int find_available(const kin_membership *r, const kin_proto_id *id) {
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        if (kin_membership_is_available(r, i) && kin_proto_id_equal(&r->devices[i].id, id)) return i;
    }
    return -1;
}

// Reads the members and hashes of a plan. The planner must name only devices of its question, each once.
static void read_plan(const kin_membership *r, const kin_membership_event *event, uint8_t *members, uint64_t *works) {
    kin_assert(event->n_stages >= 0 && event->n_stages <= KIN_MEMBERSHIP_DEVICES);
    for (int m = 0; m < event->n_stages; m++) {
        int i = find_available(r, &event->stages[m].id);
        kin_assert(i >= 0);
        for (int other = 0; other < m; other++) kin_assert(members[other] != i);
        members[m] = (uint8_t)i;
        works[m] = event->stages[m].work;
    }
}

static bool is_same_plan(const kin_membership *r, int n, const uint8_t *members, const uint64_t *works) {
    if (!r->in_force || n != r->n_members) return false;
    for (int m = 0; m < n; m++) {
        if (members[m] != r->members[m] || works[m] != r->works[m]) return false;
    }
    return true;
}

void kin_membership_handle_plan(kin_membership *r, const kin_membership_event *event) {
    if (!is_for_now(r, event)) return;
    uint8_t members[KIN_MEMBERSHIP_DEVICES];
    uint64_t works[KIN_MEMBERSHIP_DEVICES];
    read_plan(r, event, members, works);
    bool is_same = is_same_plan(r, event->n_stages, members, works), is_news = r->change_answered != r->change;
    r->change_answered = r->change;
    if (is_same && r->asked_now) {
        kin_membership_end_soon(r);
    } else if (is_same) {
        kin_membership_drop_next(r);
        if (is_news && r->is_up && r->n_members == 0) kin_membership_log_doing(r);
    } else if (r->is_up) {
        kin_membership_prepare_next(r, event, members, works);
    } else {
        kin_membership_end_epoch(r, "there is a better plan for the present devices");
        r->change_answered = r->change;
        kin_membership_begin_epoch(r, event->question, event->n_stages, members, works);
    }
}

void kin_membership_handle_no_plan(kin_membership *r, const kin_membership_event *event) {
    if (!is_for_now(r, event)) return;
    r->change_answered = r->change;
    if (r->asked_now) {
        kin_membership_end_soon(r);
        return;
    }
    kin_membership_drop_next(r);
    r->changed = true;
    if (r->in_force) return; // the epoch in force goes on: all its members are there
    r->is_short = true;
    kin_label_set_sentence(r->short_reason, sizeof r->short_reason - 1, event->reason);
    char doing[KIN_MEMBERSHIP_SENTENCE];
    kin_membership_log(r, KIN_LOG_WARN, "%s", kin_membership_doing(r, doing, sizeof doing));
    r->changed = true;
}

// ---- ring and requests

static int member_of_link(const kin_membership *r, uint32_t link) {
    for (int m = 0; m < r->n_members; m++) {
        const kin_membership_device *d = &r->devices[r->members[m]];
        bool works = d->state == KIN_DEVICE_PREPARING || d->state == KIN_DEVICE_READY;
        if (works && d->link == link) return m;
    }
    return -1;
}

// Returns the sending end of the hop from member m to the next one, as an index of the break counts. -1 and n_members are the
// head.
static uint8_t end_of_hop(const kin_membership *r, int m) {
    return m >= 0 && m < r->n_members ? r->members[m] : KIN_MEMBERSHIP_DEVICES;
}

static void end_for_ring_link(kin_membership *r, int m, const char *reason) {
    char from[KIN_MEMBERSHIP_SENTENCE] = "the head", to[KIN_MEMBERSHIP_SENTENCE] = "the head";
    char why[KIN_MEMBERSHIP_REASON], sentence[KIN_MEMBERSHIP_SENTENCE * 2 + KIN_MEMBERSHIP_REASON + 64];
    if (m >= 0) kin_membership_whom(r, r->members[m], from);
    if (m + 1 < r->n_members) kin_membership_whom(r, r->members[m + 1], to);
    kin_label_set_sentence(why, sizeof why - 1, reason);
    snprintf(sentence, sizeof sentence, "the link from %s to %s broke: %s", from, to, why);
    kin_label_set_sentence(r->broken, sizeof r->broken - 1, sentence);
    memcpy(r->last_break, r->broken, sizeof r->last_break);
    r->broken_at = r->now;
    r->broke_requests = r->n_requests > 0;
    r->broken_from = end_of_hop(r, m);
    r->broken_to = end_of_hop(r, m + 1);
    r->n_requests = 0; // they are informed in a moment
    kin_membership_end_epoch(r, sentence);
}

// Forgets the faults of this epoch's hops and members. A ring without a hop says nothing about that hop when it works.
static void forget_faults(kin_membership *r) {
    for (int m = -1; m < r->n_members; m++) {
        r->n_breaks[end_of_hop(r, m)][end_of_hop(r, m + 1)] = 0;
        if (m >= 0) r->n_accusations[r->members[m]] = 0;
    }
}

void kin_membership_note_progress(kin_membership *r, uint64_t progress) {
    if (progress != r->progress) forget_faults(r);
    r->progress = progress;
}

static int count_breaks_at(const kin_membership *r, int end) {
    int n = 0;
    for (int i = 0; i <= KIN_MEMBERSHIP_DEVICES; i++) n += r->n_breaks[end][i] + r->n_breaks[i][end];
    return n;
}

// Returns the end whose other links break more often, otherwise the receiving one. Never the head.
static int end_that_breaks(const kin_membership *r) {
    if (r->broken_from == KIN_MEMBERSHIP_DEVICES) return r->broken_to;
    if (r->broken_to == KIN_MEMBERSHIP_DEVICES) return r->broken_from;
    return count_breaks_at(r, r->broken_from) > count_breaks_at(r, r->broken_to) ? r->broken_from : r->broken_to;
}

// The next plan would have the same hop. The cause was not a lost device: that would be known by now.
static void count_break(kin_membership *r) {
    char sentence[KIN_MEMBERSHIP_SENTENCE + 64];
    uint8_t *n = &r->n_breaks[r->broken_from][r->broken_to];
    if (*n < UINT8_MAX) ++*n;
    bool is_the_head_alone = r->broken_from == r->broken_to;
    if (*n < BREAKS_MOST || is_the_head_alone) {
        kin_membership_log_break(r, KIN_LOG_WARN, r->broken);
        return;
    }
    int out = end_that_breaks(r);
    kin_membership_device *d = &r->devices[out];
    snprintf(sentence, sizeof sentence, "%s again before a step completed", r->broken);
    kin_label_set_sentence(d->last_error, sizeof d->last_error - 1, sentence);
    if (kin_membership_is_available(r, out)) kin_membership_leave_out(r, out, sentence);
    if (r->broken[0]) kin_membership_log_break(r, KIN_LOG_WARN, sentence);
}

void kin_membership_check_break(kin_membership *r) {
    if (r->broken[0] && r->now - r->broken_at >= r->options.break_wait_ns) count_break(r);
}

void kin_membership_handle_ring(kin_membership *r, const kin_membership_event *event) {
    if (!kin_membership_accepts(r, event->epoch)) return;
    bool is_own = event->link == KIN_MEMBERSHIP_OWN;
    int m = is_own ? -1 : member_of_link(r, event->link);
    if (m < 0 && !is_own) return;
    bool is_open = event->kind == KIN_MEMBERSHIP_RING_OPENED;
    if (!is_open && r->is_up) {
        kin_membership_note_progress(r, event->progress_made);
        end_for_ring_link(r, m, event->reason);
        return;
    }
    if (is_open) r->progress = event->progress_made; // made by other rings
    kin_membership_device *d = is_own ? NULL : &r->devices[r->members[m]];
    bool *was_open = d ? &d->ring_open : &r->own_ring_open;
    if (*was_open && !is_open) *(d ? &d->ring_since : &r->own_ring_since) = r->now;
    *was_open = is_open;
    kin_label_set_sentence(d ? d->ring_error : r->own_ring_error, KIN_MEMBERSHIP_REASON - 1, is_open ? "" : event->reason);
    r->changed = true;
    kin_membership_check_ready(r);
}

// ---- invalid data

// Leaves out member m, because the next member, or the head, received invalid data from it.
static void leave_out_sender(kin_membership *r, int m, const char *receiver, const char *reason) {
    char whom[KIN_MEMBERSHIP_SENTENCE], why[KIN_MEMBERSHIP_REASON], sentence[KIN_MEMBERSHIP_SENTENCE * 2 + KIN_MEMBERSHIP_REASON];
    int out = r->members[m];
    kin_label_set_sentence(why, sizeof why - 1, reason);
    snprintf(sentence, sizeof sentence, "%s sent an invalid message to %s: %s", kin_membership_whom(r, out, whom), receiver, why);
    kin_label_set_sentence(r->devices[out].last_error, sizeof r->devices[out].last_error - 1, sentence);
    kin_membership_leave_out(r, out, sentence);
}

void kin_membership_handle_wrong(kin_membership *r, const kin_membership_event *event) {
    if (!kin_membership_accepts(r, event->epoch) || r->n_members == 0) return;
    kin_membership_note_progress(r, event->progress_made);
    leave_out_sender(r, r->n_members - 1, "the head", event->reason);
}

// It is not known which of the two is wrong: the sender is blamed first, but a device that accuses again, whichever sender, is
// blamed itself.
static bool is_sender_to_blame(kin_membership *r, int m) {
    return m > 0 && (m == r->n_members || r->n_accusations[r->members[m]]++ == 0);
}

void kin_membership_blame_sender(kin_membership *r, int i, const char *reason) {
    char whom[KIN_MEMBERSHIP_SENTENCE], sentence[KIN_MEMBERSHIP_SENTENCE + KIN_MEMBERSHIP_REASON + 64];
    int m = 0;
    while (r->members[m] != i) m++;
    kin_membership_whom(r, i, whom);
    if (is_sender_to_blame(r, m)) {
        leave_out_sender(r, m - 1, whom, reason);
        return;
    }
    snprintf(sentence, sizeof sentence, "%s cannot use the messages of the member before it: %s", whom, r->devices[i].last_error);
    kin_membership_leave_out(r, i, sentence);
}

// Returns the name of member m, or of the head.
static const char *name_member(const kin_membership *r, int m, char buf[KIN_MEMBERSHIP_SENTENCE]) {
    return m >= 0 && m < r->n_members ? kin_membership_whom(r, r->members[m], buf) : "the head";
}

// If a step was lost between two members, either may have lost it. The sentence first names the one that is left out.
void kin_membership_handle_loss(kin_membership *r, const kin_membership_event *event) {
    char out_name[KIN_MEMBERSHIP_SENTENCE], other[KIN_MEMBERSHIP_SENTENCE], why[KIN_MEMBERSHIP_REASON];
    char sentence[2 * KIN_MEMBERSHIP_SENTENCE + KIN_MEMBERSHIP_REASON + 64];
    int m = event->loser, out = m;
    if (!kin_membership_accepts(r, event->epoch) || r->n_members == 0 || m < 0 || m >= r->n_members + event->is_hop) return;
    kin_membership_note_progress(r, event->progress_made);
    kin_label_set_sentence(why, sizeof why - 1, event->reason);
    if (event->is_hop && is_sender_to_blame(r, m)) out = m - 1;
    kin_membership_whom(r, r->members[out], out_name);
    if (!event->is_hop)
        snprintf(sentence, sizeof sentence, "%s %s", out_name, why);
    else if (out < m)
        snprintf(sentence, sizeof sentence, "%s sent a step that %s has not received %s", out_name, name_member(r, m, other),
                 why);
    else
        snprintf(sentence, sizeof sentence, "%s has not received a step that %s sent to it %s", out_name,
                 name_member(r, m - 1, other), why);
    kin_membership_device *d = &r->devices[r->members[out]];
    kin_label_set_sentence(d->last_error, sizeof d->last_error - 1, sentence);
    kin_membership_leave_out(r, r->members[out], sentence);
}

// True if the link from member m (-1: the head) has been closed for too long, although both ends tried to open it, also through
// the head.
static bool is_late(const kin_membership *r, int m) {
    const kin_membership_device *d = m < 0 ? NULL : &r->devices[r->members[m]];
    bool is_open = d ? d->ring_open : r->own_ring_open;
    kin_time since = d ? d->ring_since : r->own_ring_since;
    return !is_open && r->now >= kin_membership_later(since, r->options.ring_wait_ns);
}

// Returns the end whose other link is late too, otherwise the end that is called. Never the head.
static int end_to_leave_out(const kin_membership *r, int m) {
    if (m < 0) return 0;
    bool is_last = m + 1 == r->n_members;
    return is_last || (is_late(r, m - 1) && !is_late(r, m + 1)) ? m : m + 1;
}

void kin_membership_check_ring(kin_membership *r) {
    int m = -1;
    if (!r->in_force || r->is_up || r->n_members == 0) return;
    while (m < r->n_members && !is_late(r, m)) m++;
    if (m == r->n_members) return;
    char from[KIN_MEMBERSHIP_SENTENCE] = "the head", to[KIN_MEMBERSHIP_SENTENCE] = "the head";
    char sentence[KIN_MEMBERSHIP_SENTENCE * 2 + KIN_MEMBERSHIP_REASON + 128];
    if (m >= 0) kin_membership_whom(r, r->members[m], from);
    if (m + 1 < r->n_members) kin_membership_whom(r, r->members[m + 1], to);
    const char *error = m >= 0 ? r->devices[r->members[m]].ring_error : r->own_ring_error;
    int out = r->members[end_to_leave_out(r, m)];
    kin_membership_device *d = &r->devices[out];
    if (kin_membership_was_reached(error))
        snprintf(sentence, sizeof sentence, "the link from %s to %s is too slow to compute over (%s)", from, to, error);
    else
        snprintf(sentence, sizeof sentence, "no link from %s to %s (%s); open TCP port %u in the firewall of '%s'", from, to,
                 error[0] ? error : "no answer", d->facts.endpoint.port, d->name);
    kin_label_set_sentence(d->last_error, sizeof d->last_error - 1, sentence);
    kin_membership_leave_out(r, out, sentence);
}

void kin_membership_handle_request(kin_membership *r, const kin_membership_event *event) {
    if (event->kind == KIN_MEMBERSHIP_BEGINS) {
        if (r->is_up && !r->yields) {
            r->n_requests++;
            r->broken[0] = '\0'; // of an earlier request, which has ended by itself
            return;
        }
        char doing[KIN_MEMBERSHIP_SENTENCE];
        kin_membership_action *fail = kin_membership_act(r, KIN_MEMBERSHIP_FAIL);
        snprintf(fail->text, sizeof fail->text, "%s", kin_membership_doing(r, doing, sizeof doing));
        return;
    }
    if (!kin_membership_accepts(r, event->epoch) || r->n_requests == 0) return;
    r->n_requests--;
    r->last_request_at = r->now;
    if (r->yields) r->changed = true;
    if (event->kind == KIN_MEMBERSHIP_ABORTED) return;
    if (r->n_members > 0) forget_faults(r); // a standalone head says nothing about its links
    for (int m = 0; m < r->n_members; m++) r->devices[r->members[m]].n_failures = 0;
}
