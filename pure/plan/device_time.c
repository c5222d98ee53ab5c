#include "pure/plan/device_time.h"

#include <math.h>

static const double RING_PER_BLOCK = 1.25; // engine/stream.c makes it so

static double rate_of(const double rates[KIN_N_QUANT], int q) {
    return rates[q] > 0 ? rates[q] : rates[KIN_QUANT_OTHER];
}

// Matrix products: the weights are read once, and every token costs its FLOP; the larger of the two counts.
static double products_s(const kin_engine_facts *e, const double *bytes, const double *flops, int n_tokens) {
    double sum = 0;
    for (int q = 0; q < KIN_N_QUANT; q++) {
        double read_s = bytes[q] > 0 ? bytes[q] / rate_of(e->token_bytes_s, q) : 0;
        double compute_s = n_tokens > 1 && flops[q] > 0 ? n_tokens * flops[q] / rate_of(e->prompt_flop_s, q) : 0;
        sum += fmax(read_s, compute_s);
    }
    return sum;
}

// Share of the experts of a layer that n tokens use together, each its own choice.
static double experts_used(const kin_model_facts *m, int n_tokens) {
    return 1 - pow(1 - m->expert_share, n_tokens);
}

static void active_bytes(const kin_model_facts *m, int n_tokens, double bytes[KIN_N_QUANT]) {
    double used = experts_used(m, n_tokens);
    for (int q = 0; q < KIN_N_QUANT; q++) bytes[q] = m->layer_bytes[q] + used * m->expert_bytes[q];
}

// A CPU's attention goes over the cache for each token of a batch by itself; a GPU's takes many tokens at once.
static double cache_s(const kin_engine_facts *e, const kin_model_facts *m, int n_tokens, int n_cached, bool each) {
    double reads = m->kv_reads > 0 ? m->kv_reads : 1;
    double cells = each ? n_tokens * (n_cached + (n_tokens - 1) / 2.0) : n_cached + n_tokens - 1;
    return n_tokens * e->kv_copy_s + cells * m->kv_bytes * reads / e->read_bytes_s;
}

static void set_speeds(kin_device_rates *r, const kin_model_facts *m, int n_tokens, int n_cached) {
    const kin_device_facts *d = r->facts;
    double bytes[KIN_N_QUANT];
    active_bytes(m, n_tokens, bytes);
    r->cpu_layer_s = products_s(&d->cpu, bytes, m->layer_flops, n_tokens);
    r->cpu_layer_fixed_s = m->layer_ops * d->cpu.op_s + cache_s(&d->cpu, m, n_tokens, n_cached, true);
    double missed = kin_facts_bytes_sum(m->expert_bytes) * experts_used(m, n_tokens);
    if (d->disk_random_bytes_s > 0) r->expert_miss_s = missed / d->disk_random_bytes_s; // else experts that miss do not fit
    if (!d->has_gpu) return;
    r->gpu_layer_s = products_s(&d->gpu, bytes, m->layer_flops, n_tokens);
    r->gpu_layer_fixed_s = m->layer_ops * d->gpu.op_s + cache_s(&d->gpu, m, n_tokens, n_cached, false);
    if (!d->uma) r->gpu_window_s = d->to_gpu_s + d->from_gpu_s + 2 * (n_tokens - 1) * m->hidden_bytes / d->gpu_copy_bytes_s;
}

void kin_device_rates_init(kin_device_rates *r, const kin_facts *facts, int device, int n_tokens, int n_cached,
                           bool with_output) {
    const kin_model_facts *m = &facts->model;
    *r = (kin_device_rates){
        .layer_bytes = kin_facts_bytes_sum(m->layer_bytes),
        .expert_bytes = kin_facts_bytes_sum(m->expert_bytes),
        .kv_bytes = m->kv_bytes * facts->work.n_ctx,
        .ring_bytes = RING_PER_BLOCK * m->block_bytes,
        .block_bytes = m->block_bytes,
        .unit_bytes = m->unit_bytes,
        .window_s = facts->devices[device].window_s,
        .layer_starts_s = m->layer_blocks * facts->devices[device].window_s,
        .layer_share_max = 1,
        .facts = &facts->devices[device],
        .cpu_buffer_bytes = m->cpu_buffer_bytes,
        .gpu_buffer_bytes = m->gpu_buffer_bytes,
    };
    for (int il = 0; il < m->n_layer; il++) r->layer_share_max = fmax(r->layer_share_max, m->layer_share[il]);
    set_speeds(r, m, n_tokens, n_cached);
    if (device != 0) return;
    r->output_bytes = kin_facts_bytes_sum(m->output_bytes);
    if (with_output) r->output_starts_s = m->output_blocks * r->window_s;
    // Only the last token's logits are wanted, so a prompt's output costs what a token's does.
    if (with_output)
        r->output_s = m->output_ops * r->facts->cpu.op_s + products_s(&r->facts->cpu, m->output_bytes, m->output_flops, 1);
}

kin_load kin_load_of(int n_cpu, int n_gpu) {
    return (kin_load){.n_cpu = n_cpu, .n_gpu = n_gpu, .size_cpu = n_cpu, .size_gpu = n_gpu};
}

int kin_device_gpu_layers_max(const kin_device_rates *r, int n_layer) {
    if (!r->facts->has_gpu) return 0;
    double layer = r->layer_share_max * (r->layer_bytes + r->expert_bytes) + r->kv_bytes;
    double fits = floor((r->facts->gpu_memory_bytes - r->gpu_buffer_bytes) / layer);
    return fits < 0 ? 0 : fits < n_layer ? (int)fits : n_layer;
}

// ---- memory

static double gpu_part(const kin_device_rates *r, const kin_load *load) {
    if (load->n_gpu == 0) return 0;
    return load->size_gpu * (r->layer_bytes + r->expert_bytes) + load->n_gpu * r->kv_bytes + r->gpu_buffer_bytes;
}

// Divides what memory is left for weights between resident set, ring and experts. False: there is not even room for the ring.
static bool divide_memory(const kin_device_rates *r, const kin_load *load, kin_device_time *t, double *expert_miss_share) {
    double fixed = r->cpu_buffer_bytes + load->n_cpu * r->kv_bytes + (r->facts->uma ? t->gpu_bytes : 0);
    double room = r->facts->memory_bytes - fixed;
    double weights = load->size_cpu * r->layer_bytes + r->output_bytes, experts = load->size_cpu * r->expert_bytes;
    *expert_miss_share = 0;
    if (room < 0) return false;
    if (weights <= room) {
        t->resident_bytes = weights;
        t->memory_bytes = fixed + weights + fmin(experts, room - weights);
        if (experts > room - weights) *expert_miss_share = 1 - (room - weights) / experts;
    } else {
        if (room < r->ring_bytes) return false;
        t->resident_bytes = fmax(0, room - r->ring_bytes - r->unit_bytes / 2);
        t->streamed_bytes = weights - t->resident_bytes;
        t->memory_bytes = r->facts->memory_bytes;
        if (experts > 0) *expert_miss_share = 1;
    }
    return (t->streamed_bytes == 0 || r->facts->disk_bytes_s > 0) &&
           (*expert_miss_share == 0 || r->facts->disk_random_bytes_s > 0);
}

// ---- time

static void set_disk_time(const kin_device_rates *r, double cpu_s, kin_device_time *t) {
    if (t->streamed_bytes == 0) return;
    double streamed_share = t->streamed_bytes / (t->streamed_bytes + t->resident_bytes);
    double ahead = r->ring_bytes / (r->block_bytes * streamed_share) - 1; // room to read ahead, in streamed parts of a block
    t->load_s = t->streamed_bytes / r->facts->disk_bytes_s;
    double overlap = fmin(cpu_s, t->load_s * fmin(ahead, 1));
    t->excess_s = t->load_s - overlap;
    t->n_unit = t->streamed_bytes / r->unit_bytes;
    t->stall_s = t->load_s + cpu_s - overlap + t->experts_s;
}

kin_device_time kin_device_time_of(const kin_device_rates *r, const kin_load *load) {
    kin_device_time t = {0};
    double expert_miss_share;
    t.gpu_bytes = gpu_part(r, load);
    if (t.gpu_bytes > 0 && (!r->facts->has_gpu || t.gpu_bytes > r->facts->gpu_memory_bytes)) return t;
    if (!divide_memory(r, load, &t, &expert_miss_share)) return t;
    double cpu_s = load->size_cpu * r->cpu_layer_s + load->n_cpu * r->cpu_layer_fixed_s + r->output_s;
    if (t.streamed_bytes > 0) cpu_s += load->n_cpu * r->layer_starts_s + r->output_starts_s;
    t.compute_s = cpu_s + load->size_gpu * r->gpu_layer_s + load->n_gpu * r->gpu_layer_fixed_s;
    if (expert_miss_share > 0) t.experts_s = expert_miss_share * load->size_cpu * r->expert_miss_s;
    set_disk_time(r, cpu_s, &t);
    t.fits = true;
    return t;
}

double kin_device_exposed_s(const kin_device_rates *r, double n_unit, double unit_excess_s, int n_rounds) {
    if (n_unit == 0) return 0;
    double hidden_s = (r->ring_bytes - r->unit_bytes / 2) / r->facts->disk_bytes_s;
    double of_round = n_unit / n_rounds, least = floor(of_round), more = of_round - least;
    double exposed_s =
        (1 - more) * fmax(0, least * unit_excess_s - hidden_s) + more * fmax(0, (least + 1) * unit_excess_s - hidden_s);
    return n_rounds * exposed_s;
}

double kin_device_windows_s(const kin_device_rates *r, int n_layer, int n_layer_gpu, int n_rounds) {
    if (n_layer == 0) return 0;
    return n_rounds * r->window_s + (n_layer_gpu < n_rounds ? n_layer_gpu : n_rounds) * r->gpu_window_s;
}
