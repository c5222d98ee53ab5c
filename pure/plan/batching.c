#include "pure/plan/batching.h"

static const double WORTH = 1.02; // a smaller gain is none

static double busiest_s(const kin_facts *facts, const kin_prediction *p) {
    double most = 0;
    for (int i = 0; i < facts->n_device; i++) {
        const kin_device_prediction *d = &p->devices[i];
        double busy = d->compute_s + d->windows_s + d->experts_s + d->exposed_s;
        if (d->stall_s > busy) busy = d->stall_s;
        if (busy > most) most = busy;
    }
    return most;
}

// Whether a device reads weights, in several rounds: passes that share it come to its windows in turns, each to the same ones,
// and what was read ahead for the one is not what the next one needs.
static bool passes_disturb_reading(const kin_facts *facts, const kin_plan *plan, const kin_prediction *p) {
    for (int i = 0; i < facts->n_device && plan->n_rounds > 1; i++) {
        if (p->devices[i].streamed_bytes > 0) return true;
    }
    return false;
}

int kin_batching_choose(const kin_facts *facts, const kin_plan *plan, int n_texts, int n_cached, int most, kin_batching *out,
                        kin_err *err) {
    kin_assert(n_texts >= 1 && n_texts <= KIN_BATCHING_MAX_TEXTS && n_cached >= 0 && most >= 1);
    *out = (kin_batching){0};
    for (int m = 1, before = 0; m <= most && m <= n_texts; m++) {
        kin_prediction p;
        int n_each = (n_texts + m - 1) / m;
        if (n_each == before) continue; // more micro-batches of as many texts
        before = n_each;
        if (kin_latency_texts(facts, plan, n_each, n_cached, &p, err) != 0) return KIN_FAIL;
        if (m > 1 && passes_disturb_reading(facts, plan, &p)) return 0;
        double alone_s = p.tpot_s, shared_s = m * busiest_s(facts, &p), period_s = alone_s > shared_s ? alone_s : shared_s;
        if (n_texts / period_s > out->rate * WORTH) *out = (kin_batching){m, period_s, n_texts / period_s};
    }
    return 0;
}
