#include "testkit/plan_random.h"

#include <math.h>
#include <stdio.h>

int kin_random_below(kin_rng *rng, int n) {
    return (int)(kin_rng_unit(rng) * n);
}

static bool chance(kin_rng *rng, double p) {
    return kin_rng_unit(rng) < p;
}

static double spread(kin_rng *rng, double least, double most) {
    return least * pow(most / least, kin_rng_unit(rng));
}

static void random_model(kin_facts *f, kin_rng *rng, int max_layers) {
    kin_model_facts *m = &f->model;
    double layer = spread(rng, 50e6, 600e6), q6 = kin_rng_unit(rng) * 0.5;
    m->n_layer = 1 + kin_random_below(rng, max_layers);
    m->hidden_bytes = 4 * spread(rng, 2048, 16384);
    m->layer_bytes[KIN_QUANT_Q4_K] = layer * (1 - q6);
    m->layer_bytes[KIN_QUANT_Q6_K] = layer * q6;
    m->output_bytes[KIN_QUANT_Q6_K] = layer * spread(rng, 0.3, 3);
    if (chance(rng, 0.15)) {
        m->expert_bytes[KIN_QUANT_Q4_K] = layer * spread(rng, 1, 8);
        m->expert_share = spread(rng, 0.03, 0.5);
        for (int i = 0; i < KIN_FACTS_N_HITS; i++) m->expert_hits[i] = 0.5 + 0.2 * i;
    }
    for (int q = 0; q < KIN_N_QUANT; q++) {
        m->layer_flops[q] = 3.5 * (m->layer_bytes[q] + m->expert_share * m->expert_bytes[q]);
        m->output_flops[q] = 2.4 * m->output_bytes[q];
    }
    m->attn_bytes = layer * (0.15 + 0.2 * kin_rng_unit(rng));
    m->block_bytes = 2.0 / 3 * (layer - m->attn_bytes); // gate and up
    m->layer_blocks = 3;
    m->output_blocks = 1 + floor(m->output_bytes[KIN_QUANT_Q6_K] / 16e6);
    m->weight_block_bytes = (m->n_layer * layer + m->output_bytes[KIN_QUANT_Q6_K]) / (4 * m->n_layer + m->output_blocks);
    m->input_bytes = spread(rng, 50e6, 1e9);
    m->n_vocab = 32000 + kin_random_below(rng, 100000);
    m->kv_bytes = spread(rng, 1024, 32768);
    m->cpu_buffer_bytes = spread(rng, 30e6, 500e6);
    m->gpu_buffer_bytes = spread(rng, 30e6, 500e6);
    kin_facts_set_shares(m, NULL);
    f->work = (kin_work_facts){.n_ctx = 512 << kin_random_below(rng, 5), .n_cached = 256, .n_prompt = 512, .n_batch = 256};
}

static void random_engine(kin_engine_facts *e, kin_rng *rng, double least, double most) {
    double rate = spread(rng, least, most), flop = rate * spread(rng, 5, 50);
    for (int q = 0; q < KIN_N_QUANT; q++) {
        e->token_bytes_s[q] = rate * spread(rng, 0.7, 1.3);
        e->prompt_flop_s[q] = flop * spread(rng, 0.7, 1.3);
    }
    e->read_bytes_s = rate * 1.3;
    e->kv_copy_s = spread(rng, 1e-6, 1e-4);
}

static void random_device(kin_facts *f, kin_device_facts *d, kin_rng *rng) {
    double weights = f->model.n_layer * kin_facts_layer_bytes(&f->model) + 1e9;
    d->os = (kin_os)kin_random_below(rng, 3);
    random_engine(&d->cpu, rng, 2e9, 60e9);
    d->memory_bytes = spread(rng, 0.03, 1.5) * weights;
    if (chance(rng, 0.9)) d->memory_bytes += f->model.cpu_buffer_bytes + 1.3 * f->model.block_bytes; // enough to stream, at least
    d->swap_bytes = chance(rng, 0.5) ? 0.1 * d->memory_bytes : 0;
    d->disk_bytes_s = chance(rng, 0.1) ? 0 : spread(rng, 50e6, 4e9);
    d->disk_random_bytes_s = d->disk_bytes_s * spread(rng, 0.2, 1);
    d->window_s = chance(rng, 0.3) ? 0 : spread(rng, 1e-5, 2e-3);
    d->has_gpu = chance(rng, 0.4);
    if (!d->has_gpu) return;
    random_engine(&d->gpu, rng, 10e9, 600e9);
    d->uma = chance(rng, 0.3);
    d->gpu_memory_bytes = d->uma ? d->memory_bytes * (0.5 + 0.4 * kin_rng_unit(rng)) : spread(rng, 0.03, 1) * weights;
    d->to_gpu_s = spread(rng, 5e-6, 1e-3);
    d->from_gpu_s = spread(rng, 5e-6, 1e-3);
    d->gpu_copy_bytes_s = 5e9;
}

// Either one network, or a separate link for every pair; a few links are missing.
static void random_links(kin_facts *f, kin_rng *rng) {
    double way_s[KIN_FACTS_MAX_DEVICES], least = spread(rng, 1e-5, 5e-3);
    bool one_network = chance(rng, 0.6), some_missing = chance(rng, 0.2);
    for (int i = 0; i < f->n_device; i++) way_s[i] = spread(rng, least, 5 * least);
    for (int a = 0; a < f->n_device; a++) {
        for (int b = 0; b < f->n_device; b++) {
            f->links[a][b].rtt_s = one_network ? way_s[a] + way_s[b] : spread(rng, least, 10 * least);
            f->links[a][b].bytes_s = one_network ? 40e6 : spread(rng, 10e6, 1e9);
            if (some_missing && chance(rng, 0.2)) f->links[a][b].bytes_s = 0;
        }
    }
}

void kin_random_facts(kin_facts *f, kin_rng *rng, int max_devices, int max_layers) {
    *f = (kin_facts){.n_device = 1 + kin_random_below(rng, max_devices)};
    random_model(f, rng, max_layers);
    for (int i = 0; i < f->n_device; i++) {
        snprintf(f->devices[i].name, sizeof f->devices[i].name, "device %d", i);
        random_device(f, &f->devices[i], rng);
    }
    random_links(f, rng);
}
