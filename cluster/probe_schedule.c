#include "cluster/probe_schedule.h"

#include <string.h>

bool kin_probe_schedule_add(kin_probe_schedule *s, uint32_t from, uint32_t to, bool is_back) {
    if (s->n == KIN_PROBE_SCHEDULE_MAX) return false;
    s->pairs[s->n++] = (kin_probe_pair){.from = from, .to = to, .is_back = is_back};
    return true;
}

static void remove_pair(kin_probe_schedule *s, int i) {
    memmove(&s->pairs[i], &s->pairs[i + 1], (size_t)(--s->n - i) * sizeof s->pairs[0]);
}

static bool has(const kin_probe_pair *p, uint32_t device) {
    return p->from == device || p->to == device;
}

static bool is_busy(const kin_probe_schedule *s, uint32_t device) {
    for (int i = 0; i < s->n; i++) {
        if (s->pairs[i].begun && has(&s->pairs[i], device)) return true;
    }
    return false;
}

bool kin_probe_schedule_begin(kin_probe_schedule *s, kin_time now, kin_probe_pair *out) {
    for (int i = s->n - 1; i >= 0; i--) {
        kin_time begun = s->pairs[i].begun;
        if (begun && kin_clock_ms(begun, now) > KIN_PROBE_SCHEDULE_LIMIT_MS) remove_pair(s, i);
    }
    for (int i = 0; i < s->n; i++) {
        kin_probe_pair *p = &s->pairs[i];
        if (p->begun || is_busy(s, p->from) || is_busy(s, p->to)) continue;
        p->begun = now;
        *out = *p;
        return true;
    }
    return false;
}

void kin_probe_schedule_end(kin_probe_schedule *s, uint32_t from) {
    for (int i = s->n - 1; i >= 0; i--) {
        if (s->pairs[i].begun && s->pairs[i].from == from) remove_pair(s, i);
    }
}

void kin_probe_schedule_lost(kin_probe_schedule *s, uint32_t device) {
    for (int i = s->n - 1; i >= 0; i--) {
        const kin_probe_pair *p = &s->pairs[i];
        if (p->from == device || (p->begun && p->to == device)) remove_pair(s, i);
    }
}
