#include "pure/plan/plan.h"

#include <string.h>

static const double CHANGE_BELOW = 0.95; // thesis 5.2.4, tau

kin_layer_share kin_plan_share_of_round(const kin_plan *plan, int device, int round) {
    const kin_layer_share *all = &plan->shares[device], *window = &plan->windows[device];
    if (window->n_layer == 0)
        return (kin_layer_share){kin_plan_of_round(all->n_layer, plan->n_rounds, round),
                                 kin_plan_of_round(all->n_layer_gpu, plan->n_rounds, round),
                                 kin_plan_of_round(all->n_cpu_moe, plan->n_rounds, round)};
    int n_full = plan->n_rounds - 1;
    if (round < n_full) return *window;
    return (kin_layer_share){all->n_layer - n_full * window->n_layer, all->n_layer_gpu - n_full * window->n_layer_gpu,
                             all->n_cpu_moe - n_full * window->n_cpu_moe};
}

kin_window kin_plan_window_at(int layer_begin, const kin_layer_share *share) {
    return (kin_window){layer_begin, layer_begin + share->n_layer, share->n_layer_gpu, share->n_cpu_moe};
}

void kin_plan_windows(const kin_plan *plan, int device, kin_windows *out) {
    int at = 0;
    out->n = 0;
    for (int round = 0; round < plan->n_rounds; round++) {
        for (int i = 0; i < plan->n_stops; i++) {
            int s = kin_plan_turn(plan, i);
            if (plan->stops[s].relay) continue;
            kin_layer_share share = kin_plan_share_of_round(plan, plan->stops[s].device, round);
            if (plan->stops[s].device == device && share.n_layer > 0) out->at[out->n++] = kin_plan_window_at(at, &share);
            at += share.n_layer;
        }
    }
}

// ---- rounds by windows

// Returns the layers of a full round, or KIN_FAIL if a window is impossible.
static int sum_windows(const kin_plan *plan, int n_layer, kin_err *err) {
    int sum = 0;
    for (int s = 0; s < plan->n_stops; s++) {
        const kin_layer_share *window = &plan->windows[plan->stops[s].device];
        if (window->n_layer < 0 || window->n_layer > n_layer)
            return kin_err_set(err, "a window of %d layers, but the model has %d", window->n_layer, n_layer);
        if (window->n_layer_gpu < 0 || window->n_layer_gpu > window->n_layer)
            return kin_err_set(err, "%d GPU layers in a window of %d", window->n_layer_gpu, window->n_layer);
        if (window->n_cpu_moe < 0 || window->n_cpu_moe > window->n_layer_gpu)
            return kin_err_set(err, "the experts of %d layers on the CPU, but only %d layers of the window are on the GPU",
                               window->n_cpu_moe, window->n_layer_gpu);
        sum += window->n_layer;
    }
    return sum;
}

// Divides the n_left layers of the last round; `sum` is the layers of a full round. counts // [n_stops]
static void share_rest(const kin_plan *plan, int sum, int n_left, int *counts) {
    int rests[KIN_PLAN_MAX_STOPS], given = 0; // remainders of the exact shares, times sum
    for (int s = 0; s < plan->n_stops; s++) {
        int exact = plan->windows[plan->stops[s].device].n_layer * n_left;
        counts[s] = exact / sum;
        rests[s] = exact % sum;
        given += counts[s];
    }
    for (; given < n_left; given++) {
        int best = kin_plan_turn(plan, 0);
        for (int i = 1; i < plan->n_stops; i++) {
            if (rests[kin_plan_turn(plan, i)] > rests[best]) best = kin_plan_turn(plan, i);
        }
        counts[best]++;
        rests[best] -= sum;
    }
}

int kin_plan_fill_rounds(kin_plan *plan, int n_layer, kin_err *err) {
    int sum = sum_windows(plan, n_layer, err), counts[KIN_PLAN_MAX_STOPS];
    if (sum < 0) return KIN_FAIL;
    if (sum == 0) return kin_err_set(err, "no device has any layers");
    int n_full = (n_layer - 1) / sum;
    plan->n_rounds = n_full + 1;
    if (plan->n_rounds > KIN_MAX_WINDOWS)
        return kin_err_set(err, "%d rounds per token: at most %d are possible", plan->n_rounds, KIN_MAX_WINDOWS);
    share_rest(plan, sum, n_layer - n_full * sum, counts);
    for (int s = 0; s < plan->n_stops; s++) {
        const kin_layer_share *window = &plan->windows[plan->stops[s].device];
        int gpu = window->n_layer_gpu < counts[s] ? window->n_layer_gpu : counts[s];
        plan->shares[plan->stops[s].device] =
            (kin_layer_share){n_full * window->n_layer + counts[s], n_full * window->n_layer_gpu + gpu,
                              n_full * window->n_cpu_moe + (window->n_cpu_moe < gpu ? window->n_cpu_moe : gpu)};
        plan->stops[s].relay = s > 0 && window->n_layer == 0;
    }
    return 0;
}

// ---- devices

const kin_group *kin_plan_group_of(const kin_plan *plan, int device) {
    for (int i = 0; i < plan->groups.n; i++) {
        if (kin_group_last(&plan->groups.groups[i]) == device) return &plan->groups.groups[i];
    }
    return NULL;
}

bool kin_plan_has(const kin_plan *plan, int device) {
    for (int s = 0; s < plan->n_stops; s++) {
        if (plan->stops[s].device == device) return true;
    }
    for (int i = 0; i < plan->groups.n; i++) {
        if (kin_group_members(&plan->groups.groups[i]) & kin_device_bit(device)) return true;
    }
    return false;
}

bool kin_plan_renumber(const kin_plan *plan, const int *to, int n, kin_plan *out) {
    static const kin_plan none;
    *out = none;
    out->n_rounds = plan->n_rounds;
    out->n_stops = plan->n_stops;
    out->groups = plan->groups;
    out->tpot_s = plan->tpot_s;
    out->bound_s = plan->bound_s;
    for (int i = 0; i < n; i++) {
        if (to[i] < 0 && kin_plan_has(plan, i)) return false;
        if (to[i] < 0) continue;
        out->shares[to[i]] = plan->shares[i];
        out->windows[to[i]] = plan->windows[i];
        out->memory[to[i]] = plan->memory[i];
    }
    for (int s = 0; s < plan->n_stops; s++) {
        out->stops[s].device = to[plan->stops[s].device];
        out->stops[s].relay = plan->stops[s].relay;
    }
    for (int i = 0; i < plan->groups.n; i++) {
        kin_group *g = &out->groups.groups[i];
        for (int rank = 0; rank < g->n; rank++) g->devices[rank] = to[g->devices[rank]];
    }
    return true;
}

bool kin_plan_is_same(const kin_plan *a, const kin_plan *b) {
    if (a->n_rounds != b->n_rounds || a->n_stops != b->n_stops || a->groups.n != b->groups.n) return false;
    if (memcmp(a->shares, b->shares, sizeof a->shares) != 0 || memcmp(a->windows, b->windows, sizeof a->windows) != 0 ||
        memcmp(a->memory, b->memory, sizeof a->memory) != 0)
        return false;
    for (int s = 0; s < a->n_stops; s++) {
        if (a->stops[s].device != b->stops[s].device || a->stops[s].relay != b->stops[s].relay) return false;
    }
    for (int i = 0; i < a->groups.n; i++) {
        const kin_group *g = &a->groups.groups[i], *h = &b->groups.groups[i];
        if (g->n != h->n) return false;
        for (int rank = 0; rank < g->n; rank++) {
            if (g->devices[rank] != h->devices[rank] || g->weights[rank] != h->weights[rank]) return false;
        }
    }
    return true;
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
        if (share->n_cpu_moe < 0 || share->n_cpu_moe > share->n_layer_gpu)
            return kin_err_set(err, "plan: %s: %d layers on the GPU, the experts of %d of them on the CPU", name,
                               share->n_layer_gpu, share->n_cpu_moe);
        if (share->n_cpu_moe > 0 && kin_facts_bytes_sum(facts->model.expert_bytes) == 0)
            return kin_err_set(err, "plan: %s: experts of %d layers on the CPU, but the model has none", name, share->n_cpu_moe);
        if (share->n_layer > 0 && share->n_layer < plan->n_rounds)
            return kin_err_set(err, "plan: %s: %d layers for %d rounds", name, share->n_layer, plan->n_rounds);
        if (share->n_layer_gpu > 0 && !kin_facts_gpu_usable(&facts->devices[i], &facts->model))
            return kin_err_set(err, "plan: %s has no GPU%s", name,
                               facts->devices[i].has_gpu ? " that can multiply these weights" : "");
        sum += share->n_layer;
    }
    if (sum != facts->model.n_layer)
        return kin_err_set(err, "plan: %d layers assigned, but the model has %d", sum, facts->model.n_layer);
    return 0;
}

int kin_plan_check(const kin_plan *plan, const kin_facts *facts, kin_err *err) {
    kin_device_set seen = 0;
    if (plan->n_rounds < 1 || plan->n_rounds > KIN_MAX_WINDOWS || plan->n_stops < 1 || plan->n_stops > KIN_PLAN_MAX_STOPS ||
        plan->stops[0].device != 0)
        return kin_err_set(err, "plan: invalid ring of %d rounds and %d stops, the first at device %d", plan->n_rounds,
                           plan->n_stops, plan->stops[0].device);
    if (check_shares(plan, facts, err) != 0) return KIN_FAIL;
    for (int s = 0; s < plan->n_stops; s++) {
        int from = plan->stops[s].device, to = plan->stops[(s + 1) % plan->n_stops].device;
        if (from < 0 || from >= facts->n_device) return kin_err_set(err, "plan: device %d does not exist", from);
        if (plan->n_stops > 1 && !kin_facts_link_usable(&facts->links[from][to]))
            return kin_err_set(err, "plan: there is no link from %s to %s", facts->devices[from].name, facts->devices[to].name);
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
