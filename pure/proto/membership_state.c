#include "pure/proto/membership_state.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/sentence.h"

kin_membership_action *kin_membership_act(kin_membership *r, kin_membership_action_kind kind) {
    kin_assert(r->actions.n < KIN_MEMBERSHIP_ACTIONS);
    kin_membership_action *action = &r->actions.at[r->actions.n++];
    action->kind = kind;
    action->link = 0;
    action->epoch = r->epoch;
    action->question = 0;
    action->device = 0;
    action->rate_limited = false;
    action->n_devices = 0;
    action->level = KIN_LOG_INFO;
    action->text[0] = '\0';
    return action;
}

void kin_membership_log(kin_membership *r, kin_log_level level, const char *fmt, ...) {
    kin_membership_action *action = kin_membership_act(r, KIN_MEMBERSHIP_LOG);
    action->level = level;
    va_list args;
    va_start(args, fmt);
    kin_sentence_vprint(action->text, sizeof action->text, fmt, args);
    va_end(args);
}

const char *kin_membership_whom(const kin_membership *r, int i, char buf[KIN_MEMBERSHIP_SENTENCE]) {
    const kin_membership_device *d = &r->devices[i];
    int stage = d->stage;
    for (int m = 0; m < r->n_members && r->broken[0]; m++) stage = r->members[m] == i ? m + 1 : stage; // as of a moment ago
    if (stage)
        snprintf(buf, KIN_MEMBERSHIP_SENTENCE, "device '%s' (stage %d of %d)", d->name, stage, r->n_members);
    else
        snprintf(buf, KIN_MEMBERSHIP_SENTENCE, "device '%s'", d->name);
    return buf;
}

bool kin_membership_is_available(const kin_membership *r, int i) {
    kin_device_state state = r->devices[i].state;
    return state == KIN_DEVICE_JOINED || state == KIN_DEVICE_PREPARING || state == KIN_DEVICE_READY;
}

int kin_membership_n_available(const kin_membership *r) {
    int n = 0;
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) n += kin_membership_is_available(r, i);
    return n;
}

bool kin_membership_is_member(const kin_membership *r, int i) {
    for (int m = 0; m < r->n_members; m++) {
        if (r->members[m] == i) return true;
    }
    return false;
}

void kin_membership_set_state(kin_membership *r, int i, kin_device_state state) {
    r->devices[i].state = state;
    r->devices[i].since = r->now;
    r->devices[i].progress = (kin_proto_progress){0};
}

kin_time kin_membership_later(kin_time from, uint64_t ns) {
    return ns > UINT64_MAX - from ? UINT64_MAX : from + ns;
}
