#include "pure/plan/device_time.h"

#include <math.h>

static const double RING_PER_BLOCK = 1.25; // engine/stream.c makes it so

// ggml's CPU kernels take the tokens of an expert one by one, a batch's product several. Of a Qwen 3 model of 8 layers, 32
// experts, 4 used, Q4_K_M, one thread: TTFT of 128 and 512 tokens (docs/PROFILE.md).
static const double EXPERT_PROMPT_FACTOR = 2;
static const int ATTENTION_BATCH = 32; // ggml's CPU attention takes keys and values for many tokens at once from so many on

static double rate_of(const double rates[KIN_N_QUANT], int q) {
    return rates[q] > 0 ? rates[q] : rates[KIN_QUANT_OTHER];
}

// Matrix products: the weights are read once, and every token costs its FLOP; the larger of the two counts.
static double product_s(const kin_engine_facts *e, int q, double bytes, double flops, double n_tokens) {
    double read_s = bytes > 0 ? bytes / rate_of(e->token_bytes_s, q) : 0;
    double compute_s = n_tokens > 1 && flops > 0 ? n_tokens * flops / rate_of(e->prompt_flop_s, q) : 0;
    return fmax(read_s, compute_s);
}

static double output_s(const kin_engine_facts *e, const kin_model_facts *m) {
    double sum = m->output_ops * e->op_s;
    // Only the last token's logits are wanted, so a prompt's output costs what a token's does.
    for (int q = 0; q < KIN_N_QUANT; q++) sum += product_s(e, q, m->output_bytes[q], m->output_flops[q], 1);
    return sum;
}

// Share of the experts of a layer that n tokens use together, each its own choice.
static double experts_used(const kin_model_facts *m, int n_tokens) {
    return 1 - pow(1 - m->expert_share, n_tokens);
}

// Of a layer. An expert's products are slower than a batch's.
static double products_s(const kin_engine_facts *e, const kin_model_facts *m, int n_tokens) {
    double sum = 0, used = experts_used(m, n_tokens);
    for (int q = 0; q < KIN_N_QUANT; q++) {
        double token_bytes = m->expert_share * m->expert_bytes[q], all_bytes = m->layer_bytes[q] + token_bytes;
        double expert_flops = all_bytes > 0 ? m->layer_flops[q] * token_bytes / all_bytes : 0;
        sum += product_s(e, q, m->layer_bytes[q], m->layer_flops[q] - expert_flops, n_tokens);
        if (token_bytes <= 0) continue;
        sum += product_s(e, q, used * m->expert_bytes[q], expert_flops * EXPERT_PROMPT_FACTOR, n_tokens);
    }
    return sum;
}

// Attention goes over the cache for each token of a batch. Where its rate for batches is not known: a CPU's at a token's rate, a
// GPU's once for all of them.
static double cache_s(const kin_engine_facts *e, const kin_model_facts *m, int n_tokens, int n_cached, bool is_gpu) {
    double reads = m->kv_reads > 0 ? m->kv_reads : 1, rate = e->read_bytes_s;
    double cells = n_tokens * (n_cached + (n_tokens - 1) / 2.0);
    if (n_tokens >= ATTENTION_BATCH && e->prompt_read_bytes_s > 0)
        rate = e->prompt_read_bytes_s;
    else if (is_gpu)
        cells = n_cached + n_tokens - 1;
    return n_tokens * e->kv_copy_s + cells * m->kv_bytes * reads / rate;
}

static void set_speeds(kin_device_rates *r, const kin_model_facts *m, int n_tokens, int n_cached) {
    const kin_device_facts *d = r->facts;
    r->cpu_layer_s = products_s(&d->cpu, m, n_tokens);
    r->cpu_layer_fixed_s = m->layer_ops * d->cpu.op_s + cache_s(&d->cpu, m, n_tokens, n_cached, false);
    double missed = kin_facts_bytes_sum(m->expert_bytes) * experts_used(m, n_tokens);
    if (d->disk_random_bytes_s > 0) r->expert_miss_s = missed / d->disk_random_bytes_s; // else experts that miss do not fit
    if (!r->has_gpu) return;
    r->gpu_layer_s = products_s(&d->gpu, m, n_tokens);
    r->gpu_layer_fixed_s = m->layer_ops * d->gpu.op_s + cache_s(&d->gpu, m, n_tokens, n_cached, true);
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
        .has_gpu = kin_facts_gpu_usable(&facts->devices[device], m),
        .with_output = with_output,
        .n_layer = m->n_layer,
        .facts = &facts->devices[device],
        .cpu_buffer_bytes = m->cpu_buffer_bytes,
        .gpu_buffer_bytes = m->gpu_buffer_bytes,
    };
    for (int il = 0; il < m->n_layer; il++) r->layer_share_max = fmax(r->layer_share_max, m->layer_share[il]);
    set_speeds(r, m, n_tokens, n_cached);
    if (device != 0) return;
    r->output_bytes = kin_facts_bytes_sum(m->output_bytes);
    for (int q = 0; q < KIN_N_QUANT && r->has_gpu; q++) {
        if (m->output_bytes[q] > 0 && !kin_facts_can_multiply(&r->facts->gpu, (kin_quant)q)) r->gpu_output_s = INFINITY;
    }
    if (!with_output) return;
    r->output_starts_s = m->output_blocks * r->window_s;
    r->output_s = output_s(&r->facts->cpu, m);
    if (r->has_gpu && r->gpu_output_s == 0) r->gpu_output_s = output_s(&r->facts->gpu, m);
}

kin_load kin_load_of(int n_cpu, int n_gpu) {
    return (kin_load){.n_cpu = n_cpu, .n_gpu = n_gpu, .size_cpu = n_cpu, .size_gpu = n_gpu};
}

// ---- memory

bool kin_device_output_on_gpu(const kin_device_rates *r, const kin_load *load) {
    return r->output_bytes > 0 && load->n_gpu == r->n_layer;
}

static double gpu_part(const kin_device_rates *r, const kin_load *load) {
    if (load->n_gpu == 0) return 0;
    double output_bytes = kin_device_output_on_gpu(r, load) ? r->output_bytes : 0;
    return load->size_gpu * (r->layer_bytes + r->expert_bytes) + load->n_gpu * r->kv_bytes + r->gpu_buffer_bytes + output_bytes;
}

static bool gpu_can_hold(const kin_device_rates *r, const kin_load *load) {
    if (load->n_gpu == 0) return true;
    if (!r->has_gpu || (kin_device_output_on_gpu(r, load) && isinf(r->gpu_output_s))) return false;
    return gpu_part(r, load) <= r->facts->gpu_memory_bytes;
}

int kin_device_gpu_layers_max(const kin_device_rates *r, int n_layer) {
    if (!r->has_gpu) return 0;
    double layer = r->layer_share_max * (r->layer_bytes + r->expert_bytes) + r->kv_bytes;
    double fits = floor((r->facts->gpu_memory_bytes - r->gpu_buffer_bytes) / layer);
    int most = fits < 0 ? 0 : fits < n_layer ? (int)fits : n_layer;
    kin_load all = kin_load_of(0, most);
    bool output_too = !kin_device_output_on_gpu(r, &all) || gpu_can_hold(r, &all);
    return output_too ? most : most - 1;
}

// Divides what memory is left for weights between resident set, ring and experts. False: there is not even room for the ring.
static bool divide_memory(const kin_device_rates *r, const kin_load *load, kin_device_time *t, double *expert_miss_share) {
    double fixed = r->cpu_buffer_bytes + load->n_cpu * r->kv_bytes + (r->facts->uma ? t->gpu_bytes : 0);
    double room = r->facts->memory_bytes - fixed;
    double weights = load->size_cpu * r->layer_bytes + (kin_device_output_on_gpu(r, load) ? 0 : r->output_bytes),
           experts = load->size_cpu * r->expert_bytes;
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

static void set_disk_time(const kin_device_rates *r, const kin_load *load, double cpu_s, kin_device_time *t) {
    if (t->streamed_bytes == 0) return;
    double streamed_share = t->streamed_bytes / (t->streamed_bytes + t->resident_bytes);
    // A pass that wants no logits does not come to the output's tiles.
    double read_bytes = r->with_output ? t->streamed_bytes : streamed_share * load->size_cpu * r->layer_bytes;
    double ahead = r->ring_bytes / (r->block_bytes * streamed_share) - 1; // room to read ahead, in streamed parts of a block
    t->load_s = read_bytes / r->facts->disk_bytes_s;
    double overlap = fmin(cpu_s, t->load_s * fmin(ahead, 1));
    t->excess_s = t->load_s - overlap;
    t->n_unit = read_bytes / r->unit_bytes;
    t->stall_s = t->load_s + cpu_s - overlap + t->experts_s;
}

kin_device_time kin_device_time_of(const kin_device_rates *r, const kin_load *load) {
    kin_device_time t = {0};
    double expert_miss_share;
    t.gpu_bytes = gpu_part(r, load);
    if (!gpu_can_hold(r, load)) return t;
    if (!divide_memory(r, load, &t, &expert_miss_share)) return t;
    bool output_on_gpu = kin_device_output_on_gpu(r, load);
    double cpu_s = load->size_cpu * r->cpu_layer_s + load->n_cpu * r->cpu_layer_fixed_s + (output_on_gpu ? 0 : r->output_s);
    if (t.streamed_bytes > 0) cpu_s += load->n_cpu * r->layer_starts_s + r->output_starts_s;
    t.compute_s = cpu_s + load->size_gpu * r->gpu_layer_s + load->n_gpu * r->gpu_layer_fixed_s;
    if (output_on_gpu && r->with_output) t.compute_s += r->gpu_output_s;
    if (expert_miss_share > 0) t.experts_s = expert_miss_share * load->size_cpu * r->expert_miss_s;
    set_disk_time(r, load, cpu_s, &t);
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
