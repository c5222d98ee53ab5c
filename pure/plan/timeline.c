#include "pure/plan/timeline.h"

#include <math.h>
#include <stdlib.h>

#include "pure/plan/hops.h"
#include "pure/plan/prompt.h"
#include "pure/plan/residency.h"
#include "pure/plan/simulate.h"

enum {
    MAX_TILES = 128,
    MAX_WEIGHT_BLOCKS = KIN_SIMULATE_MAX_WEIGHT_BLOCKS * KIN_FACTS_MAX_LAYERS + MAX_TILES,
    N_TOKENS = 24, // the first ones fill the rings
    N_COUNTED = 12,
};
static const double TILE_BYTES = 16 << 20; // where the facts do not say how many there are

// Sizes of layers in the order of computing, as shares of a mean one.
typedef struct layers {
    double sizes[KIN_FACTS_MAX_LAYERS];
    int n, next;
} layers;

typedef struct device {
    kin_device_rates rates;
    kin_simulation_block blocks[KIN_SIMULATE_MAX_COMPUTE_BLOCKS]; // of a layer
    double experts_layer_s;                                       // waiting for experts, per CPU layer
    bool output_on_gpu;
    layers cpu, gpu;
    int n_weight_block, n_layer_weight_block, next;
    uint64_t bytes[MAX_WEIGHT_BLOCKS];
    bool resident[MAX_WEIGHT_BLOCKS];
    kin_simulation play;
} device;

// ---- layers and weight blocks

// In each window those on the CPU come first.
static void set_layers(device *devices, const kin_facts *facts, const kin_plan *plan) {
    int il = 0;
    for (int round = 0; round < plan->n_rounds; round++) {
        for (int i = 0; i < plan->n_stops; i++) {
            int s = kin_plan_turn(plan, i);
            if (plan->stops[s].relay) continue;
            device *d = &devices[plan->stops[s].device];
            const kin_layer_share *share = &plan->shares[plan->stops[s].device];
            int n = kin_plan_of_round(share->n_layer, plan->n_rounds, round);
            int n_gpu = kin_plan_of_round(share->n_layer_gpu, plan->n_rounds, round);
            for (int end = il + n; il < end; il++) {
                layers *on = il < end - n_gpu ? &d->cpu : &d->gpu;
                on->sizes[on->n++] = facts->model.layer_share[il];
            }
        }
    }
}

static void set_weight_blocks(device *d, const kin_model_facts *m, double resident_bytes, bool streams) {
    uint32_t order[MAX_WEIGHT_BLOCKS];
    double output = d->output_on_gpu ? 0 : d->rates.output_bytes;
    kin_simulate_blocks(m, d->blocks);
    for (int il = 0; il < d->cpu.n; il++) {
        for (const kin_simulation_block *b = d->blocks; b < d->blocks + KIN_SIMULATE_MAX_COMPUTE_BLOCKS; b++) {
            for (int i = 0; i < b->n_weight_block; i++)
                d->bytes[d->n_weight_block++] = (uint64_t)(d->cpu.sizes[il] * b->bytes / b->n_weight_block);
        }
    }
    d->n_layer_weight_block = d->n_weight_block;
    int n_tiles = output > 0 ? (int)fmin(MAX_TILES, ceil(m->output_blocks > 0 ? m->output_blocks : output / TILE_BYTES)) : 0;
    for (int i = 0; i < n_tiles; i++) d->bytes[d->n_weight_block++] = (uint64_t)(output / n_tiles);
    kin_residency_order(d->bytes, (size_t)d->n_weight_block, order);
    // The closed form has half a weight block unused on average; here weight blocks are whole anyway.
    uint64_t budget = streams ? (uint64_t)(resident_bytes + d->rates.weight_block_bytes / 2) : UINT64_MAX;
    kin_residency_choose(d->bytes, (size_t)d->n_weight_block, order, budget, d->resident);
}

// ---- a token

// One block: the next n weight blocks.
static double compute_block(device *d, double now, int n, double compute_s) {
    now = kin_simulate_compute(&d->play, now, n, d->bytes + d->next, d->resident + d->next, compute_s);
    d->next += n;
    return now;
}

static double compute_window(device *d, double now, int n_cpu, int n_gpu) {
    const kin_device_rates *r = &d->rates;
    now += r->window_s + n_cpu * d->experts_layer_s;
    d->play.read_end += n_cpu * d->experts_layer_s; // it is the same disk
    for (int il = 0; il < n_cpu; il++) {
        double layer_s = d->cpu.sizes[d->cpu.next++] * r->cpu_layer_s + r->cpu_layer_fixed_s;
        for (const kin_simulation_block *b = d->blocks; b < d->blocks + KIN_SIMULATE_MAX_COMPUTE_BLOCKS; b++)
            now = compute_block(d, now, b->n_weight_block, layer_s * b->compute_share);
    }
    for (int il = 0; il < n_gpu; il++) now += d->gpu.sizes[d->gpu.next++] * r->gpu_layer_s + r->gpu_layer_fixed_s;
    if (n_gpu > 0) now += r->gpu_window_s;
    return now;
}

// Of each of n_texts.
static double play_token(const kin_facts *facts, const kin_plan *plan, int n_texts, device *devices, double now) {
    for (int i = 0; i < facts->n_device; i++) devices[i].next = devices[i].cpu.next = devices[i].gpu.next = 0;
    for (int round = 0; round < plan->n_rounds; round++) {
        for (int i = 0; i < plan->n_stops; i++) {
            int s = kin_plan_turn(plan, i), from = plan->stops[i].device, at = plan->stops[s].device;
            const kin_layer_share *share = &plan->shares[at];
            int n = plan->stops[s].relay ? 0 : kin_plan_of_round(share->n_layer, plan->n_rounds, round);
            int n_gpu = n > 0 ? kin_plan_of_round(share->n_layer_gpu, plan->n_rounds, round) : 0;
            if (kin_hops_are_in(facts, plan)) now += kin_hop_s(facts, from, at, n_texts);
            if (n > 0) now = compute_window(&devices[at], now, n - n_gpu, n_gpu);
        }
    }
    if (devices[0].output_on_gpu) return now + devices[0].rates.gpu_output_s;
    int n_tiles = devices[0].n_weight_block - devices[0].n_layer_weight_block;
    for (int i = 0; i < n_tiles; i++) now = compute_block(&devices[0], now, 1, devices[0].rates.output_s / n_tiles);
    return now;
}

// d: with its layers; p: what is predicted of it.
static void set_device(device *d, const kin_facts *facts, int i, const kin_layer_share *share, const kin_device_prediction *p,
                       int n_texts, int n_cached) {
    kin_device_rates_init_texts(&d->rates, facts, i, n_texts, n_cached);
    kin_load load = kin_load_of(d->cpu.n, share->n_layer_gpu);
    kin_simulate_init(&d->play, d->rates.ring_bytes, facts->devices[i].disk_bytes_s, 0);
    d->output_on_gpu = kin_device_output_on_gpu(&d->rates, &load);
    if (p->streamed_bytes > 0) {
        d->rates.cpu_layer_fixed_s += d->rates.layer_starts_s;
        d->rates.output_s += d->rates.output_starts_s;
    }
    set_weight_blocks(d, &facts->model, p->resident_bytes, p->streamed_bytes > 0);
    d->experts_layer_s = d->cpu.n > 0 ? p->experts_s / d->cpu.n : 0;
}

int kin_timeline_play_texts(const kin_facts *facts, const kin_plan *plan, int n_texts, int n_cached, double *period_s,
                            kin_err *err) {
    kin_prediction p;
    double now = 0, counted = 0;
    if (kin_latency_texts(facts, plan, n_texts, n_cached, &p, err) != 0) return KIN_FAIL;
    device *devices = calloc((size_t)facts->n_device, sizeof *devices);
    if (!devices) return kin_err_set(err, "plan: no memory to play it");
    set_layers(devices, facts, plan);
    for (int i = 0; i < facts->n_device; i++)
        set_device(&devices[i], facts, i, &plan->shares[i], &p.devices[i], n_texts, n_cached);
    for (int token = 0; token < N_TOKENS; token++) {
        if (token == N_TOKENS - N_COUNTED) counted = now;
        now = play_token(facts, plan, n_texts, devices, now);
    }
    free(devices);
    *period_s = (now - counted) / N_COUNTED;
    return 0;
}

int kin_timeline_play(const kin_facts *facts, const kin_plan *plan, double *tpot_s, kin_err *err) {
    return kin_timeline_play_texts(facts, plan, 1, facts->work.n_cached, tpot_s, err);
}

int kin_timeline_closed(const kin_facts *facts, const kin_plan *plan, kin_prediction *out, kin_err *err) {
    double ttft_s;
    if (kin_prompt_predict(facts, plan, &ttft_s, err) != 0) return KIN_FAIL;
    if (kin_latency_pass(facts, plan, 1, facts->work.n_cached, 1, out, err) != 0) return KIN_FAIL;
    out->ttft_s = ttft_s;
    return 0;
}

int kin_timeline_predict(const kin_facts *facts, const kin_plan *plan, kin_prediction *out, kin_err *err) {
    if (kin_timeline_closed(facts, plan, out, err) != 0) return KIN_FAIL;
    if (kin_timeline_play(facts, plan, &out->tpot_s, err) != 0) return KIN_FAIL;
    if (kin_prompt_play(facts, plan, &out->ttft_s, err) != 0) return KIN_FAIL;
    if (!isfinite(out->tpot_s) || !isfinite(out->ttft_s)) return kin_err_set(err, "these facts give no time of a token");
    double waits_s = fmax(0, out->tpot_s - out->compute_s - out->windows_s - out->hops_s);
    out->exposed_s = fmin(out->exposed_s, waits_s);
    out->disk_bound_s = waits_s - out->exposed_s;
    for (int i = 0; i < facts->n_device && out->disk_bound_s > 0; i++) {
        double longest_s = out->slowest_disk < 0 ? 0 : out->devices[out->slowest_disk].stall_s;
        if (out->devices[i].stall_s > longest_s) out->slowest_disk = i;
    }
    return 0;
}
