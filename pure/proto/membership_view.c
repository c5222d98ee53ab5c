#include "pure/proto/membership_view.h"

#include <stdio.h>
#include <string.h>

#include "base/sentence.h"
#include "pure/proto/membership_state.h"

const kin_membership_device *kin_membership_device_at(const kin_membership *r, int i) {
    kin_assert(i >= 0 && i < KIN_MEMBERSHIP_DEVICES);
    return r->devices[i].state == KIN_DEVICE_NONE ? NULL : &r->devices[i];
}

kin_membership_state kin_membership_state_now(const kin_membership *r) {
    if (r->in_force) return r->is_up ? KIN_MEMBERSHIP_SERVING : KIN_MEMBERSHIP_PREPARING;
    return r->is_short && !r->asking ? KIN_MEMBERSHIP_SHORT : KIN_MEMBERSHIP_GATHERING;
}

uint32_t kin_membership_epoch(const kin_membership *r) {
    return r->epoch;
}

bool kin_membership_yields(const kin_membership *r) {
    return r->yields && r->n_requests > 0;
}

uint32_t kin_membership_planned_by(const kin_membership *r) {
    return r->planned_by;
}

uint32_t kin_membership_prepares(const kin_membership *r) {
    return r->next.question;
}

int kin_membership_n_requests(const kin_membership *r) {
    return r->n_requests;
}

bool kin_membership_accepts(const kin_membership *r, uint32_t epoch) {
    return r->in_force && epoch == r->epoch;
}

// ---- sentences

// Returns the first member of the last plan in this state, or -1.
static int member_in(const kin_membership *r, kin_device_state state) {
    for (int i = 0; i < r->n_members; i++) {
        if (r->devices[r->members[i]].state == state) return r->members[i];
    }
    return -1;
}

static void format_gathering(const kin_membership *r, char *buf, size_t n) {
    int lost = member_in(r, KIN_DEVICE_LOST), failed = member_in(r, KIN_DEVICE_FAILED);
    if (r->asking) {
        snprintf(buf, n, "making a plan");
    } else if (lost >= 0) {
        const kin_membership_device *d = &r->devices[lost];
        kin_sentence_print(buf, n, "device '%s' is gone (%s), waiting for it to come back", d->name, d->last_error);
    } else if (failed >= 0) {
        kin_sentence_print(buf, n, "device '%s' failed: %s", r->devices[failed].name, r->devices[failed].last_error);
    } else if (r->last_break[0]) {
        kin_sentence_print(buf, n, "%s; waiting for another plan", r->last_break);
    } else {
        snprintf(buf, n, "waiting for devices to join");
    }
}

static void format_short(const kin_membership *r, char *buf, size_t n) {
    int lost = member_in(r, KIN_DEVICE_LOST), failed = member_in(r, KIN_DEVICE_FAILED), left = member_in(r, KIN_DEVICE_LEFT);
    int missing = lost >= 0 ? lost : failed >= 0 ? failed : left;
    if (missing < 0 && r->last_break[0]) {
        kin_sentence_print(buf, n, "%s, and there is no other plan: %s", r->last_break, r->short_reason);
        return;
    }
    if (missing < 0) {
        kin_sentence_print(buf, n, "waiting for devices to join: %s", r->short_reason);
        return;
    }
    const kin_membership_device *d = &r->devices[missing];
    const char *how = d->state == KIN_DEVICE_LOST ? "is gone" : d->state == KIN_DEVICE_FAILED ? "failed" : "has left";
    kin_sentence_print(buf, n, "device '%s' %s (%s), and without it: %s", d->name, how, d->last_error, r->short_reason);
}

static const char *const stages[] = {"hashing", "fetching", "packing", "loading"}; // kin_proto_stage

// A device's own numbers are not trusted.
static int percent(const kin_proto_progress *p) {
    if (p->total == 0) return 0;
    return p->done < p->total ? (int)((double)p->done / (double)p->total * 100) : 100;
}

static void format_preparing(const kin_membership *r, char *buf, size_t n) {
    int i = member_in(r, KIN_DEVICE_PREPARING);
    if (i >= 0) {
        const kin_membership_device *d = &r->devices[i];
        if (d->progress.total)
            snprintf(buf, n, "device '%s' is %s: %d %%", d->name, stages[d->progress.stage], percent(&d->progress));
        else
            snprintf(buf, n, "device '%s' is getting ready", d->name);
        return;
    }
    if (r->n_members == 0) { // the head is ready; others may still join
        snprintf(buf, n, "waiting for devices to join");
        return;
    }
    for (i = 0; i < r->n_members; i++) {
        if (!r->devices[r->members[i]].ring_open) break;
    }
    if (i == r->n_members) i--; // all are open: only the head's link to the first is missing
    const kin_membership_device *from = &r->devices[r->members[i]];
    const char *error = r->own_ring_open ? from->ring_error : r->own_ring_error, *colon = error[0] ? ": " : "";
    if (!r->own_ring_open)
        snprintf(buf, n, "connecting to device '%s'%s%s", r->devices[r->members[0]].name, colon, error);
    else if (i + 1 >= r->n_members)
        snprintf(buf, n, "device '%s' is connecting to the head%s%s", from->name, colon, error);
    else
        snprintf(buf, n, "device '%s' is connecting to device '%s'%s%s", from->name, r->devices[r->members[i + 1]].name, colon,
                 error);
}

// Adds what a better plan is waiting for.
static void format_next(const kin_membership *r, char *buf, size_t n) {
    int m = 0;
    if (!r->next.question) return;
    while (m < r->next.n_members && r->next.has[m]) m++;
    const kin_membership_device *d = m < r->next.n_members ? &r->devices[r->next.members[m]] : NULL;
    if (d && d->prefetch.total > 0)
        snprintf(buf, n, "; '%s' is %s for a better plan: %d %%", d->name, stages[d->prefetch.stage], percent(&d->prefetch));
    else if (d)
        snprintf(buf, n, "; '%s' is getting ready for a better plan", d->name);
    else
        snprintf(buf, n, "; a better plan is about to start");
}

// Adds the devices that are available for another plan, unless one is being made.
static void format_without_layers(const kin_membership *r, char *buf, size_t n) {
    int n_without = kin_membership_n_available(r) - r->n_members, i = 0;
    if (n_without <= 0 || r->next.question || r->change != r->change_answered) return;
    while (!kin_membership_is_available(r, i) || kin_membership_is_member(r, i)) i++;
    if (n_without == 1)
        snprintf(buf, n, "; '%s' has no layers", r->devices[i].name);
    else
        snprintf(buf, n, "; %d others have no layers", n_without);
}

static int format_standalone(const kin_membership *r, char *buf, size_t n) {
    int i = 0, n_there = kin_membership_n_available(r);
    while (i < KIN_MEMBERSHIP_DEVICES && !kin_membership_is_available(r, i)) i++;
    if (n_there == 0) return snprintf(buf, n, "serving alone");
    if (n_there > 1) return snprintf(buf, n, "serving alone: the plan leaves out all %d devices", n_there);
    return snprintf(buf, n, "serving alone: the plan leaves out '%s'", r->devices[i].name);
}

static void format_serving(const kin_membership *r, char *buf, size_t n) {
    int used = r->n_members == 0 ? format_standalone(r, buf, n)
                                 : snprintf(buf, n, "serving on %d device%s", r->n_members, r->n_members == 1 ? "" : "s");
    if (used <= 0 || (size_t)used >= n) return;
    format_next(r, buf + used, n - (size_t)used);
    if (r->n_members > 0) format_without_layers(r, buf + used, n - (size_t)used);
}

const char *kin_membership_doing(const kin_membership *r, char *buf, size_t n) {
    switch (kin_membership_state_now(r)) {
    case KIN_MEMBERSHIP_GATHERING: format_gathering(r, buf, n); break;
    case KIN_MEMBERSHIP_SHORT: format_short(r, buf, n); break;
    case KIN_MEMBERSHIP_PREPARING: format_preparing(r, buf, n); break;
    case KIN_MEMBERSHIP_SERVING: format_serving(r, buf, n); break;
    }
    return buf;
}

bool kin_membership_was_reached(const char *reason) {
    static const char *const slow[] = {"too slow", "no handshake within", "does not answer OPEN", "no answer for"};
    for (const char *at = reason; *at; at++) {
        for (size_t i = 0; i < sizeof slow / sizeof *slow; i++)
            if (strncmp(at, slow[i], strlen(slow[i])) == 0) return true;
    }
    return false;
}

const char *kin_membership_apart(char *buf, size_t n, const char *a, unsigned port_a, const char *b, unsigned port_b,
                                 const char *reason) {
    if (kin_membership_was_reached(reason)) // the link works: another port would not help
        snprintf(buf, n,
                 "devices '%s' and '%s' reach each other too slowly (%s); their traffic is relayed through this machine. Use a "
                 "cable, or move them closer to the access point",
                 a, b, reason);
    else
        snprintf(buf, n,
                 "devices '%s' and '%s' do not reach each other (%s); their traffic is relayed through this machine, which is "
                 "slower. To fix it, open TCP port %u on '%s' or %u on '%s' (kin join --port N sets a fixed port)",
                 a, b, reason[0] ? reason : "no answer", port_a, a, port_b, b);
    return buf;
}
