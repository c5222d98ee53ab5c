// The default scheduler: `exact`, and where its plan streams, a playoff. The closed form that `exact` solves is some percent off
// there, and a search finds the plans for which it is too kind. So there are other candidates, exact for disks that are a little
// slower and for none at all, and the timeline (timeline.h), which plays what the engine does, decides.
#include <stdlib.h>

#include "pure/plan/latency.h"
#include "pure/plan/scheduler.h"
#include "pure/plan/timeline.h"

static const double disk_shares[] = {0.9, 0.7, 0};

static bool streams(const kin_prediction *p, int n_device) {
    for (int i = 0; i < n_device; i++) {
        if (p->devices[i].streamed_bytes > 0) return true;
    }
    return false;
}

static void try_with_disks(const kin_facts *facts, const kin_plan_options *options, double share, kin_facts *slower,
                           kin_plan *plan, double *played_s) {
    kin_plan other;
    kin_prediction p;
    double s;
    *slower = *facts;
    for (int i = 0; i < facts->n_device; i++) slower->devices[i].disk_bytes_s *= share;
    if (kin_plan_exact(slower, options, &other, NULL) != 0 || kin_timeline_play(facts, &other, &s, NULL) != 0) return;
    if (s >= *played_s || kin_latency_pass(facts, &other, 1, facts->work.n_cached, true, &p, NULL) != 0) return;
    other.tpot_s = p.tpot_s;
    other.bound_s = plan->bound_s;
    *plan = other;
    *played_s = s;
}

int kin_plan_played(const kin_facts *facts, const kin_plan_options *options, kin_plan *plan, kin_err *err) {
    kin_prediction p;
    double played_s;
    if (kin_plan_exact(facts, options, plan, err) != 0) return KIN_FAIL;
    if (kin_latency_pass(facts, plan, 1, facts->work.n_cached, true, &p, err) != 0) return KIN_FAIL;
    if (!streams(&p, facts->n_device)) return 0; // the closed form is right
    if (kin_timeline_play(facts, plan, &played_s, err) != 0) return KIN_FAIL;
    kin_facts *slower = malloc(sizeof *slower);
    if (!slower) return kin_err_set(err, "plan: out of memory");
    for (size_t i = 0; i < sizeof disk_shares / sizeof *disk_shares; i++)
        try_with_disks(facts, options, disk_shares[i], slower, plan, &played_s);
    free(slower);
    return 0;
}
