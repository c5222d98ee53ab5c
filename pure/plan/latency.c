#include "pure/plan/latency.h"

#include "pure/plan/hops.h"

#include <math.h>

// Adds up every device's layers, by number and by size.
static void find_loads(const kin_facts *facts, const kin_plan *plan, kin_load loads[KIN_FACTS_MAX_DEVICES]) {
    int il = 0;
    for (int round = 0; round < plan->n_rounds; round++) {
        for (int i = 0; i < plan->n_stops; i++) {
            int s = kin_plan_turn(plan, i);
            if (plan->stops[s].relay) continue;
            kin_layer_share share = kin_plan_share_of_round(plan, plan->stops[s].device, round);
            kin_load *load = &loads[plan->stops[s].device];
            const kin_window window = kin_plan_window_at(il, &share);
            for (; il < window.layer_end; il++) kin_load_add(load, &facts->model, &window, il);
        }
    }
}

static double add_hops(const kin_facts *facts, const kin_plan *plan, int n_tokens, kin_prediction *out) {
    double sum = 0;
    int sender = 0;
    for (int s = 0; kin_hops_are_in(facts, plan) && s < plan->n_stops; s++) {
        int from = plan->stops[s].device, to = plan->stops[(s + 1) % plan->n_stops].device;
        double hop_s = plan->n_rounds * kin_hop_s(facts, from, to, n_tokens);
        out->hops_latency_s += plan->n_rounds * kin_hop_s(facts, from, to, 0);
        if (!plan->stops[s].relay) sender = from;
        out->devices[sender].hop_s += hop_s;
        sum += hop_s;
    }
    return sum;
}

static void add_members(const kin_device_rates *rates, const kin_device_time *t, kin_device_prediction *devices) {
    for (int i = 0; i < rates->n_members; i++) {
        const kin_member_time *member = &t->members[i];
        kin_device_prediction *out = &devices[rates->members[i].device];
        out->own_load_s = member->load_s;
        out->resident_bytes = member->resident_bytes;
        out->streamed_bytes = member->streamed_bytes;
        out->memory_bytes = member->memory_bytes;
    }
}

static double add_device_times(const kin_device_rates *rates, const kin_load *load, const kin_device_time *t,
                               const kin_layer_share *share, int n_rounds, kin_device_prediction *out) {
    double started_s = share->n_layer > 0 ? n_rounds * rates->window_s : 0;
    out->compute_s = t->compute_s;
    out->sums_s = load->n_cpu * rates->layer_sums_s;
    out->experts_s = t->experts_s;
    out->windows_s = kin_device_windows_s(rates, share->n_layer, share->n_layer_gpu, n_rounds);
    out->gpu_s = out->windows_s - started_s + load->size_gpu * rates->gpu_layer_s + load->n_gpu * rates->gpu_layer_fixed_s +
                 load->size_divided * rates->divided_gpu_s;
    if (kin_device_output_on_gpu(rates, load) && rates->with_output) out->gpu_s += rates->gpu_output_s;
    out->exposed_s = kin_device_exposed_s(&t->wait, n_rounds);
    out->load_s = t->load_s;
    out->stall_s = t->stall_s;
    out->gpu_bytes = t->gpu_bytes;
    return out->compute_s + out->experts_s + out->windows_s + out->exposed_s;
}

int kin_latency_slowest_member(const kin_facts *facts, const kin_prediction *p, int device) {
    const kin_shared_facts *shared = &facts->shared[device];
    for (int i = 0; i < shared->n_members; i++) {
        int member = shared->members[i].device;
        if (p->devices[member].own_load_s > p->devices[device].own_load_s) device = member;
    }
    return device;
}

enum { OF_SEQUENCES = -1 }; // in place of n_out: each token is of another sequence

static int predict_pass(const kin_facts *facts, const kin_plan *plan, int n_tokens, int n_cached, int n_out, kin_prediction *out,
                        kin_err *err) {
    kin_load loads[KIN_FACTS_MAX_DEVICES] = {0};
    double busy_s = 0, stall_s = 0;
    *out = (kin_prediction){.slowest_disk = -1};
    if (kin_plan_check(plan, facts, err) != 0) return KIN_FAIL;
    find_loads(facts, plan, loads);
    for (int i = 0; i < facts->n_device; i++) {
        kin_device_rates rates;
        if (i > 0 && plan->shares[i].n_layer == 0) continue;
        if (n_out == OF_SEQUENCES)
            kin_device_rates_init_sequences(&rates, facts, i, n_tokens, n_cached);
        else
            kin_device_rates_init(&rates, facts, i, n_tokens, n_cached, n_out);
        kin_device_time t = kin_device_time_of(&rates, &loads[i]);
        if (!t.fits && plan->shares[i].n_layer == 0)
            return kin_err_set(err, "plan: %s, the head, cannot hold the output", facts->devices[i].name);
        if (!t.fits)
            return kin_err_set(err, "plan: %s cannot hold %d layers, %d of them on the GPU", facts->devices[i].name,
                               plan->shares[i].n_layer, plan->shares[i].n_layer_gpu);
        busy_s += add_device_times(&rates, &loads[i], &t, &plan->shares[i], plan->n_rounds, &out->devices[i]);
        add_members(&rates, &t, out->devices);
        out->compute_s += t.compute_s;
        out->sums_s += out->devices[i].sums_s;
        out->windows_s += out->devices[i].windows_s;
        out->exposed_s += out->devices[i].exposed_s + t.experts_s;
        if (t.stall_s > stall_s) stall_s = t.stall_s, out->slowest_disk = i;
    }
    out->hops_s = add_hops(facts, plan, n_tokens, out);
    busy_s += out->hops_s;
    out->tpot_s = fmax(busy_s, stall_s);
    out->disk_bound_s = out->tpot_s - busy_s;
    out->slowest_disk = stall_s > busy_s ? kin_latency_slowest_member(facts, out, out->slowest_disk) : -1;
    return 0;
}

int kin_latency_pass(const kin_facts *facts, const kin_plan *plan, int n_tokens, int n_cached, int n_out, kin_prediction *out,
                     kin_err *err) {
    return predict_pass(facts, plan, n_tokens, n_cached, n_out, out, err);
}

int kin_latency_sequences(const kin_facts *facts, const kin_plan *plan, int n_sequences, int n_cached, kin_prediction *out,
                          kin_err *err) {
    return predict_pass(facts, plan, n_sequences, n_cached, OF_SEQUENCES, out, err);
}
