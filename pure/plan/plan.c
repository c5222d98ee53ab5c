#include "pure/plan/plan.h"

static const double CHANGE_BELOW = 0.95; // thesis 5.2.4, tau

kin_window kin_plan_window(const kin_plan *plan, int round, int stop) {
    kin_window window = {0};
    for (int r = 0; r <= round; r++) {
        for (int i = 0; i < plan->n_stops; i++) {
            int s = kin_plan_turn(plan, i);
            const kin_layer_share *share = &plan->shares[plan->stops[s].device];
            int n = plan->stops[s].relay ? 0 : kin_plan_of_round(share->n_layer, plan->n_rounds, r);
            window.layer_begin = window.layer_end;
            window.layer_end += n;
            window.n_gpu_layers = n ? kin_plan_of_round(share->n_layer_gpu, plan->n_rounds, r) : 0;
            if (r == round && s == stop) break;
        }
    }
    return window;
}

void kin_plan_windows(const kin_plan *plan, int device, kin_windows *out) {
    out->n = 0;
    if (plan->shares[device].n_layer == 0) return;
    for (int s = 0; s < plan->n_stops; s++) {
        if (plan->stops[s].relay || plan->stops[s].device != device) continue;
        for (int round = 0; round < plan->n_rounds; round++) out->at[out->n++] = kin_plan_window(plan, round, s);
    }
}

kin_device_set kin_plan_workers(const kin_plan *plan, int n_device) {
    kin_device_set workers = 0;
    for (int i = 0; i < n_device; i++) {
        if (plan->shares[i].n_layer > 0) workers |= kin_device_bit(i);
    }
    return workers;
}

static int check_shares(const kin_plan *plan, const kin_facts *facts, kin_err *err) {
    int sum = 0;
    for (int i = 0; i < facts->n_device; i++) {
        const kin_layer_share *share = &plan->shares[i];
        const char *name = facts->devices[i].name;
        if (share->n_layer < 0 || share->n_layer_gpu < 0 || share->n_layer_gpu > share->n_layer)
            return kin_err_set(err, "plan: %s: %d layers, %d of them on the GPU", name, share->n_layer, share->n_layer_gpu);
        if (share->n_layer > 0 && share->n_layer < plan->n_rounds)
            return kin_err_set(err, "plan: %s: %d layers for %d rounds", name, share->n_layer, plan->n_rounds);
        if (share->n_layer_gpu > 0 && !kin_facts_gpu_usable(&facts->devices[i], &facts->model))
            return kin_err_set(err, "plan: %s has no GPU%s", name,
                               facts->devices[i].has_gpu ? " that can multiply these weights" : "");
        sum += share->n_layer;
    }
    if (sum != facts->model.n_layer) return kin_err_set(err, "plan: %d layers of %d", sum, facts->model.n_layer);
    return 0;
}

int kin_plan_check(const kin_plan *plan, const kin_facts *facts, kin_err *err) {
    kin_device_set seen = 0;
    if (plan->n_rounds < 1 || plan->n_rounds > KIN_MAX_WINDOWS || plan->n_stops < 1 || plan->n_stops > KIN_PLAN_MAX_STOPS ||
        plan->stops[0].device != 0)
        return kin_err_set(err, "plan: %d rounds of %d stops, the first at device %d", plan->n_rounds, plan->n_stops,
                           plan->stops[0].device);
    if (check_shares(plan, facts, err) != 0) return KIN_FAIL;
    for (int s = 0; s < plan->n_stops; s++) {
        int from = plan->stops[s].device, to = plan->stops[(s + 1) % plan->n_stops].device;
        if (from < 0 || from >= facts->n_device) return kin_err_set(err, "plan: no device %d", from);
        if (plan->n_stops > 1 && !kin_facts_link_usable(&facts->links[from][to]))
            return kin_err_set(err, "plan: no link from %s to %s", facts->devices[from].name, facts->devices[to].name);
        if (plan->stops[s].relay) continue;
        if (seen & kin_device_bit(from)) return kin_err_set(err, "plan: %s is twice in the ring", facts->devices[from].name);
        seen |= kin_device_bit(from);
    }
    if (kin_plan_workers(plan, facts->n_device) & ~seen) return kin_err_set(err, "plan: a worker is not in the ring");
    return 0;
}

bool kin_plan_is_worth_changing(double tpot_now_s, double tpot_candidate_s) {
    return tpot_candidate_s < CHANGE_BELOW * tpot_now_s;
}
