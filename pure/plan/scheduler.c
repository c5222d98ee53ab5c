#include "pure/plan/scheduler.h"

#include <string.h>

#include "pure/plan/hops.h"
#include "pure/plan/latency.h"

const kin_plan_scheduler kin_plan_schedulers[] = {
    {"exact", kin_plan_playoff, "the best plan under the timeline model", false},
    {"halda", kin_plan_halda, "Algorithm 1 of prima.cpp's paper, on its objective", false},
    {"memsched", kin_plan_memsched, "in proportion to memory, as exo does", false},
    {"perfsched", kin_plan_perfsched, "in proportion to computing power, then by memory, as Galaxy does", true},
    {"fill-gpus", kin_plan_fill_gpus, "the fastest GPUs are filled first, then the fastest CPUs", true},
    {"dp-sa", kin_plan_dp_sa, "dynamic programming over one range per device, annealed orders", true},
    {0},
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

int kin_plan_scheduler_check_rounds(const kin_plan_scheduler *scheduler, int n_rounds, kin_err *err) {
    if (n_rounds <= 1 || !scheduler->is_one_round) return 0;
    return kin_err_set(err, "%s chooses the number of rounds itself, and it is always 1; omit --rounds", scheduler->name);
}

int kin_plan_schedule(const kin_plan_scheduler *scheduler, const kin_facts *facts, const kin_plan_options *options,
                      kin_plan *plan, kin_err *err) {
    if (options->n_rounds > facts->model.n_layer && facts->model.n_layer > 0)
        return kin_err_set(err, "%d rounds for %d layers: every device needs a layer in every round", options->n_rounds,
                           facts->model.n_layer);
    if (kin_plan_scheduler_check_rounds(scheduler, options->n_rounds, err) != 0) return KIN_FAIL;
    return scheduler->plan(facts, options, plan, err);
}

int kin_plan_options_read_halda(kin_plan_options *options, const char *words, const kin_plan_scheduler *scheduler, kin_err *err) {
    if (scheduler && scheduler->plan != kin_plan_halda)
        return kin_err_set(err, "--halda %s: only --scheduler halda has it, not %s", words, scheduler->name);
    bool is_released = strcmp(words, "released") == 0;
    if (!is_released && strcmp(words, "published") != 0)
        return kin_err_set(err, "--halda %s: must be published or released", words);
    options->halda_kind = is_released ? KIN_HALDA_RELEASED : KIN_HALDA_PUBLISHED;
    return 0;
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
            const kin_load mean = kin_load_of(share->n_layer - share->n_layer_gpu, share->n_layer_gpu, 0);
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
