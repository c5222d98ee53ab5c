#include "pure/plan/ring_order.h"

#include <math.h>

#include "pure/plan/timeline.h"

static bool computes_in(const kin_plan *plan, int device) {
    for (int s = 1; s < plan->n_stops; s++) {
        if (plan->stops[s].device == device && !plan->stops[s].relay) return true;
    }
    return false;
}

static bool has_relays(const kin_plan *plan) {
    for (int s = 1; s < plan->n_stops; s++) {
        if (plan->stops[s].relay) return true;
    }
    return false;
}

// Returns the next device of `plan`, from stop *s on, that `before` does not have; 0: none.
static int next_newcomer(const kin_plan *before, const kin_plan *plan, int *s) {
    while (*s < plan->n_stops && computes_in(before, plan->stops[*s].device)) ++*s;
    return *s < plan->n_stops ? plan->stops[(*s)++].device : 0;
}

static kin_plan reorder(const kin_plan *before, const kin_plan *plan) {
    kin_plan kept = *plan;
    int n = 1, at = 1, device;
    for (int s = 1; s < before->n_stops; s++) {
        if (before->stops[s].relay) continue;
        device = before->stops[s].device;
        if (!computes_in(plan, device)) device = next_newcomer(before, plan, &at);
        if (device > 0) kept.stops[n++].device = device;
    }
    while ((device = next_newcomer(before, plan, &at)) > 0) kept.stops[n++].device = device;
    kin_assert(n == plan->n_stops);
    return kept;
}

void kin_plan_keep_order(const kin_facts *facts, const kin_plan *before, kin_plan *plan) {
    kin_prediction now, then;
    kin_err err;
    if (has_relays(plan)) return;
    kin_plan kept = reorder(before, plan);
    if (kin_plan_check(&kept, facts, &err) != 0 || kin_timeline_predict(facts, &kept, &now, &err) != 0 ||
        kin_timeline_predict(facts, plan, &then, &err) != 0)
        return;
    if (isfinite(now.tpot_s) && !kin_plan_is_worth_changing(now.tpot_s, then.tpot_s)) *plan = kept;
}
