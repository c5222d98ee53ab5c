#include "pure/proto/membership.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/proto/goodbye.h"
#include "pure/proto/label.h"
#include "pure/proto/membership_begin.h"
#include "pure/proto/membership_end.h"
#include "pure/proto/membership_epoch.h"
#include "pure/proto/membership_next.h"

#define SECOND ((uint64_t)1000000000)

kin_membership_options kin_membership_options_default(void) {
    return (kin_membership_options){
        .epoch_first = 1,
        .plan_wait_ns = SECOND / 4,
        .join_wait_ns = SECOND,
        .lost_wait_ns = 3 * SECOND / 10,
        .facts_wait_ns = 3 * SECOND,
        .break_wait_ns = SECOND / 5,
        .spacing_ns = SECOND / 4,
        .ring_wait_ns = 8 * SECOND,
        .prefetch_wait_ns = 90 * SECOND,
        .soon_ns = 60 * SECOND,
        .late_ns = 10 * SECOND,
        .gentle_ns = SECOND,
        .rest_min_ns = 2 * SECOND,
        .rest_max_ns = 60 * SECOND,
    };
}

kin_membership *kin_membership_new(const kin_membership_options *options, kin_time now) {
    kin_assert(options->epoch_first > 0);
    kin_membership *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->options = *options;
    r->now = r->joined_at = r->ended_at = now;
    r->epoch = options->epoch_first - 1;
    r->change = 1; // the planner has not been asked yet
    return r;
}

void kin_membership_free(kin_membership *r) {
    free(r);
}

// ---- places

static int find_link(const kin_membership *r, uint32_t link) {
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        const kin_membership_device *d = &r->devices[i];
        bool is_there = d->state == KIN_DEVICE_GREETED || d->state == KIN_DEVICE_FAILED || kin_membership_is_available(r, i);
        if (is_there && d->link == link) return i;
    }
    return -1;
}

static int find_id(const kin_membership *r, const kin_proto_id *id) {
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        if (r->devices[i].state != KIN_DEVICE_NONE && kin_proto_id_equal(&r->devices[i].id, id)) return i;
    }
    return -1;
}

// Ranks how readily a place is given to a new device; 0: not at all. A member of the last plan may come back.
static int readiness(const kin_membership *r, int i) {
    kin_device_state state = r->devices[i].state;
    if (state == KIN_DEVICE_NONE) return 4;
    if (state == KIN_DEVICE_LEFT) return kin_membership_is_member(r, i) ? 2 : 3;
    if (state == KIN_DEVICE_LOST) return kin_membership_is_member(r, i) ? 1 : 3;
    return 0;
}

// Returns a place for a new device, or -1. Among equals, the one whose device has been gone longest.
static int find_place(const kin_membership *r) {
    int best = -1;
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        int is = readiness(r, i), was = best < 0 ? 0 : readiness(r, best);
        bool is_older = best >= 0 && r->devices[i].since < r->devices[best].since;
        if (is > was || (is > 0 && is == was && is_older)) best = i;
    }
    return best;
}

static void forget_member(kin_membership *r, int i) {
    kin_assert(!r->in_force || !kin_membership_is_member(r, i));
    int n = 0;
    for (int m = 0; m < r->n_members; m++) {
        if (r->members[m] == i) continue;
        r->members[n] = r->members[m];
        r->works[n++] = r->works[m];
    }
    if (n < r->n_members) r->has_plan = false; // the expected members are no longer known
    r->n_members = n;
}

static bool is_name_used(const kin_membership *r, const char *name, int but) {
    if (strcmp(r->options.name, name) == 0) return true;
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        if (i != but && r->devices[i].state != KIN_DEVICE_NONE && strcmp(r->devices[i].name, name) == 0) return true;
    }
    return false;
}

// Chooses "tower", or "tower-2" if another device already has that name.
static void choose_name(kin_membership *r, int i, const char *wanted) {
    char base[KIN_MEMBERSHIP_NAME - 11], *name = r->devices[i].name;
    kin_label_set(base, sizeof base - 1, wanted && wanted[0] ? wanted : "device");
    snprintf(name, KIN_MEMBERSHIP_NAME, "%s", base);
    for (int n = 2; is_name_used(r, name, i); n++) snprintf(name, KIN_MEMBERSHIP_NAME, "%s-%d", base, n);
}

// ---- going

// True if it was reported a short while ago that the device is gone; if not, it is reported now.
static bool was_just_logged(kin_membership *r, int i) {
    kin_membership_device *d = &r->devices[i];
    d->loss_is_unlogged = d->loss_logged_at != 0 && r->now - d->loss_logged_at < KIN_MEMBERSHIP_QUIET_S * SECOND;
    if (!d->loss_is_unlogged) d->loss_logged_at = r->now;
    return d->loss_is_unlogged;
}

// Reports devices that were lost again soon after such a report, and have not come back.
static void log_unlogged_losses(kin_membership *r) {
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        kin_membership_device *d = &r->devices[i];
        if (d->state != KIN_DEVICE_LOST || !d->loss_is_unlogged || was_just_logged(r, i)) continue;
        kin_membership_log(r, KIN_LOG_WARN, "device '%s' is gone (%s)", d->name, d->last_error);
    }
}

static void log_gone(kin_membership *r, int i, kin_device_state state, kin_log_level level, char *sentence, size_t n) {
    const char *why = r->devices[i].last_error;
    char whom[KIN_MEMBERSHIP_SENTENCE];
    bool is_stopped = state == KIN_DEVICE_LEFT && strcmp(why, KIN_GOODBYE_STOPPED) == 0;
    snprintf(sentence, n, "%s %s%s%s%s", kin_membership_whom(r, i, whom), state == KIN_DEVICE_LEFT ? "has left" : "is gone",
             is_stopped ? "" : " (", is_stopped ? "" : why, is_stopped ? "" : ")");
    kin_membership_log_once(r, i, state == KIN_DEVICE_LOST && was_just_logged(r, i) ? KIN_LOG_DEBUG : level, sentence);
}

// The device's link is gone or will be closed: the device gets `state` (LOST, LEFT).
static void part(kin_membership *r, int i, kin_device_state state, kin_log_level level, const char *reason) {
    kin_membership_device *d = &r->devices[i];
    char sentence[KIN_MEMBERSHIP_SENTENCE + KIN_MEMBERSHIP_REASON + 16];
    kin_label_set_sentence(d->last_error, sizeof d->last_error - 1, kin_goodbye_words(reason));
    log_gone(r, i, state, level, sentence, sizeof sentence);
    bool worked = r->in_force && kin_membership_is_member(r, i);
    if (kin_membership_is_available(r, i)) r->change++;
    kin_membership_set_state(r, i, state);
    kin_membership_drop_next_with(r, i);
    if (worked) kin_membership_end_epoch(r, sentence);
    r->changed = true;
}

static void log_refused(kin_membership *r, uint32_t link, kin_refusal refusal, const char *name, const char *reason) {
    char shown[KIN_MEMBERSHIP_NAME];
    kin_label_set(shown, sizeof shown - 1, name);
    kin_membership_action *refuse = kin_membership_act(r, KIN_MEMBERSHIP_REFUSE);
    refuse->link = link;
    snprintf(refuse->text, sizeof refuse->text, "%s: %s", kin_refusal_word(refusal), reason);
    kin_membership_log(r, KIN_LOG_WARN, "device '%s' is refused: %s", shown, reason);
}

// ---- joining

#define HOW_TO_MEND "if its disk or configuration was copied, delete the file device-id beside its key %s and start it again"

// True if the device may not join at all; fills in `reason`.
static bool is_unfit(const kin_membership *r, const kin_membership_hello *hello, kin_refusal *refusal, char *reason, size_t n) {
    uint32_t missing = r->options.features & ~hello->features;
    if (kin_proto_id_equal(&hello->id, &r->options.id) || kin_proto_id_is_none(&hello->id)) {
        *refusal = KIN_REFUSAL_IDENTITY;
        snprintf(reason, n, "its identity is missing or the same as the head's; " HOW_TO_MEND, "on it");
    } else if (missing) {
        *refusal = KIN_REFUSAL_FEATURE;
        snprintf(reason, n, "the device lacks features 0x%x, which the ring needs", (unsigned)missing);
    } else {
        return false;
    }
    return true;
}

// The same process on a newer link: its side noticed the break before ours did.
static void replace(kin_membership *r, int i) {
    kin_membership_action *drop = kin_membership_act(r, KIN_MEMBERSHIP_DROP);
    drop->link = r->devices[i].link;
    drop->device = i;
    snprintf(drop->text, sizeof drop->text, "the same device has joined again on a newer link");
    part(r, i, KIN_DEVICE_LOST, KIN_LOG_WARN, "it has reconnected");
}

static void forget_breaks(kin_membership *r, int i) {
    for (int other = 0; other <= KIN_MEMBERSHIP_DEVICES; other++) r->n_breaks[i][other] = r->n_breaks[other][i] = 0;
    r->n_accusations[i] = 0;
}

static int place_for(kin_membership *r, const kin_membership_hello *hello) {
    int i = find_id(r, &hello->id);
    if (i >= 0) return i;
    i = find_place(r);
    if (i < 0) return -1;
    forget_member(r, i);
    r->devices[i] = (kin_membership_device){.id = hello->id};
    forget_breaks(r, i);
    r->rest_until[i] = 0;
    choose_name(r, i, hello->name);
    return i;
}

static void handle_join(kin_membership *r, const kin_membership_event *event) {
    const kin_membership_hello *hello = event->hello;
    kin_refusal refusal;
    char reason[KIN_MEMBERSHIP_REASON];
    if (is_unfit(r, hello, &refusal, reason, sizeof reason)) {
        log_refused(r, event->link, refusal, hello->name, reason);
        return;
    }
    int i = find_id(r, &hello->id);
    bool is_there = i >= 0 && find_link(r, r->devices[i].link) == i;
    if (is_there && r->devices[i].run != hello->run) {
        snprintf(reason, sizeof reason, "'%s' has already joined with the same identity; " HOW_TO_MEND, r->devices[i].name,
                 "on one of the two");
        log_refused(r, event->link, KIN_REFUSAL_DUPLICATE, hello->name, reason);
        return;
    }
    if (is_there) replace(r, i);
    i = place_for(r, hello);
    if (i < 0) {
        snprintf(reason, sizeof reason, "%d devices have joined already, which is the maximum", KIN_MEMBERSHIP_DEVICES);
        log_refused(r, event->link, KIN_REFUSAL_BUSY, hello->name, reason);
        return;
    }
    kin_membership_set_state(r, i, KIN_DEVICE_GREETED);
    r->devices[i].link = event->link;
    r->devices[i].run = hello->run;
    r->devices[i].features = hello->features;
    r->devices[i].last_error[0] = '\0';
    kin_membership_action *accept = kin_membership_act(r, KIN_MEMBERSHIP_ACCEPT);
    accept->link = event->link;
    accept->device = i;
    r->changed = true;
}

static bool is_known(const kin_proto_hash *model) {
    static const kin_proto_hash none;
    return memcmp(model->bytes, none.bytes, sizeof none.bytes) != 0;
}

static bool has_other_model(const kin_membership *r, int i) {
    const kin_proto_hash *theirs = &r->devices[i].facts.model, *ours = &r->options.model;
    return is_known(theirs) && is_known(ours) && memcmp(theirs->bytes, ours->bytes, sizeof ours->bytes) != 0;
}

static void refuse_model(kin_membership *r, int i) {
    static const char reason[] = "its model file differs from the head's";
    log_refused(r, r->devices[i].link, KIN_REFUSAL_MODEL, r->devices[i].name, reason);
    part(r, i, KIN_DEVICE_LEFT, KIN_LOG_DEBUG, reason); // the refusal has been logged
}

static void handle_facts(kin_membership *r, int i, const kin_proto_device *facts) {
    kin_membership_device *d = &r->devices[i];
    d->facts = *facts;
    r->changed = true;
    if (has_other_model(r, i)) {
        refuse_model(r, i);
        return;
    }
    if (d->state != KIN_DEVICE_GREETED) return; // new facts of a device that has already joined: for the next plan
    kin_membership_set_state(r, i, r->now < r->rest_until[i] ? KIN_DEVICE_FAILED : KIN_DEVICE_JOINED);
    r->change++;
    r->joined_at = r->now;
    kin_membership_log(r, KIN_LOG_INFO, "device '%s' has joined", d->name);
}

static void set_model(kin_membership *r, const kin_proto_hash *model) {
    r->options.model = *model;
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        if ((kin_membership_is_available(r, i) || r->devices[i].state == KIN_DEVICE_FAILED) && has_other_model(r, i))
            refuse_model(r, i);
    }
}

// ---- working

static void handle_failed(kin_membership *r, int i, const kin_membership_event *event) {
    kin_membership_device *d = &r->devices[i];
    char stage[KIN_MEMBERSHIP_NAME], whom[KIN_MEMBERSHIP_SENTENCE], sentence[KIN_MEMBERSHIP_SENTENCE * 2];
    kin_label_set(stage, sizeof stage - 1, event->stage);
    kin_label_set_sentence(d->last_error, sizeof d->last_error - 1, event->reason);
    // Its cache may lack room for slices, which stream from there. Until it joins anew, slices must fit into its memory.
    if (strcmp(stage, "loading") == 0) d->features |= KIN_PROTO_NO_SLICES;
    kin_membership_note_progress(r, event->progress_made);
    if (strcmp(stage, "receiving") == 0) {
        kin_membership_blame_sender(r, i, event->reason);
        return;
    }
    snprintf(sentence, sizeof sentence, "%s failed at %s: %s", kin_membership_whom(r, i, whom), stage[0] ? stage : "its work",
             d->last_error);
    kin_membership_leave_out(r, i, sentence);
}

static void handle_work(kin_membership *r, int i, const kin_membership_event *event) {
    kin_membership_device *d = &r->devices[i];
    bool works = d->state == KIN_DEVICE_PREPARING || d->state == KIN_DEVICE_READY;
    if (!works || !kin_membership_accepts(r, event->epoch)) return;
    if (event->kind == KIN_MEMBERSHIP_FAILED) {
        handle_failed(r, i, event);
    } else if (event->kind == KIN_MEMBERSHIP_PROGRESS && d->state == KIN_DEVICE_PREPARING) {
        d->progress = *event->progress;
        if (d->progress.done > d->progress.total) d->progress.done = d->progress.total; // a peer's numbers are not trusted
        r->changed = true;
    } else if (event->kind == KIN_MEMBERSHIP_READY && d->state == KIN_DEVICE_PREPARING) {
        char whom[KIN_MEMBERSHIP_SENTENCE];
        kin_membership_set_state(r, i, KIN_DEVICE_READY);
        d->last_error[0] = '\0'; // the problem is over
        kin_membership_log(r, KIN_LOG_INFO, "%s is ready", kin_membership_whom(r, i, whom));
        r->changed = true;
        kin_membership_check_ready(r);
    }
}

// ---- time

static void drop_silent(kin_membership *r, int i) {
    kin_membership_action *drop = kin_membership_act(r, KIN_MEMBERSHIP_DROP);
    drop->link = r->devices[i].link;
    drop->device = i;
    snprintf(drop->text, sizeof drop->text, "it joined, but did not send its profile");
    part(r, i, KIN_DEVICE_LOST, KIN_LOG_WARN, "it joined, but did not send its profile");
}

static void handle_tick(kin_membership *r) {
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        kin_membership_device *d = &r->devices[i];
        if (d->state == KIN_DEVICE_GREETED && r->now - d->since >= r->options.facts_wait_ns) drop_silent(r, i);
        if (d->state == KIN_DEVICE_FAILED && r->now >= r->rest_until[i]) {
            kin_membership_set_state(r, i, KIN_DEVICE_JOINED);
            r->change++;
            r->changed = true;
        }
    }
}

// ---- the step

static void handle_device(kin_membership *r, const kin_membership_event *event) {
    int i = find_link(r, event->link);
    if (i < 0) return;
    switch (event->kind) {
    case KIN_MEMBERSHIP_FACTS: handle_facts(r, i, event->facts); break;
    case KIN_MEMBERSHIP_LOST: part(r, i, KIN_DEVICE_LOST, KIN_LOG_WARN, event->reason); break;
    case KIN_MEMBERSHIP_LEFT: part(r, i, KIN_DEVICE_LEFT, KIN_LOG_INFO, event->reason); break;
    default: handle_work(r, i, event);
    }
}

const kin_membership_actions *kin_membership_step(kin_membership *r, kin_time now, const kin_membership_event *event) {
    kin_assert(now >= r->now);
    r->now = now;
    r->actions.n = 0;
    switch (event->kind) {
    case KIN_MEMBERSHIP_TICK: break;
    case KIN_MEMBERSHIP_MODEL: set_model(r, event->model); break;
    case KIN_MEMBERSHIP_JOINS: handle_join(r, event); break;
    case KIN_MEMBERSHIP_FACTS:
    case KIN_MEMBERSHIP_PROGRESS:
    case KIN_MEMBERSHIP_READY:
    case KIN_MEMBERSHIP_FAILED:
    case KIN_MEMBERSHIP_LOST:
    case KIN_MEMBERSHIP_LEFT: handle_device(r, event); break;
    case KIN_MEMBERSHIP_PREFETCHED: kin_membership_handle_prefetched(r, event); break;
    case KIN_MEMBERSHIP_RING_OPENED:
    case KIN_MEMBERSHIP_RING_CLOSED: kin_membership_handle_ring(r, event); break;
    case KIN_MEMBERSHIP_WRONG: kin_membership_handle_wrong(r, event); break;
    case KIN_MEMBERSHIP_LOSES: kin_membership_handle_loss(r, event); break;
    case KIN_MEMBERSHIP_PLANNED: kin_membership_handle_plan(r, event); break;
    case KIN_MEMBERSHIP_NO_PLAN: kin_membership_handle_no_plan(r, event); break;
    case KIN_MEMBERSHIP_DRIFT: r->change++; break;
    case KIN_MEMBERSHIP_BEGINS:
    case KIN_MEMBERSHIP_ENDS:
    case KIN_MEMBERSHIP_ABORTED: kin_membership_handle_request(r, event); break;
    }
    handle_tick(r);
    log_unlogged_losses(r);
    kin_membership_check_break(r);
    kin_membership_check_ring(r);
    kin_membership_check_next(r);
    kin_membership_check_due(r);
    kin_membership_check_ready(r);
    if (r->changed) kin_membership_act(r, KIN_MEMBERSHIP_STATUS);
    r->changed = false;
    return &r->actions;
}
