#include "pure/plan/draft_gain.h"

#include <math.h>

#include "pure/plan/timeline.h"

static const double WORTH = 1.05;
static const double PLENTY = 1e15; // bytes: the question is how much memory it takes

// Returns the bytes of weights that a token reads.
static double read_bytes(const kin_model_facts *m) {
    double layer_bytes = kin_facts_bytes_sum(m->layer_bytes) + m->expert_share * kin_facts_bytes_sum(m->expert_bytes);
    return m->n_layer * layer_bytes + kin_facts_bytes_sum(m->output_bytes);
}

// Predicts the draft model's passes on the head's CPU, and its memory.
static int predict_draft(kin_draft_gain *g, const kin_facts *facts, const kin_model_facts *draft, kin_err *err) {
    kin_facts alone = {.n_device = 1, .devices = {facts->devices[0]}, .model = *draft, .work = facts->work};
    const int n_cached = facts->work.n_cached;
    kin_plan plan = {.n_rounds = 1, .n_stops = 1, .shares = {{draft->n_layer, 0, 0}}};
    kin_prediction further, first, two;
    alone.devices[0].memory_bytes = PLENTY; // so nothing streams and the closed form is enough
    int rc = kin_latency_pass(&alone, &plan, 1, n_cached, 1, &first, err);
    if (rc == 0) rc = kin_latency_pass(&alone, &plan, 2, n_cached, 1, &two, err);
    alone.work.reread_bytes = read_bytes(draft);
    if (rc == 0) rc = kin_latency_pass(&alone, &plan, 1, n_cached, 1, &further, err);
    if (rc != 0) return kin_err_prefix(err, "the draft model");
    g->pass_s = further.tpot_s;
    g->first_s = first.tpot_s;
    g->second_token_s = two.tpot_s - first.tpot_s;
    g->memory_bytes = further.devices[0].memory_bytes;
    return 0;
}

int kin_draft_gain_make(kin_draft_gain *g, const kin_facts *facts, const kin_plan_options *options,
                        const kin_plan_scheduler *scheduler, const kin_model_facts *draft, kin_err *err) {
    kin_facts beside = *facts;
    kin_plan plan;
    kin_prediction p;
    *g = (kin_draft_gain){0};
    if (predict_draft(g, facts, draft, err) != 0) return KIN_FAIL;
    if (scheduler->plan(facts, options, &plan, err) != 0 || kin_timeline_predict(facts, &plan, &p, err) != 0) return KIN_FAIL;
    g->plain_s = p.tpot_s;
    beside.devices[0].memory_bytes = fmax(0, facts->devices[0].memory_bytes - g->memory_bytes);
    if (scheduler->plan(&beside, options, &plan, err) != 0 || kin_timeline_predict(&beside, &plan, &p, err) != 0)
        return kin_err_prefix(err, "beside the draft model");
    double played_s = p.tpot_s, closed_s = 0;
    for (int n = 1; n <= KIN_DRAFT_MAX + 1; n++) {
        if (kin_latency_pass(&beside, &plan, n, facts->work.n_cached, n, &p, err) != 0) return KIN_FAIL;
        if (n == 1) closed_s = p.tpot_s;
        g->rows_s[n] = p.tpot_s + played_s - closed_s; // one row is simulated, the differences are of the closed form
    }
    return 0;
}

double kin_draft_gain_tpot(const kin_draft_gain *g, double acceptance, int n_drafted) {
    double expected = 1, chance = 1;
    for (int i = 0; i < n_drafted; i++) expected += chance *= acceptance;
    double drafting_s = n_drafted > 0 ? g->first_s + (n_drafted - 1) * g->pass_s + chance * g->second_token_s : 0;
    return (g->rows_s[n_drafted + 1] + drafting_s) / expected;
}

int kin_draft_gain_best(const kin_draft_gain *g, double acceptance) {
    int best = 0;
    for (int k = 1; k <= KIN_DRAFT_MAX; k++) {
        if (kin_draft_gain_tpot(g, acceptance, k) < kin_draft_gain_tpot(g, acceptance, best)) best = k;
    }
    return best;
}

double kin_draft_gain_worth_from(const kin_draft_gain *g) {
    for (int percent = 0; percent <= 100; percent++) {
        double acceptance = percent / 100.0;
        if (kin_draft_gain_tpot(g, acceptance, kin_draft_gain_best(g, acceptance)) * WORTH <= g->plain_s) return acceptance;
    }
    return 2;
}
