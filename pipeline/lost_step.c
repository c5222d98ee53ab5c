#include "pipeline/lost_step.h"

#include "base/err.h"

enum {
    GAP_MS = 1000,        // longest gap between two calls that counts as silence
    HEARTBEAT_BYTES = 512 // pings and pongs on a link with a long round trip
};

static kin_time ns(uint64_t ms) {
    return ms * UINT64_C(1000000);
}

static void begin_quiet(kin_lost_step *l, kin_time now) {
    l->quiet_since = now;
    l->asked_at = 0;
    l->n_before = 0;
    l->is_late = false;
}

bool kin_lost_step_is_due(kin_lost_step *l, kin_time now, uint32_t epoch, const kin_step_place *own) {
    if (epoch != l->epoch) *l = (kin_lost_step){.epoch = epoch};
    bool is_out = epoch && own->n_left > own->n_came, has_come = own->n_came != l->n_came;
    bool was_away = l->checked_at && now - l->checked_at > ns(GAP_MS);
    l->n_signs += has_come;
    l->n_left = own->n_left;
    l->n_came = own->n_came;
    l->checked_at = now;
    l->watchdog.least_ns = ns(KIN_LOST_STEP_MOST_MS);
    bool is_late = kin_watchdog_check(&l->watchdog, now, is_out, l->n_signs);
    if (!is_out || has_come || was_away || !l->quiet_since) begin_quiet(l, now);
    l->is_late = l->is_late || is_late;
    if (!is_out || now - l->quiet_since < ns(KIN_LOST_STEP_ASK_MS)) return false;
    if (l->asked_at && now - l->asked_at < ns(KIN_LOST_STEP_AGAIN_MS)) return false;
    l->asked_at = now;
    return true;
}

static uint64_t moving_of(const kin_step_place *p) {
    return p->moving > HEARTBEAT_BYTES ? p->moving : 0;
}

static bool is_same(const kin_step_place *a, const kin_step_place *b) {
    return a->is_known == b->is_known && a->idles == b->idles && a->n_came == b->n_came && a->n_left == b->n_left &&
           a->n_signs == b->n_signs && moving_of(a) == moving_of(b) && !a->fetches && !b->fetches;
}

// Stores the answers. Returns whether all equal the last ones; a change is a sign of life.
static bool keep(kin_lost_step *l, kin_time now, const kin_step_place *places, int n, const kin_step_place *own) {
    bool is_first = l->n_before != n + 1, all_same = !is_first;
    for (int i = 0; i <= n; i++) {
        const kin_step_place *p = i < n ? &places[i] : own;
        bool same = !is_first && is_same(&l->before[i], p);
        if (!same) l->same_since[i] = now;
        all_same = all_same && same;
        l->before[i] = *p;
    }
    l->n_before = n + 1;
    l->n_signs += !is_first && !all_same;
    l->is_late = l->is_late && all_same;
    return all_same;
}

// Returns the number of frames sent to the i-th member; n: to the head.
static uint32_t sent_to(const kin_lost_step *l, int i) {
    return i > 0 ? l->before[i - 1].n_left : l->n_left;
}

static kin_lost_step_found find_idle(const kin_lost_step *l, int n, kin_time now) {
    for (int i = 0; i < n; i++) {
        const kin_step_place *p = &l->before[i];
        bool is_lost = p->is_known && p->idles && p->n_left < p->n_came;
        if (is_lost && now - l->same_since[i] >= ns(KIN_LOST_STEP_MS))
            return (kin_lost_step_found){.kind = KIN_LOST_STEP_IN, .member = i};
    }
    return (kin_lost_step_found){.kind = KIN_LOST_STEP_NONE};
}

static bool is_still(const kin_lost_step *l, int i, int n, kin_time now) {
    bool is_known = i == n || l->before[i].is_known;
    return is_known && moving_of(&l->before[i]) == 0 && now - l->same_since[i] >= ns(KIN_LOST_STEP_HOP_MS);
}

static kin_lost_step_found find_hop(const kin_lost_step *l, int n, kin_time now) {
    kin_lost_step_found found = {.kind = KIN_LOST_STEP_NONE};
    for (int i = n; i >= 0; i--) {
        if (!is_still(l, i, n, now)) return (kin_lost_step_found){.kind = KIN_LOST_STEP_NONE};
        if (sent_to(l, i) > l->before[i].n_came) found = (kin_lost_step_found){.kind = KIN_LOST_STEP_TO, .member = i};
    }
    return found;
}

static kin_lost_step_found find_late(const kin_lost_step *l, int n) {
    int i = 0;
    while (i < n - 1 && l->before[i].is_known && l->before[i].n_left >= sent_to(l, i)) i++;
    return (kin_lost_step_found){.kind = KIN_LOST_STEP_STAYS, .member = i};
}

kin_lost_step_found kin_lost_step_compare(kin_lost_step *l, kin_time now, const kin_step_place *places, int n,
                                          const kin_step_place *own) {
    kin_assert(n > 0 && n <= KIN_LOST_STEP_MEMBERS);
    kin_lost_step_found found = {.kind = KIN_LOST_STEP_NONE};
    if (!l->asked_at || own->n_came != l->n_came) return found; // something has come since they were asked
    bool same = keep(l, now, places, n, own);
    found = find_idle(l, n, now);
    if (found.kind == KIN_LOST_STEP_NONE) found = find_hop(l, n, now);
    if (found.kind == KIN_LOST_STEP_NONE && same && l->is_late) found = find_late(l, n);
    found.seconds = (int)((now - l->quiet_since) / ns(1000));
    return found;
}
