#include "pure/plan/scheduler.h"

#include <string.h>

#include "pure/plan/hops.h"
#include "pure/plan/latency.h"

const kin_plan_scheduler kin_plan_schedulers[] = {
    {"exact", kin_plan_playoff, "the best plan under the timeline model"},
    {"halda", kin_plan_halda, "Algorithm 1 of prima.cpp's paper, on its objective"},
    {"memsched", kin_plan_memsched, "in proportion to memory, as exo does"},
    {"perfsched", kin_plan_perfsched, "in proportion to computing power, then by memory, as Galaxy does"},
    {"dp-sa", kin_plan_dp_sa, "dynamic programming over one range per device, annealed orders"},
    {NULL, NULL, NULL},
};

const kin_plan_scheduler *kin_plan_scheduler_find(const char *name) {
    for (const kin_plan_scheduler *s = kin_plan_schedulers; s->name; s++) {
        if (strcmp(s->name, name) == 0) return s;
    }
    return NULL;
}

kin_plan_options kin_plan_options_defaults(void) {
    // prima.cpp calls a disk slow below 100 MB/s.
    return (kin_plan_options){.max_nodes = 2000, .max_orders = 2000, .seed = 1, .slow_disk_bytes_s = 100e6};
}

int kin_plan_scheduler_devices(const kin_facts *facts, const kin_plan_options *options, kin_device_set *usable, kin_err *err) {
    if (kin_facts_screen(facts, usable, NULL, err) != 0) return KIN_FAIL;
    if (options->leave_out & kin_device_bit(0)) return kin_err_set(err, "the head cannot be left out: it has the output layer");
    *usable = kin_facts_reachable(facts, *usable & ~options->leave_out);
    return 0;
}

void kin_plan_scheduler_fit_gpus(const kin_facts *facts, kin_plan *plan) {
    for (int i = 0; i < facts->n_device; i++) {
        kin_device_rates rates;
        kin_layer_share *share = &plan->shares[i];
        if (share->n_layer_gpu == 0) continue;
        kin_device_rates_init(&rates, facts, i, 1, 0, 1);
        int most = kin_device_gpu_layers_max(&rates, share->n_layer_gpu);
        for (share->n_layer_gpu = most; share->n_layer_gpu > 0; share->n_layer_gpu--) {
            const kin_load mean = kin_load_of(share->n_layer - share->n_layer_gpu, share->n_layer_gpu);
            const kin_load load = kin_load_largest(&rates, &mean);
            if (kin_device_time_of(&rates, &load).fits) break;
        }
    }
}

int kin_plan_scheduler_finish(const kin_facts *facts, kin_device_set usable, const int *order, kin_plan *plan, kin_err *err) {
    kin_hops hops;
    kin_prediction prediction;
    int cheapest[KIN_FACTS_MAX_DEVICES];
    bool proven;
    kin_device_set members = kin_plan_workers(plan, facts->n_device) | kin_device_bit(0);
    kin_hops_init(&hops, facts, usable, 1);
    if (!order) {
        kin_hops_tour(&hops, members, cheapest, &proven);
        order = cheapest;
    }
    if (!kin_hops_lay(&hops, order, __builtin_popcount(members), plan)) return kin_err_set(err, "plan: too many relays");
    if (kin_latency_pass(facts, plan, 1, facts->work.n_cached, 1, &prediction, err) != 0) return KIN_FAIL;
    plan->tpot_s = prediction.tpot_s;
    return 0;
}

void kin_plan_scheduler_divide(int n, const double *parts, int n_parts, int *counts) {
    double sum = 0, rests[KIN_FACTS_MAX_DEVICES];
    int left = n;
    for (int i = 0; i < n_parts; i++) sum += parts[i];
    for (int i = 0; i < n_parts; i++) {
        double exact = sum > 0 ? n * parts[i] / sum : 0;
        counts[i] = (int)exact;
        rests[i] = sum > 0 && parts[i] > 0 ? exact - counts[i] : -1;
        left -= counts[i];
    }
    while (left > 0) {
        int largest = 0;
        for (int i = 1; i < n_parts; i++) {
            if (rests[i] > rests[largest]) largest = i;
        }
        counts[largest]++;
        rests[largest] = -1;
        left--;
    }
}
