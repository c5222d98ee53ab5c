// MemSched: layers in proportion to memory, RAM and VRAM together. The rule of exo, and of prima.cpp without Halda.
//
// All devices take part, even those that do not help. Within a device, the GPU takes what it can hold.
#include <stddef.h>

#include "pure/plan/device_time.h"
#include "pure/plan/scheduler.h"

static double memory_of(const kin_device_facts *d, const kin_model_facts *m) {
    return d->memory_bytes + (kin_facts_gpu_usable(d, m) && !d->uma ? d->gpu_memory_bytes : 0);
}

int kin_plan_memsched(const kin_facts *facts, const kin_plan_options *options, kin_plan *plan, kin_err *err) {
    double memory[KIN_FACTS_MAX_DEVICES] = {0};
    int counts[KIN_FACTS_MAX_DEVICES];
    kin_device_set usable;
    if (kin_plan_scheduler_devices(facts, options, &usable, err) != 0) return KIN_FAIL;
    int n_rounds = options->n_rounds > 0 ? options->n_rounds : 1;
    *plan = (kin_plan){.n_rounds = n_rounds};
    if (n_rounds > facts->model.n_layer) return kin_err_set(err, "plan: %d rounds for %d layers", n_rounds, facts->model.n_layer);
    // The windows of equal rounds are divided first, then multiplied by the rounds: so a device has no layer, or at least one per
    // round.
    for (int i = 0; i < facts->n_device; i++)
        memory[i] = usable & kin_device_bit(i) ? memory_of(&facts->devices[i], &facts->model) : 0;
    kin_plan_scheduler_divide(facts->model.n_layer / n_rounds, memory, facts->n_device, counts);
    int largest = 0, rest = facts->model.n_layer % n_rounds;
    for (int i = 0; i < facts->n_device; i++) {
        plan->shares[i].n_layer = counts[i] * n_rounds;
        if (counts[i] > counts[largest]) largest = i;
    }
    plan->shares[largest].n_layer += rest;
    for (int i = 0; i < facts->n_device; i++) {
        if (kin_facts_gpu_usable(&facts->devices[i], &facts->model)) plan->shares[i].n_layer_gpu = plan->shares[i].n_layer;
    }
    kin_plan_scheduler_fit_gpus(facts, plan);
    return kin_plan_scheduler_finish(facts, usable, NULL, plan, err);
}
