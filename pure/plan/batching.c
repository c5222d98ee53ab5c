#include "pure/plan/batching.h"

#include "pure/plan/timeline.h"

static const double WORTH = 1.02; // a smaller gain counts as none

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

static bool any_reads(const kin_facts *facts, const kin_prediction *p) {
    for (int i = 0; i < facts->n_device; i++) {
        if (p->devices[i].streamed_bytes > 0) return true;
    }
    return false;
}

int kin_batching_choose(const kin_facts *facts, const kin_plan *plan, int n_sequences, int n_cached, int most, kin_batching *out,
                        kin_err *err) {
    kin_assert(n_sequences >= 1 && n_sequences <= KIN_BATCHING_MAX_SEQUENCES && n_cached >= 0 && most >= 1);
    *out = (kin_batching){0};
    for (int m = 1, before = 0; m <= most && m <= n_sequences; m++) {
        kin_prediction p;
        int n_each = (n_sequences + m - 1) / m;
        if (n_each == before) continue; // more micro-batches, but the largest has as many sequences
        before = n_each;
        if (kin_latency_sequences(facts, plan, n_each, n_cached, &p, err) != 0) return KIN_FAIL;
        bool reads = any_reads(facts, &p);
        if (m > 1 && reads && plan->n_rounds > 1) return 0; // passes would disturb each other's reading
        double alone_s = p.tpot_s;
        if (reads && kin_timeline_play_sequences(facts, plan, n_each, n_cached, &alone_s, err) != 0) return KIN_FAIL;
        double shared_s = m > 1 ? m * busiest_s(facts, &p) : 0, period_s = alone_s > shared_s ? alone_s : shared_s;
        if (n_sequences / period_s > out->rate * WORTH) *out = (kin_batching){m, period_s, n_sequences / period_s};
    }
    return 0;
}
