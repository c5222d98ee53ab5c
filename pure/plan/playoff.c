// The default scheduler: `exact`, followed by a playoff if its plan streams. In that case the closed form that `exact` solves is
// some percent off, and a search tends to find plans for which it is too optimistic. So there are further candidates, exact for
// fewer and more rounds, for slower disks, and without streaming; the timeline (timeline.h), which simulates the engine, decides.
#include <stdlib.h>

#include "pure/plan/latency.h"
#include "pure/plan/scheduler.h"
#include "pure/plan/timeline.h"

static const double disk_shares[] = {0.9, 0.7, 0};
static const double WORTH_GAIN = 0.001; // less is not reason enough to try even more rounds

enum {
    MAX_NODES = 50, // limit of a candidate's search; there may be as many candidates as layers
    PATIENCE = 8,   // candidates with more rounds that are tried after the last one that was better
};

typedef struct playoff {
    const kin_facts *facts;
    kin_plan *best;
    double best_s; // simulated
} playoff;

static bool streams(const kin_prediction *p, int n_device) {
    for (int i = 0; i < n_device; i++) {
        if (p->devices[i].streamed_bytes > 0) return true;
    }
    return false;
}

// assumed: the facts for which the candidate is exact.
static void enter_candidates(playoff *o, const kin_facts *assumed, const kin_plan_options *options) {
    kin_plan_options hasty = *options;
    kin_plan plan;
    kin_prediction p;
    double s;
    if (hasty.max_nodes > MAX_NODES) hasty.max_nodes = MAX_NODES;
    if (kin_plan_exact(assumed, &hasty, &plan, NULL) != 0 || kin_timeline_play(o->facts, &plan, &s, NULL) != 0) return;
    if (s >= o->best_s || kin_latency_pass(o->facts, &plan, 1, o->facts->work.n_cached, 1, &p, NULL) != 0) return;
    plan.tpot_s = p.tpot_s;
    plan.bound_s = 0; // exact's bound does not apply to this plan
    *o->best = plan;
    o->best_s = s;
}

static void enter_fewer_rounds(playoff *o, const kin_plan_options *options) {
    kin_plan_options fixed = *options;
    if (options->n_rounds > 0) return;
    for (int most = o->best->n_rounds - 1; fixed.n_rounds < most;) {
        fixed.n_rounds++;
        enter_candidates(o, o->facts, &fixed);
    }
}

static void enter_more_rounds(playoff *o, const kin_plan_options *options, int n_rounds) {
    kin_plan_options more = *options;
    if (options->n_rounds > 0) return;
    for (int n_worse = 0; n_worse < PATIENCE && n_rounds < o->facts->model.n_layer; n_worse++) {
        double before_s = o->best_s;
        more.n_rounds = ++n_rounds;
        enter_candidates(o, o->facts, &more);
        if (o->best_s < before_s * (1 - WORTH_GAIN)) n_worse = -1;
    }
}

// A device that was rejected because of its disk must not come back with another one.
static void enter_slower_disks(playoff *o, const kin_plan_options *options, kin_facts *scratch) {
    kin_device_set usable;
    kin_plan_options same = *options;
    if (kin_plan_scheduler_devices(o->facts, options, &usable, NULL) != 0) return;
    same.leave_out |= ~usable;
    for (size_t i = 0; i < sizeof disk_shares / sizeof *disk_shares; i++) {
        *scratch = *o->facts;
        for (int d = 0; d < scratch->n_device; d++) scratch->devices[d].disk_bytes_s *= disk_shares[i];
        enter_candidates(o, scratch, &same);
    }
}

int kin_plan_playoff(const kin_facts *facts, const kin_plan_options *options, kin_plan *plan, kin_err *err) {
    playoff o = {.facts = facts, .best = plan};
    kin_prediction p;
    if (kin_plan_exact(facts, options, plan, err) != 0) return KIN_FAIL;
    if (kin_latency_pass(facts, plan, 1, facts->work.n_cached, 1, &p, err) != 0) return KIN_FAIL;
    if (!streams(&p, facts->n_device)) return 0; // the closed form is exact
    if (kin_timeline_play(facts, plan, &o.best_s, err) != 0) return KIN_FAIL;
    kin_facts *scratch = malloc(sizeof *scratch);
    if (!scratch) return kin_err_set(err, "plan: out of memory");
    const int n_rounds = plan->n_rounds;
    enter_fewer_rounds(&o, options);
    enter_more_rounds(&o, options, n_rounds);
    enter_slower_disks(&o, options, scratch);
    free(scratch);
    return 0;
}
