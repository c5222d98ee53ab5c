#include "pure/plan/device_time.h"

#include <math.h>
#include <string.h>

#include "pure/plan/residency.h"

static const double RING_PER_BLOCK = 1.25; // as in engine/stream.c

// An expert gets few of a prompt's tokens, and its products are slower than the batch's by this factor. Measured with a Qwen 3
// model of 8 layers, 32 experts, 4 of them used, Q4_K_M (docs/PROFILE.md): kin's kernels compute 16 rows at 0.92 to 0.96 of their
// rate for 128, and TTFT of 128 and 512 tokens fits 1.1; ggml's CPU kernels take the tokens of an expert one by one, but several
// at a time in a batch's product.
static const double KIN_EXPERT_FACTOR = 1.1, GGML_EXPERT_FACTOR = 2;
static const int PROMPT_LOG2 = 7;      // a prompt's rate is measured with 128 tokens
static const int ATTENTION_BATCH = 32; // from here on, one read in ggml's CPU attention serves many tokens

// The tokens of a pass: n tokens of one sequence after n_cached of it, or one token of each of n sequences, each after n_cached.
typedef struct tokens {
    int n, n_cached;
    bool of_sequences;
} tokens;

static double rate_of(const double rates[KIN_N_QUANT], int q) {
    return rates[q] > 0 ? rates[q] : rates[KIN_QUANT_OTHER];
}

static double factor_of(const double factors[KIN_N_QUANT], int q) {
    double factor = rate_of(factors, q);
    return factor > 0 ? factor : 1;
}

// Returns the time of a batch, divided by the time to read its weights plus that to compute its rows: few rows are computed while
// weights are read. Linear in the logarithm of the rows between measured numbers of rows; 1 at a prompt's.
static double batch_factor(const kin_engine_facts *e, int q, double n_tokens) {
    double at = n_tokens < 2 ? INFINITY : log2(n_tokens) - 1;
    if (at >= PROMPT_LOG2 - 1) return 1;
    bool last = at >= KIN_FACTS_BATCHES - 1;
    int i = last ? KIN_FACTS_BATCHES - 1 : (int)at;
    double before = factor_of(e->batch_factor[i], q), after = last ? 1 : factor_of(e->batch_factor[i + 1], q);
    return before + (at - i) / (last ? PROMPT_LOG2 - KIN_FACTS_BATCHES : 1) * (after - before);
}

// Returns the time to read a weight, divided by the time to read it from memory, if it is one of this many bytes that are read
// again and again: those that a CPU's cache holds come faster. Linear in the logarithm of the bytes; 1 from twice the largest
// measured size on.
static double cached_factor(const kin_engine_facts *e, int q, double reread_bytes) {
    double at = reread_bytes > 0 ? fmax(0, log2(reread_bytes / KIN_FACTS_CACHED_LEAST)) : INFINITY;
    if (at >= KIN_FACTS_CACHED) return 1;
    int i = (int)at;
    double before = factor_of(e->cached_factor[i], q),
           after = i + 1 < KIN_FACTS_CACHED ? factor_of(e->cached_factor[i + 1], q) : 1;
    return before + (at - i) * (after - before);
}

// Returns the time of a matrix product: the weights are read once, and each token of a batch costs its FLOP. The rate for one
// token includes both; the rate for a batch was measured with weights in a cache, so the time to read a batch's weights is added.
static double product_s(const kin_engine_facts *e, int q, double bytes, double flops, double n_tokens, double reread_bytes) {
    double read_s = bytes > 0 ? bytes / rate_of(e->token_bytes_s, q) * cached_factor(e, q, reread_bytes) : 0;
    double compute_s = n_tokens > 1 && flops > 0 ? n_tokens * flops / rate_of(e->prompt_flop_s, q) : 0;
    return (read_s + compute_s) * batch_factor(e, q, n_tokens);
}

static double output_s(const kin_engine_facts *e, const kin_model_facts *m, int n_out, double reread_bytes) {
    double sum = m->output_ops * e->op_s;
    for (int q = 0; q < KIN_N_QUANT; q++) sum += product_s(e, q, m->output_bytes[q], m->output_flops[q], n_out, reread_bytes);
    return sum;
}

// Returns the fraction of a layer's experts that n tokens use together, if each chooses independently.
static double experts_used(const kin_model_facts *m, int n_tokens) {
    return 1 - pow(1 - m->expert_share, n_tokens);
}

// True if attention uses kin's kernels: only they have a rate for reading the cache.
static bool by_kins_kernels(const kin_engine_facts *e) {
    return e->kv_bytes_s > 0;
}

// Returns the time of a layer's products. An expert's products are slower than a batch's.
static double products_s(const kin_engine_facts *e, const kin_model_facts *m, int n_tokens, double reread_bytes) {
    double sum = 0, used = experts_used(m, n_tokens), factor = by_kins_kernels(e) ? KIN_EXPERT_FACTOR : GGML_EXPERT_FACTOR;
    for (int q = 0; q < KIN_N_QUANT; q++) {
        double token_bytes = m->expert_share * m->expert_bytes[q], all_bytes = m->layer_bytes[q] + token_bytes;
        double expert_flops = all_bytes > 0 ? m->layer_flops[q] * token_bytes / all_bytes : 0;
        sum += product_s(e, q, m->layer_bytes[q], m->layer_flops[q] - expert_flops, n_tokens, reread_bytes);
        if (token_bytes <= 0) continue;
        sum += product_s(e, q, used * m->expert_bytes[q], expert_flops * factor, n_tokens, reread_bytes);
    }
    return sum;
}

// kin's kernels read K and V once for all heads of a group and all rows of a batch, and compute while they read; neither hides
// the other completely. looks: number of cells read, counted for each head and row.
static double shared_cache_s(const kin_engine_facts *e, const kin_model_facts *m, double n_cells, double attended) {
    return hypot(n_cells * m->kv_bytes / e->kv_bytes_s, attended * m->kv_bytes / e->prompt_read_bytes_s);
}

// Otherwise attention reads the cache for each token of a batch. If the rate for batches is not known, a CPU reads at a token's
// rate, and a GPU once for all tokens.
static double cache_s(const kin_engine_facts *e, const kin_model_facts *m, const tokens *t, bool is_gpu) {
    double reads = m->kv_reads > 0 ? m->kv_reads : 1, rate = e->read_bytes_s, copy_s = t->n * e->kv_copy_s;
    double attended = t->n * (t->n_cached + (t->of_sequences ? 0 : (t->n - 1) / 2.0)); // each token reads those before it
    double cells = t->of_sequences ? attended : t->n_cached + t->n - 1;
    if (by_kins_kernels(e)) return copy_s + shared_cache_s(e, m, cells, attended * reads);
    if (t->n >= ATTENTION_BATCH && e->prompt_read_bytes_s > 0)
        rate = e->prompt_read_bytes_s;
    else if (is_gpu)
        attended = cells;
    return copy_s + attended * m->kv_bytes * reads / rate;
}

// A layer's products by their place in a divided layer: attention's part of the weights that all tokens use, or all else.
static void set_divided_speeds(kin_device_rates *r, const kin_model_facts *m, int n_tokens, double reread_bytes) {
    const kin_device_facts *d = r->facts;
    kin_model_facts shared = *m;
    memset(shared.expert_bytes, 0, sizeof shared.expert_bytes);
    for (int q = 0; q < KIN_N_QUANT; q++) {
        const double token_bytes = m->layer_bytes[q] + m->expert_share * m->expert_bytes[q];
        if (token_bytes > 0) shared.layer_flops[q] *= m->layer_bytes[q] / token_bytes;
    }
    const double attention = r->layer_bytes > 0 ? r->attn_bytes / r->layer_bytes : 0;
    r->divided_gpu_s = attention * products_s(&d->gpu, &shared, n_tokens, reread_bytes);
    r->divided_cpu_s = r->cpu_layer_s - attention * products_s(&d->cpu, &shared, n_tokens, reread_bytes);
    // Half of a layer's operations are of its attention.
    const double gpu_ops = m->gpu_layer_ops > 0 ? m->gpu_layer_ops : m->layer_ops;
    r->divided_fixed_s =
        r->gpu_layer_fixed_s - gpu_ops / 2 * d->gpu.op_s + m->layer_ops / 2 * d->cpu.op_s + r->gpu_window_s + d->window_s;
}

static void set_speeds(kin_device_rates *r, const kin_model_facts *m, const tokens *t, double reread_bytes) {
    const kin_device_facts *d = r->facts;
    int n_tokens = t->n;
    r->cpu_layer_s = products_s(&d->cpu, m, n_tokens, reread_bytes);
    r->cpu_layer_fixed_s = m->layer_ops * d->cpu.op_s + cache_s(&d->cpu, m, t, false);
    if (!r->has_gpu) return;
    r->gpu_layer_s = products_s(&d->gpu, m, n_tokens, reread_bytes);
    double gpu_ops = m->gpu_layer_ops > 0 ? m->gpu_layer_ops : m->layer_ops;
    r->gpu_layer_fixed_s = gpu_ops * d->gpu.op_s + cache_s(&d->gpu, m, t, true);
    if (!d->uma) r->gpu_window_s = d->to_gpu_s + d->from_gpu_s + 2 * (n_tokens - 1) * m->hidden_bytes / d->gpu_copy_bytes_s;
    set_divided_speeds(r, m, n_tokens, reread_bytes);
}

static void share_layers(kin_device_rates *r, const kin_shared_facts *s, int n_tokens) {
    if (s->n_members == 0) return;
    r->layer_sums_s = 2 * (s->sum_s + n_tokens * s->sum_token_s);
    r->cpu_layer_s *= s->time;
    r->cpu_layer_fixed_s = r->cpu_layer_fixed_s * s->time + r->layer_sums_s;
}

// ---- streaming

typedef struct layer {
    kin_simulation_block blocks[KIN_SIMULATE_MAX_COMPUTE_BLOCKS];
    uint64_t bytes[KIN_SIMULATE_MAX_WEIGHT_BLOCKS];
    bool resident[KIN_SIMULATE_MAX_WEIGHT_BLOCKS];
    double compute_s, sum_s;
} layer;

static double play_layer(kin_simulation *p, const layer *l, double now) {
    for (int i = 0, i_weight_block = 0; i < KIN_SIMULATE_MAX_COMPUTE_BLOCKS; i_weight_block += l->blocks[i++].n_weight_block) {
        now = kin_simulate_compute(p, now, l->blocks[i].n_weight_block, l->bytes + i_weight_block, l->resident + i_weight_block,
                                   l->compute_s * l->blocks[i].compute_share);
        if (kin_simulate_adds_up(i)) now += l->sum_s;
    }
    return now;
}

// Starting with an empty ring, layers soon take the same time; starting with a full one, only when the disk has lost its lead.
static void play_stage(const kin_member_rates *r, const layer *l, double *layer_s, double *hidden_s) {
    enum { N_FIRST = 2, N_STEADY = 3, MOST = 64 };
    kin_simulation play;
    double end_s[MOST + 1] = {0}, now = 0, first_s = 0;
    kin_simulate_init(&play, r->ring_bytes, r->disk_bytes_s, 0);
    for (int il = 0; il < N_FIRST + N_STEADY; il++) {
        if (il == N_FIRST) first_s = now;
        now = play_layer(&play, l, now);
    }
    *layer_s = (now - first_s) / N_STEADY;
    kin_simulate_init(&play, r->ring_bytes, r->disk_bytes_s, -INFINITY);
    for (int il = 0; il < MOST; il++) {
        end_s[il + 1] = play_layer(&play, l, end_s[il]);
        *hidden_s = (il + 1) * *layer_s - end_s[il + 1];
        if (il >= N_STEADY && end_s[il + 1] - end_s[il + 1 - N_STEADY] >= N_STEADY * *layer_s * (1 - 1e-6)) break;
    }
}

// compute_s: of a layer, by all members together; sum_s: of one of its sums.
static void set_stages(kin_member_rates *r, const kin_model_facts *m, double compute_s, double sum_s) {
    kin_stages *s = &r->stages;
    layer layer = {.compute_s = compute_s, .sum_s = sum_s};
    uint32_t order[KIN_SIMULATE_MAX_WEIGHT_BLOCKS];
    if (r->disk_bytes_s <= 0) return;
    s->n = kin_simulate_blocks(m, r->heads, r->ff, layer.blocks);
    for (int i = 0, i_weight_block = 0; i < KIN_SIMULATE_MAX_COMPUTE_BLOCKS; i++) {
        for (int n = 0; n < layer.blocks[i].n_weight_block; n++)
            layer.bytes[i_weight_block++] = (uint64_t)(layer.blocks[i].bytes / layer.blocks[i].n_weight_block);
    }
    kin_residency_order(layer.bytes, (size_t)s->n, (size_t)s->n, order);
    for (int i = 0; i < s->n; i++) layer.resident[i] = true;
    s->layer_s[0] = compute_s + 2 * sum_s;
    for (int stage = 0; stage < s->n; stage++) {
        s->weight_block_bytes[stage] = (double)layer.bytes[order[stage]];
        layer.resident[order[stage]] = false;
        play_stage(r, &layer, &s->layer_s[stage + 1], &s->hidden_s[stage + 1]);
    }
    double first_s = s->weight_block_bytes[0] / r->disk_bytes_s;
    s->first_s = first_s + s->layer_s[1] - fmax(s->layer_s[0], first_s);
}

static bool is_slice(const kin_member_rates *r) {
    return r->heads < 1 || r->ff < 1;
}

// Returns the size of a tile: the part of the output that is computed at once.
static double tile_bytes(const kin_model_facts *m) {
    double output = kin_facts_bytes_sum(m->output_bytes);
    return m->output_blocks > 0 ? output / m->output_blocks : output;
}

// Returns the largest block that must fit into the ring whole. block_bytes is for whole layers, or a tile of the output.
static double slice_block_bytes(const kin_model_facts *m, const kin_member_rates *r) {
    double block = 0, tile = tile_bytes(m);
    if (!is_slice(r)) return m->block_bytes;
    kin_simulation_block blocks[KIN_SIMULATE_MAX_COMPUTE_BLOCKS];
    kin_simulate_blocks(m, r->heads, r->ff, blocks);
    for (int i = 0; i < KIN_SIMULATE_MAX_COMPUTE_BLOCKS; i++) block = fmax(block, blocks[i].bytes);
    if (m->block_bytes > tile) block = fmax(blocks[0].bytes, r->ff * m->block_bytes);
    return r->output_bytes > 0 ? fmax(block, tile) : block;
}

static double attention_bytes(const kin_model_facts *m) {
    return m->attn_bytes > 0 ? m->attn_bytes : kin_facts_bytes_sum(m->layer_bytes) / 4;
}

void kin_member_rates_init(kin_member_rates *r, const kin_facts *facts, int device, double heads, double ff) {
    const kin_model_facts *m = &facts->model;
    const double layer = kin_facts_bytes_sum(m->layer_bytes), attn = attention_bytes(m);
    *r = (kin_member_rates){
        .device = device,
        .heads = heads,
        .ff = ff,
        .layer_bytes = layer,
        .attn_bytes = attn,
        .expert_bytes = ff * kin_facts_bytes_sum(m->expert_bytes),
        .output_bytes = device == 0 ? kin_facts_bytes_sum(m->output_bytes) : 0,
        .kv_bytes = heads * kin_facts_kv_held(m, facts->work.n_ctx),
        .facts = &facts->devices[device],
    };
    if (is_slice(r)) r->layer_bytes = heads * attn + ff * (layer - attn);
    r->disk_bytes_s = is_slice(r) && r->facts->no_slices ? 0 : r->facts->disk_bytes_s;
    r->ring_bytes = RING_PER_BLOCK * slice_block_bytes(m, r);
    r->weight_block_bytes = layer > 0 ? m->weight_block_bytes * r->layer_bytes / layer : m->weight_block_bytes;
}

static void set_members(kin_device_rates *r, const kin_facts *facts, int device, int n_tokens) {
    const kin_shared_facts *shared = &facts->shared[device];
    double used = experts_used(&facts->model, n_tokens);
    r->n_members = shared->n_members > 0 ? shared->n_members : 1;
    for (int i = 0; i < r->n_members; i++) {
        kin_member_rates *member = &r->members[i];
        if (shared->n_members == 0)
            kin_member_rates_init(member, facts, device, 1, 1);
        else
            kin_member_rates_init(member, facts, shared->members[i].device, shared->members[i].heads, shared->members[i].ff);
        // By kin's kernels missing experts are read like streamed weights; else page by page.
        double rate = by_kins_kernels(&member->facts->cpu) ? member->facts->disk_bytes_s : member->facts->disk_random_bytes_s;
        if (rate > 0) member->expert_miss_s = member->expert_bytes * used / rate; // else shares with missing experts do not fit
        member->expert_share = used;
        // A prompt needs many experts of each layer, whichever are used most. It reads each at most once per pass.
        if (n_tokens == 1) memcpy(member->expert_hits, facts->model.expert_hits, sizeof member->expert_hits);
        double compute_s = r->cpu_layer_s + r->cpu_layer_fixed_s - r->layer_sums_s + r->layer_starts_s;
        set_stages(member, &facts->model, compute_s, r->layer_sums_s / 2);
    }
}

static void init_rates(kin_device_rates *r, const kin_facts *facts, int device, const tokens *t, int n_out) {
    const kin_model_facts *m = &facts->model;
    *r = (kin_device_rates){
        .layer_bytes = kin_facts_bytes_sum(m->layer_bytes),
        .expert_bytes = kin_facts_bytes_sum(m->expert_bytes),
        .attn_bytes = attention_bytes(m),
        .kv_bytes = kin_facts_kv_held(m, facts->work.n_ctx),
        .gpu_kv_bytes = kin_facts_gpu_kv_held(m, facts->work.n_ctx),
        .window_s = facts->devices[device].window_s,
        .layer_starts_s = m->layer_blocks * facts->devices[device].window_s,
        .layer_share_max = 1,
        .kv_share_max = 1,
        .has_gpu = kin_facts_gpu_usable(&facts->devices[device], m),
        .with_output = n_out > 0,
        .n_layer = m->n_layer,
        .facts = &facts->devices[device],
        .cpu_buffer_bytes = m->cpu_buffer_bytes,
        .gpu_buffer_bytes = m->gpu_buffer_bytes,
    };
    for (int il = 0; il < m->n_layer; il++) {
        r->layer_share_max = fmax(r->layer_share_max, m->layer_share[il]);
        r->kv_share_max = fmax(r->kv_share_max, m->kv_share[il]);
    }
    double reread_bytes = facts->work.reread_bytes;
    set_speeds(r, m, t, reread_bytes);
    share_layers(r, &facts->shared[device], t->n);
    set_members(r, facts, device, t->n);
    if (device != 0) return;
    r->output_bytes = kin_facts_bytes_sum(m->output_bytes);
    for (int q = 0; q < KIN_N_QUANT && r->has_gpu; q++) {
        if (m->output_bytes[q] > 0 && !kin_facts_can_multiply(&r->facts->gpu, (kin_quant)q)) r->gpu_output_s = INFINITY;
    }
    if (n_out == 0) return;
    r->output_starts_s = m->output_blocks * r->window_s;
    r->output_s = output_s(&r->facts->cpu, m, n_out, reread_bytes);
    if (r->has_gpu && r->gpu_output_s == 0) r->gpu_output_s = output_s(&r->facts->gpu, m, n_out, reread_bytes);
}

void kin_device_rates_init(kin_device_rates *r, const kin_facts *facts, int device, int n_tokens, int n_cached, int n_out) {
    init_rates(r, facts, device, &(tokens){n_tokens, n_cached, false}, n_out);
}

void kin_device_rates_init_sequences(kin_device_rates *r, const kin_facts *facts, int device, int n_sequences, int n_cached) {
    init_rates(r, facts, device, &(tokens){n_sequences, n_cached, true}, n_sequences);
}

kin_load kin_load_of(int n_cpu, int n_gpu, int n_cpu_moe) {
    const int n_whole = n_gpu - n_cpu_moe;
    return (kin_load){.n_cpu = n_cpu,
                      .n_divided = n_cpu_moe,
                      .n_gpu = n_whole,
                      .size_cpu = n_cpu,
                      .size_divided = n_cpu_moe,
                      .size_gpu = n_whole,
                      .kv_cpu = n_cpu};
}

void kin_load_add(kin_load *load, const kin_model_facts *m, const kin_window *w, int il) {
    if (il < kin_window_gpu_begin(w)) {
        load->n_cpu++;
        load->size_cpu += m->layer_share[il];
        load->kv_cpu += m->kv_share[il];
    } else if (il < kin_window_gpu_whole_begin(w)) {
        load->n_divided++;
        load->size_divided += m->layer_share[il];
    } else {
        load->n_gpu++;
        load->size_gpu += m->layer_share[il];
    }
}

kin_load kin_load_largest(const kin_device_rates *r, const kin_load *load) {
    kin_load largest = *load;
    largest.size_cpu *= r->layer_share_max;
    largest.size_divided *= r->layer_share_max;
    largest.size_gpu *= r->layer_share_max;
    largest.kv_cpu = fmin(largest.kv_cpu * r->kv_share_max, r->n_layer); // all layers hold no more, however few hold most of it
    return largest;
}

// ---- memory

static int attending_on_gpu(const kin_load *load) {
    return load->n_gpu + load->n_divided;
}

bool kin_device_output_on_gpu(const kin_device_rates *r, const kin_load *load) {
    return r->output_bytes > 0 && attending_on_gpu(load) == r->n_layer;
}

static double gpu_part(const kin_device_rates *r, const kin_load *load) {
    if (attending_on_gpu(load) == 0) return 0;
    double output_bytes = kin_device_output_on_gpu(r, load) ? r->output_bytes : 0;
    return load->size_gpu * (r->layer_bytes + r->expert_bytes) + load->size_divided * r->attn_bytes +
           attending_on_gpu(load) * r->gpu_kv_bytes + r->gpu_buffer_bytes + output_bytes;
}

bool kin_device_can_divide(const kin_device_rates *r) {
    return r->has_gpu && r->expert_bytes > 0 && r->n_members == 1;
}

static bool gpu_can_hold(const kin_device_rates *r, const kin_load *load) {
    if (attending_on_gpu(load) == 0) return true;
    if (!r->has_gpu || (kin_device_output_on_gpu(r, load) && isinf(r->gpu_output_s))) return false;
    return gpu_part(r, load) <= r->facts->gpu_memory_bytes;
}

int kin_device_gpu_layers_max(const kin_device_rates *r, int n_layer) {
    if (!r->has_gpu) return 0;
    double layer = r->layer_share_max * (r->layer_bytes + r->expert_bytes) + r->gpu_kv_bytes;
    double fits = floor((r->facts->gpu_memory_bytes - r->gpu_buffer_bytes) / layer);
    int most = fits < 0 ? 0 : fits < n_layer ? (int)fits : n_layer;
    kin_load all = kin_load_of(0, most, 0);
    bool output_too = !kin_device_output_on_gpu(r, &all) || gpu_can_hold(r, &all);
    return output_too ? most : most - 1;
}

// Returns the share of a pass's experts that are not in memory, if memory has room for the share in_memory of all experts of
// n_layers layers. The experts that a layer missed replace more useful ones until the next layer misses some, so there is less
// room for the experts that are used often: none, if a prompt's layer needs more than there is room for. With several layers they
// belong to the previous layer, and the next cannot use them.
static double expert_misses(const kin_member_rates *m, double in_memory, double n_layers) {
    enum { N_STEPS = 8 }; // from below, so that more memory never means more misses
    double misses = 1 - kin_facts_expert_hits(m->expert_hits, in_memory);
    for (int i = 0; i < N_STEPS && m->expert_share > 0; i++) {
        const double taken = fmin(in_memory, m->expert_share * misses / fmax(1, n_layers)), rest = in_memory - taken;
        misses = 1 - kin_facts_expert_hits(m->expert_hits, rest);
        if (n_layers <= 1) misses *= 1 - taken / (1 - rest);
    }
    return misses;
}

// Divides the memory that is left for weights between resident set, ring and experts. False if there is not even room for the
// ring.
static bool divide_memory(const kin_device_rates *r, const kin_member_rates *m, const kin_load *load, double gpu_bytes,
                          kin_member_time *t, double *expert_miss_share) {
    double fixed = r->cpu_buffer_bytes + load->kv_cpu * m->kv_bytes + (r->facts->uma ? gpu_bytes : 0);
    double room = m->facts->memory_bytes - fixed;
    double n_layers = load->size_cpu + load->size_divided, experts = n_layers * m->expert_bytes,
           weights = n_layers * m->layer_bytes - load->size_divided * m->attn_bytes +
                     (kin_device_output_on_gpu(r, load) ? 0 : m->output_bytes);
    *expert_miss_share = 0;
    if (room < 0) return false;
    if (weights <= room) {
        t->resident_bytes = weights;
        t->memory_bytes = fixed + weights + fmin(experts, room - weights);
        if (experts > room - weights) *expert_miss_share = expert_misses(m, (room - weights) / experts, n_layers);
    } else {
        if (room < m->ring_bytes || load->n_divided > 0) return false;
        t->resident_bytes = fmax(0, room - m->ring_bytes - m->weight_block_bytes / 2);
        t->streamed_bytes = weights - t->resident_bytes;
        t->memory_bytes = m->facts->memory_bytes;
        if (experts > 0) *expert_miss_share = 1;
    }
    return (t->streamed_bytes == 0 || m->disk_bytes_s > 0) && (*expert_miss_share == 0 || m->expert_miss_s > 0);
}

static bool divide_memories(const kin_device_rates *r, const kin_load *load, kin_device_time *t) {
    for (int i = 0; i < r->n_members; i++) {
        double expert_miss_share;
        if (!divide_memory(r, &r->members[i], load, t->gpu_bytes, &t->members[i], &expert_miss_share)) return false;
        t->streamed_bytes += t->members[i].streamed_bytes;
        if (expert_miss_share > 0)
            t->experts_s =
                fmax(t->experts_s, expert_miss_share * (load->size_cpu + load->size_divided) * r->members[i].expert_miss_s);
    }
    return true;
}

// ---- time

// Returns how many of a layer's weight blocks are streamed, on average. The same fraction of the output's tiles is.
static double find_stage(const kin_stages *s, const kin_load *load, double output_bytes, double streamed_bytes) {
    int stage = 0;
    for (;; stage++) {
        double bytes = load->size_cpu * s->weight_block_bytes[stage] + output_bytes / s->n;
        if (streamed_bytes < bytes) return stage + streamed_bytes / bytes;
        streamed_bytes -= bytes;
        if (stage + 1 == s->n) return s->n;
    }
}

// Interpolates of // [KIN_SIMULATE_MAX_WEIGHT_BLOCKS + 1], which has the values of whole stages.
static double between(const double *of, double stage) {
    int i = (int)stage;
    return stage > i ? of[i] + (stage - i) * (of[i + 1] - of[i]) : of[i];
}

// At each sum all members wait for the one whose weights arrive last, usually the one that waits longest for a layer. Only the
// head has the output.
static void add_wait(const kin_device_wait *of, kin_device_wait *all) {
    all->n_cpu = of->n_cpu;
    all->output_s += of->output_s;
    if (of->n_cpu * (of->layer_s - all->layer_s) < of->hidden_s - all->hidden_s && all->hidden_s > 0) return;
    all->layer_s = of->layer_s;
    all->hidden_s = of->hidden_s;
}

// cpu_output_s: computing the output; 0 if the GPU has it, or if no logits are wanted.
static void add_disk_time(const kin_device_rates *r, int i, const kin_load *load, double cpu_output_s, kin_device_time *t) {
    const kin_member_rates *m = &r->members[i];
    kin_member_time *of = &t->members[i];
    const kin_stages *s = &m->stages;
    kin_device_wait wait = {.n_cpu = load->n_cpu};
    if (of->streamed_bytes == 0) return;
    double rate = m->disk_bytes_s, output_bytes = kin_device_output_on_gpu(r, load) ? 0 : m->output_bytes;
    double stage = find_stage(s, load, output_bytes, of->streamed_bytes);
    // A pass without logits does not reach the output's tiles.
    double output_load_s = stage / s->n * output_bytes / rate;
    of->load_s = of->streamed_bytes / rate - (r->with_output ? 0 : output_load_s);
    double layer_s = stage < 1 ? fmax(s->layer_s[0], stage * s->first_s) : between(s->layer_s, stage);
    double wait_s = load->size_cpu * (layer_s - s->layer_s[0]);
    wait.layer_s = load->n_cpu > 0 ? wait_s / load->n_cpu : 0;
    wait.output_s = r->with_output ? fmax(0, output_load_s - cpu_output_s) : 0;
    wait.hidden_s = load->n_cpu == 0 ? m->ring_bytes / rate : stage < 1 ? s->hidden_s[1] : between(s->hidden_s, stage);
    t->load_s = fmax(t->load_s, of->load_s);
    add_wait(&wait, &t->wait);
}

double kin_device_divided_s(const kin_device_rates *r, const kin_load *load) {
    return load->size_divided * (r->divided_gpu_s + r->divided_cpu_s) + load->n_divided * r->divided_fixed_s;
}

kin_device_time kin_device_time_of(const kin_device_rates *r, const kin_load *load) {
    kin_device_time t = {0};
    t.gpu_bytes = gpu_part(r, load);
    if (!gpu_can_hold(r, load)) return t;
    if (!divide_memories(r, load, &t)) return t;
    bool output_on_gpu = kin_device_output_on_gpu(r, load);
    double cpu_output_s = output_on_gpu ? 0 : r->output_s + (t.streamed_bytes > 0 ? r->output_starts_s : 0);
    double cpu_s = load->size_cpu * r->cpu_layer_s + load->n_cpu * r->cpu_layer_fixed_s + cpu_output_s;
    if (t.streamed_bytes > 0) cpu_s += load->n_cpu * r->layer_starts_s;
    t.compute_s = cpu_s + load->size_gpu * r->gpu_layer_s + load->n_gpu * r->gpu_layer_fixed_s + kin_device_divided_s(r, load);
    if (output_on_gpu && r->with_output) t.compute_s += r->gpu_output_s;
    for (int i = 0; i < r->n_members; i++) add_disk_time(r, i, load, cpu_output_s, &t);
    if (t.streamed_bytes > 0) t.stall_s = fmax(t.load_s, cpu_s + t.wait.n_cpu * t.wait.layer_s + t.wait.output_s) + t.experts_s;
    t.fits = true;
    return t;
}

double kin_device_exposed_s(const kin_device_wait *w, int n_rounds) {
    if (w->layer_s == 0 && w->output_s == 0) return 0;
    int least = w->n_cpu / n_rounds, n_more = w->n_cpu % n_rounds;
    double least_s = least * w->layer_s - w->hidden_s;
    return n_more * fmax(0, least_s + w->layer_s) + (n_rounds - n_more - 1) * fmax(0, least_s) + fmax(0, least_s + w->output_s);
}

double kin_device_windows_s(const kin_device_rates *r, int n_layer, int n_layer_gpu, int n_rounds) {
    if (n_layer == 0) return 0;
    return n_rounds * r->window_s + (n_layer_gpu < n_rounds ? n_layer_gpu : n_rounds) * r->gpu_window_s;
}
