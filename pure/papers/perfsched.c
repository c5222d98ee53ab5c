// PerfSched: layers in proportion to computing power, then by memory. The rule of Galaxy, as described in the paper's A.10:
//
//   1. Divide by the power of each device's faster engine.
//   2. Move what does not fit there (VRAM, or RAM if there is no GPU) to devices with room, the most powerful first.
//   3. Divide the rest among all CPUs in proportion to their power; it may have to be streamed.
//
// Fill-Fastest-GPUs-First (A.19.2) has no step 1: all layers look for room, on the device that computes a prompt fastest first.
// The paper ranks by computing, and only uses it where all layers fit into VRAM; of other models it does not say what happens.
#include <stddef.h>

#include "pure/plan/device_time.h"
#include "pure/plan/scheduler.h"

typedef struct worker {
    double power, cpu_power; // layers per second
    int room;                // layers that fit where they are computed fast
    bool on_gpu;
    int n_fast; // its layers on the faster engine
} worker;

static int cpu_room(const kin_device_rates *rates, int n_layer) {
    for (int n = n_layer; n > 0; n--) {
        const kin_load mean = kin_load_of(n, 0, 0), load = kin_load_largest(rates, &mean);
        kin_device_time t = kin_device_time_of(rates, &load);
        if (t.fits && t.streamed_bytes == 0 && t.experts_s == 0) return n;
    }
    return 0;
}

// n_tokens: of the passes by which power is measured.
static worker worker_of(const kin_facts *facts, int device, int n_tokens) {
    kin_device_rates r;
    kin_device_rates_init(&r, facts, device, n_tokens, facts->work.n_cached, 1);
    double cpu_s = r.cpu_layer_s + r.cpu_layer_fixed_s, gpu_s = r.gpu_layer_s + r.gpu_layer_fixed_s;
    worker w = {.cpu_power = 1 / cpu_s, .on_gpu = r.has_gpu && gpu_s < cpu_s};
    w.power = w.on_gpu ? 1 / gpu_s : w.cpu_power;
    kin_device_rates_init(&r, facts, device, 1, facts->work.n_cached, 1); // memory is that of a token
    w.room = w.on_gpu ? kin_device_gpu_layers_max(&r, facts->model.n_layer) : cpu_room(&r, facts->model.n_layer);
    return w;
}

// Step 2, for layers that have no room on their device and `left` ones that have no device. Returns how many found no room.
static int move_to_room(worker *workers, int n, int left) {
    for (int i = 0; i < n; i++) {
        int over = workers[i].n_fast - workers[i].room;
        if (over <= 0) continue;
        workers[i].n_fast -= over;
        left += over;
    }
    while (left > 0) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            if (workers[i].n_fast < workers[i].room && (best < 0 || workers[i].power > workers[best].power)) best = i;
        }
        if (best < 0) break;
        workers[best].n_fast++;
        left--;
    }
    return left;
}

static int schedule(const kin_facts *facts, const kin_plan_options *options, bool fills, kin_plan *plan, kin_err *err) {
    worker workers[KIN_FACTS_MAX_DEVICES] = {0};
    double power[KIN_FACTS_MAX_DEVICES] = {0}, cpu_power[KIN_FACTS_MAX_DEVICES] = {0};
    int counts[KIN_FACTS_MAX_DEVICES] = {0}, n = facts->n_device, n_layer = facts->model.n_layer;
    kin_device_set usable;
    if (kin_plan_scheduler_devices(facts, options, &usable, err) != 0) return KIN_FAIL;
    *plan = (kin_plan){.n_rounds = 1};
    for (int i = 0; i < n; i++) {
        if (!(usable & kin_device_bit(i))) continue;
        workers[i] = worker_of(facts, i, fills ? facts->work.n_batch : 1);
        power[i] = workers[i].power;
        cpu_power[i] = workers[i].cpu_power;
    }
    if (!fills) kin_plan_scheduler_divide(n_layer, power, n, counts);
    for (int i = 0; i < n; i++) workers[i].n_fast = counts[i];
    kin_plan_scheduler_divide(move_to_room(workers, n, fills ? n_layer : 0), cpu_power, n, counts);
    for (int i = 0; i < n; i++) {
        plan->shares[i].n_layer = workers[i].n_fast + counts[i];
        plan->shares[i].n_layer_gpu = workers[i].on_gpu ? workers[i].n_fast : 0;
    }
    kin_plan_scheduler_fit_gpus(facts, plan);
    return kin_plan_scheduler_finish(facts, usable, NULL, plan, err);
}

int kin_plan_perfsched(const kin_facts *facts, const kin_plan_options *options, kin_plan *plan, kin_err *err) {
    return schedule(facts, options, false, plan, err);
}

int kin_plan_fill_gpus(const kin_facts *facts, const kin_plan_options *options, kin_plan *plan, kin_err *err) {
    return schedule(facts, options, true, plan, err);
}
