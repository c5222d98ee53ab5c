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
    N_TOKENS = 24, // the first tokens fill the rings
    N_COUNTED = 12,
};
static const double TILE_BYTES = 16 << 20; // if the facts do not say how many tiles there are

// Sizes of layers in computing order, relative to the mean.
typedef struct layers {
    double sizes[KIN_FACTS_MAX_LAYERS];
    int n, next;
} layers;

// The weights that a device holds: all of its layers if it is single, its slices of them in a group.
typedef struct member {
    kin_simulation_block blocks[KIN_SIMULATE_MAX_COMPUTE_BLOCKS]; // of a layer
    int n_weight_block, n_layer_weight_block, next;
    uint64_t bytes[MAX_WEIGHT_BLOCKS];
    bool resident[MAX_WEIGHT_BLOCKS];
    kin_simulation play;
    double now; // of those that share a layer, between two sums
} member;

typedef struct device {
    kin_device_rates rates;
    double experts_layer_s; // wait for experts, per layer with experts on the CPU
    bool output_on_gpu;
    layers cpu, divided, gpu;
    member *members; // [rates.n_members]
} device;

// ---- layers and weight blocks

// Assigns layers to engines: in each window those on the CPU come first, then divided ones.
static void set_layers(device *devices, const kin_facts *facts, const kin_plan *plan) {
    int il = 0;
    for (int round = 0; round < plan->n_rounds; round++) {
        for (int i = 0; i < plan->n_stops; i++) {
            int s = kin_plan_turn(plan, i);
            if (plan->stops[s].relay) continue;
            device *d = &devices[plan->stops[s].device];
            kin_layer_share share = kin_plan_share_of_round(plan, plan->stops[s].device, round);
            const kin_window w = kin_plan_window_at(il, &share);
            for (; il < w.layer_end; il++) {
                const bool on_cpu = il < kin_window_gpu_begin(&w), on_gpu = il >= kin_window_gpu_whole_begin(&w);
                layers *on = on_cpu ? &d->cpu : on_gpu ? &d->gpu : &d->divided;
                on->sizes[on->n++] = facts->model.layer_share[il];
            }
        }
    }
}

// i: index of the member; p: its prediction.
static void set_member(device *d, int i, const kin_model_facts *m, const kin_device_prediction *p) {
    const kin_member_rates *rates = &d->rates.members[i];
    member *e = &d->members[i];
    uint32_t order[MAX_WEIGHT_BLOCKS];
    double output = d->output_on_gpu ? 0 : rates->output_bytes;
    kin_simulate_init(&e->play, rates->ring_bytes, rates->disk_bytes_s, 0);
    kin_simulate_blocks(m, rates->heads, rates->ff, e->blocks);
    for (int il = 0; il < d->cpu.n; il++) {
        for (const kin_simulation_block *b = e->blocks; b < e->blocks + KIN_SIMULATE_MAX_COMPUTE_BLOCKS; b++) {
            for (int k = 0; k < b->n_weight_block; k++)
                e->bytes[e->n_weight_block++] = (uint64_t)(d->cpu.sizes[il] * b->bytes / b->n_weight_block);
        }
    }
    e->n_layer_weight_block = e->n_weight_block;
    int n_tiles = output > 0 ? (int)fmin(MAX_TILES, ceil(m->output_blocks > 0 ? m->output_blocks : output / TILE_BYTES)) : 0;
    for (int k = 0; k < n_tiles; k++) e->bytes[e->n_weight_block++] = (uint64_t)(output / n_tiles);
    kin_residency_order(e->bytes, (size_t)e->n_weight_block, (size_t)e->n_weight_block, order);
    // The closed form leaves half a weight block unused on average; here weight blocks are whole anyway.
    uint64_t budget = p->streamed_bytes > 0 ? (uint64_t)(p->resident_bytes + rates->weight_block_bytes / 2) : UINT64_MAX;
    kin_residency_choose(e->bytes, (size_t)e->n_weight_block, order, budget, e->resident);
}

// ---- a token

// Computes one block, which consists of the next n weight blocks.
static double compute_block(member *e, double now, int n, double compute_s) {
    now = kin_simulate_compute(&e->play, now, n, e->bytes + e->next, e->resident + e->next, compute_s);
    e->next += n;
    return now;
}

// layer_s: computing the layer, without sums.
static double compute_layer(device *d, double now, double layer_s) {
    int n = d->rates.n_members;
    for (int i = 0; i < n; i++) d->members[i].now = now;
    for (int block = 0; block < KIN_SIMULATE_MAX_COMPUTE_BLOCKS; block++) {
        for (int i = 0; i < n; i++) {
            member *e = &d->members[i];
            const kin_simulation_block *b = &e->blocks[block];
            e->now = compute_block(e, e->now, b->n_weight_block, layer_s * b->compute_share);
            now = fmax(now, e->now);
        }
        if (!kin_simulate_adds_up(block)) continue;
        now += d->rates.layer_sums_s / 2;
        for (int i = 0; i < n; i++) d->members[i].now = now;
    }
    return now;
}

static double compute_window(device *d, double now, const kin_layer_share *share) {
    const kin_device_rates *r = &d->rates;
    const int n_cpu = share->n_layer - share->n_layer_gpu, n_gpu = share->n_layer_gpu - share->n_cpu_moe;
    const double experts_s = (n_cpu + share->n_cpu_moe) * d->experts_layer_s;
    now += r->window_s + experts_s;
    for (int i = 0; i < r->n_members; i++) d->members[i].play.read_end += experts_s; // it is the same disk
    for (int il = 0; il < n_cpu; il++) {
        double layer_s = d->cpu.sizes[d->cpu.next++] * r->cpu_layer_s + r->cpu_layer_fixed_s;
        now = compute_layer(d, now, layer_s - r->layer_sums_s);
    }
    for (int il = 0; il < share->n_cpu_moe; il++)
        now += d->divided.sizes[d->divided.next++] * (r->divided_gpu_s + r->divided_cpu_s) + r->divided_fixed_s;
    for (int il = 0; il < n_gpu; il++) now += d->gpu.sizes[d->gpu.next++] * r->gpu_layer_s + r->gpu_layer_fixed_s;
    if (share->n_layer_gpu > 0) now += r->gpu_window_s;
    return now;
}

// Simulates one token of each of n_sequences sequences.
static double play_token(const kin_facts *facts, const kin_plan *plan, int n_sequences, device *devices, double now) {
    for (int i = 0; i < facts->n_device; i++) {
        devices[i].cpu.next = devices[i].divided.next = devices[i].gpu.next = 0;
        for (int k = 0; k < devices[i].rates.n_members; k++) devices[i].members[k].next = 0;
    }
    for (int round = 0; round < plan->n_rounds; round++) {
        for (int i = 0; i < plan->n_stops; i++) {
            int s = kin_plan_turn(plan, i), from = plan->stops[i].device, at = plan->stops[s].device;
            kin_layer_share share = kin_plan_share_of_round(plan, at, round);
            if (kin_hops_are_in(facts, plan)) now += kin_hop_s(facts, from, at, n_sequences);
            if (!plan->stops[s].relay && share.n_layer > 0) now = compute_window(&devices[at], now, &share);
        }
    }
    if (devices[0].output_on_gpu) return now + devices[0].rates.gpu_output_s;
    member *head = &devices[0].members[devices[0].rates.n_members - 1];
    int n_tiles = head->n_weight_block - head->n_layer_weight_block;
    for (int i = 0; i < n_tiles; i++) now = compute_block(head, now, 1, devices[0].rates.output_s / n_tiles);
    return now;
}

// d: already has its layers; predicted: of all devices.
static void set_device(device *d, const kin_facts *facts, int i, const kin_layer_share *share,
                       const kin_device_prediction *predicted, member *members) {
    kin_load load = kin_load_of(d->cpu.n, share->n_layer_gpu, share->n_cpu_moe);
    bool streams = false;
    d->members = members;
    d->output_on_gpu = kin_device_output_on_gpu(&d->rates, &load);
    for (int k = 0; k < d->rates.n_members; k++) {
        const kin_device_prediction *p = &predicted[d->rates.members[k].device];
        set_member(d, k, &facts->model, p);
        streams = streams || p->streamed_bytes > 0;
    }
    if (streams) {
        d->rates.cpu_layer_fixed_s += d->rates.layer_starts_s;
        d->rates.output_s += d->rates.output_starts_s;
    }
    const int n_with_experts = d->cpu.n + d->divided.n;
    d->experts_layer_s = n_with_experts > 0 ? predicted[i].experts_s / n_with_experts : 0;
}

int kin_timeline_play_sequences(const kin_facts *facts, const kin_plan *plan, int n_sequences, int n_cached, double *period_s,
                                kin_err *err) {
    kin_prediction p;
    double now = 0, counted = 0;
    if (kin_latency_sequences(facts, plan, n_sequences, n_cached, &p, err) != 0) return KIN_FAIL;
    device *devices = calloc((size_t)facts->n_device, sizeof *devices);
    int n_members = 0;
    for (int i = 0; i < facts->n_device && devices; i++) {
        kin_device_rates_init_sequences(&devices[i].rates, facts, i, n_sequences, n_cached);
        n_members += devices[i].rates.n_members;
    }
    member *members = calloc((size_t)n_members, sizeof *members), *next = members;
    if (!devices || !members) {
        free(devices);
        free(members);
        return kin_err_set(err, "plan: out of memory to simulate it");
    }
    set_layers(devices, facts, plan);
    for (int i = 0; i < facts->n_device; next += devices[i++].rates.n_members)
        set_device(&devices[i], facts, i, &plan->shares[i], p.devices, next);
    for (int token = 0; token < N_TOKENS; token++) {
        if (token == N_TOKENS - N_COUNTED) counted = now;
        now = play_token(facts, plan, n_sequences, devices, now);
    }
    free(devices);
    free(members);
    *period_s = (now - counted) / N_COUNTED;
    return 0;
}

int kin_timeline_play(const kin_facts *facts, const kin_plan *plan, double *tpot_s, kin_err *err) {
    return kin_timeline_play_sequences(facts, plan, 1, facts->work.n_cached, tpot_s, err);
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
    if (!isfinite(out->tpot_s) || !isfinite(out->ttft_s))
        return kin_err_set(err, "cannot predict the time per token from these facts");
    double waits_s = fmax(0, out->tpot_s - out->compute_s - out->windows_s - out->hops_s);
    out->exposed_s = fmin(out->exposed_s, waits_s);
    out->disk_bound_s = waits_s - out->exposed_s;
    for (int i = 0; i < facts->n_device && out->disk_bound_s > 0; i++) {
        double longest_s = out->slowest_disk < 0 ? 0 : out->devices[out->slowest_disk].stall_s;
        if (out->devices[i].stall_s > longest_s) out->slowest_disk = i;
    }
    if (out->slowest_disk >= 0) out->slowest_disk = kin_latency_slowest_member(facts, out, out->slowest_disk);
    return 0;
}
