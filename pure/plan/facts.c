#include "pure/plan/facts.h"

#include <math.h>
#include <stdio.h>

#include <string.h>

#include "base/median.h"

// Limits that no home reaches. A number beyond them has the wrong unit, or is false.
static const double MAX_MEMORY_BYTES = 64e12;
static const double MAX_BYTES_S = 100e12;
static const double MAX_FLOP_S = 100e15;
static const double MAX_SECONDS = 60;
static const double LEAST_FACTOR = 0.01, MOST_FACTOR = 100;

static const char *const quant_names[KIN_N_QUANT] = {
    "F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q4_0", "Q3_K", "Q2_K", "other",
};

const char *kin_quant_name(kin_quant quant) {
    return quant_names[quant];
}

double kin_facts_bytes_sum(const double bytes[KIN_N_QUANT]) {
    double sum = 0;
    for (int q = 0; q < KIN_N_QUANT; q++) sum += bytes[q];
    return sum;
}

double kin_facts_expert_hits(const double hits[KIN_FACTS_N_HITS], double in_memory) {
    const double at[] = {0, hits[0], hits[1], hits[2], 1}, place = fmin(fmax(in_memory, 0), 1) * (KIN_FACTS_N_HITS + 1);
    const int i = place < KIN_FACTS_N_HITS ? (int)place : KIN_FACTS_N_HITS;
    return hits[0] > 0 ? at[i] + (at[i + 1] - at[i]) * (place - i) : in_memory;
}

double kin_facts_layer_bytes(const kin_model_facts *model) {
    return kin_facts_bytes_sum(model->layer_bytes) + kin_facts_bytes_sum(model->expert_bytes);
}

// Returns the mean.
static double set_list(double *shares, int n_layer, const double *bytes) {
    double sum = 0;
    for (int il = 0; bytes && il < n_layer; il++) sum += bytes[il];
    for (int il = 0; il < n_layer; il++) shares[il] = sum > 0 ? bytes[il] * n_layer / sum : 1;
    return sum / n_layer;
}

void kin_facts_set_shares(kin_model_facts *model, const double *bytes) {
    set_list(model->layer_share, model->n_layer, bytes);
    set_list(model->kv_share, model->n_layer, NULL);
}

void kin_facts_set_kv(kin_model_facts *model, int n_ctx, const double *bytes) {
    model->kv_held_bytes = set_list(model->kv_share, model->n_layer, bytes) / n_ctx;
}

void kin_facts_forget_kv(kin_model_facts *model) {
    model->kv_held_bytes = model->gpu_kv_bytes = 0;
    set_list(model->kv_share, model->n_layer, NULL);
}

double kin_facts_kv_held(const kin_model_facts *m, int n_ctx) {
    return (m->kv_held_bytes > 0 ? m->kv_held_bytes : m->kv_bytes) * n_ctx;
}

double kin_facts_gpu_kv_held(const kin_model_facts *m, int n_ctx) {
    return m->gpu_kv_bytes > 0 ? m->gpu_kv_bytes * n_ctx : kin_facts_kv_held(m, n_ctx);
}

// ---- one number

// Checks that a number is in [least, most]; NaN is in no range.
static int check_number(double value, double least, double most, const char *what, kin_err *err) {
    if (isnan(value)) return kin_err_set(err, "%s is not a number", what);
    if (value < 0 && least >= 0) return kin_err_set(err, "%s is negative (%g)", what, value);
    if (value < least) return kin_err_set(err, "%s is too small (%g)", what, value);
    if (value > most) return kin_err_set(err, "%s is too large (%g; must be at most %g)", what, value, most);
    return 0;
}

static const double TINY = 1e-3; // least rate, bytes or FLOP per second: less counts as none, so that sums of times stay finite

// Checks a rate that may be absent: 0.
static int check_optional_rate(double value, double most, const char *what, kin_err *err) {
    return value == 0 ? 0 : check_number(value, TINY, most, what, err);
}

static int check_types(const double values[KIN_N_QUANT], double most, const char *what, kin_err *err) {
    for (int q = 0; q < KIN_N_QUANT; q++) {
        if (check_optional_rate(values[q], most, what, err) != 0) return kin_err_prefix(err, "%s", quant_names[q]);
    }
    return 0;
}

// ---- the model and the work

static int check_sizes(const kin_model_facts *m, kin_err *err) {
    if (check_types(m->layer_bytes, MAX_MEMORY_BYTES, "bytes of a layer", err) != 0) return KIN_FAIL;
    if (check_types(m->expert_bytes, MAX_MEMORY_BYTES, "bytes of experts", err) != 0) return KIN_FAIL;
    if (check_types(m->output_bytes, MAX_MEMORY_BYTES, "bytes of the output", err) != 0) return KIN_FAIL;
    if (check_types(m->layer_flops, MAX_FLOP_S, "FLOP of a layer", err) != 0) return KIN_FAIL;
    if (check_types(m->output_flops, MAX_FLOP_S, "FLOP of the output", err) != 0) return KIN_FAIL;
    if (check_number(kin_facts_layer_bytes(m), 1, MAX_MEMORY_BYTES, "bytes of a layer", err) != 0) return KIN_FAIL;
    if (check_number(m->expert_share, 0, 1, "share of experts", err) != 0) return KIN_FAIL;
    for (int i = 0; i < KIN_FACTS_N_HITS; i++)
        if (check_number(m->expert_hits[i], 0, 1, "hits of experts", err) != 0) return KIN_FAIL;
    if (check_number(m->attn_bytes, 0, kin_facts_bytes_sum(m->layer_bytes), "bytes of attention", err) != 0) return KIN_FAIL;
    if (check_number(m->block_bytes, 1, MAX_MEMORY_BYTES, "largest block", err) != 0) return KIN_FAIL;
    if (check_number(m->weight_block_bytes, 1, m->block_bytes, "streamed weight block", err) != 0) return KIN_FAIL;
    if (check_number(m->input_bytes, 0, MAX_MEMORY_BYTES, "bytes of the embedding", err) != 0) return KIN_FAIL;
    if (check_number(m->hidden_bytes, 1, 1e9, "bytes of a hidden state", err) != 0) return KIN_FAIL;
    if (check_number(m->layer_ops, 0, 1e6, "operations of a layer", err) != 0) return KIN_FAIL;
    if (check_number(m->gpu_layer_ops, 0, 1e6, "operations of a layer on a GPU", err) != 0) return KIN_FAIL;
    if (check_number(m->output_ops, 0, 1e6, "operations of the output", err) != 0) return KIN_FAIL;
    if (check_number(m->layer_blocks, 0, 1e6, "blocks of a layer", err) != 0) return KIN_FAIL;
    if (check_number(m->output_blocks, 0, 1e6, "blocks of the output", err) != 0) return KIN_FAIL;
    if (check_number(m->kv_bytes, 0, 1e9, "KV bytes of a token", err) != 0) return KIN_FAIL;
    if (check_number(m->kv_held_bytes, 0, 1e9, "KV bytes that a layer holds", err) != 0) return KIN_FAIL;
    if (check_number(m->gpu_kv_bytes, 0, 1e9, "KV bytes that a layer holds on a GPU", err) != 0) return KIN_FAIL;
    if (check_number(m->share_heads, 0, 1e6, "pieces of attention", err) != 0) return KIN_FAIL;
    if (check_number(m->share_ff, 0, 1e6, "pieces of the feed-forward block", err) != 0) return KIN_FAIL;
    if (check_number(m->kv_reads, 0, 1e6, "heads on the same keys", err) != 0) return KIN_FAIL;
    if (check_number(m->cpu_buffer_bytes, 0, MAX_MEMORY_BYTES, "CPU buffers", err) != 0) return KIN_FAIL;
    return check_number(m->gpu_buffer_bytes, 0, MAX_MEMORY_BYTES, "GPU buffers", err);
}

static int check_list(const double *shares, int n_layer, double least, const char *of_one, const char *of_all, kin_err *err) {
    double sum = 0;
    for (int il = 0; il < n_layer; il++) {
        if (check_number(shares[il], least, KIN_FACTS_MAX_LAYERS, of_one, err) != 0) return KIN_FAIL;
        sum += shares[il];
    }
    return fabs(sum - n_layer) > 1e-6 * n_layer ? kin_err_set(err, "%s: their mean must be 1", of_all) : 0;
}

static int check_shares(const kin_model_facts *m, kin_err *err) {
    if (check_list(m->layer_share, m->n_layer, 1e-9, "share of a layer", "shares of layers", err) != 0) return KIN_FAIL;
    return check_list(m->kv_share, m->n_layer, 0, "share of a layer's KV cache", "shares of layers' KV caches", err);
}

int kin_facts_check(const kin_facts *facts, kin_err *err) {
    const kin_model_facts *m = &facts->model;
    const kin_work_facts *w = &facts->work;
    if (facts->n_device < 1 || facts->n_device > KIN_FACTS_MAX_DEVICES)
        return kin_err_set(err, "%d devices; must be 1 to %d", facts->n_device, KIN_FACTS_MAX_DEVICES);
    if (m->n_layer < 1 || m->n_layer > KIN_FACTS_MAX_LAYERS)
        return kin_err_set(err, "model: %d layers; must be 1 to %d", m->n_layer, KIN_FACTS_MAX_LAYERS);
    if (check_sizes(m, err) != 0 || check_shares(m, err) != 0) return kin_err_prefix(err, "model");
    if (m->n_vocab < 1) return kin_err_set(err, "model: a vocabulary of %d tokens; must be at least 1", m->n_vocab);
    if (w->n_ctx < 1 || w->n_prompt < 1 || w->n_batch < 1 || w->n_cached < 0)
        return kin_err_set(err, "context %d, prompt %d, batch %d and cached %d: not a valid combination", w->n_ctx, w->n_prompt,
                           w->n_batch, w->n_cached);
    return 0;
}

// ---- devices

static bool cannot(double rate, double other) {
    return rate == KIN_RATE_CANNOT || (rate == 0 && other == KIN_RATE_CANNOT);
}

bool kin_facts_can_multiply(const kin_engine_facts *e, kin_quant q) {
    return !cannot(e->token_bytes_s[q], e->token_bytes_s[KIN_QUANT_OTHER]) &&
           !cannot(e->prompt_flop_s[q], e->prompt_flop_s[KIN_QUANT_OTHER]);
}

bool kin_facts_gpu_usable(const kin_device_facts *d, const kin_model_facts *m) {
    if (m->cpu_only) return false;
    for (int q = 0; q < KIN_N_QUANT && d->has_gpu; q++) {
        if ((m->layer_bytes[q] > 0 || m->expert_bytes[q] > 0) && !kin_facts_can_multiply(&d->gpu, (kin_quant)q)) return false;
    }
    return d->has_gpu;
}

static int check_rates(const double rates[KIN_N_QUANT], double most, const char *what, kin_err *err) {
    double known[KIN_N_QUANT];
    for (int q = 0; q < KIN_N_QUANT; q++) known[q] = rates[q] == KIN_RATE_CANNOT ? 0 : rates[q];
    return check_types(known, most, what, err);
}

static int check_engine(const kin_engine_facts *e, const kin_model_facts *m, bool is_head, kin_err *err) {
    if (check_rates(e->token_bytes_s, MAX_BYTES_S, "bytes per second", err) != 0) return KIN_FAIL;
    if (check_rates(e->prompt_flop_s, MAX_FLOP_S, "FLOP per second", err) != 0) return KIN_FAIL;
    for (int q = 0; q < KIN_N_QUANT; q++) {
        bool used = m->layer_bytes[q] > 0 || m->expert_bytes[q] > 0 || (is_head && m->output_bytes[q] > 0);
        if (used && !kin_facts_can_multiply(e, (kin_quant)q))
            return kin_err_set(err, "cannot multiply %s weights", quant_names[q]);
        if (!used || e->token_bytes_s[q] >= TINY || e->token_bytes_s[KIN_QUANT_OTHER] >= TINY) continue;
        return kin_err_set(err, "the rate for %s weights is missing", quant_names[q]);
    }
    for (int q = 0; q < KIN_N_QUANT; q++) {
        if (m->layer_flops[q] <= 0 || e->prompt_flop_s[q] >= TINY || e->prompt_flop_s[KIN_QUANT_OTHER] >= TINY) continue;
        return kin_err_set(err, "the FLOP rate for %s weights is missing", quant_names[q]);
    }
    if (check_number(e->read_bytes_s, TINY, MAX_BYTES_S, "memory's bytes per second", err) != 0) return KIN_FAIL;
    if (check_optional_rate(e->prompt_read_bytes_s, MAX_BYTES_S, "a prompt's bytes per second", err) != 0) return KIN_FAIL;
    if (check_optional_rate(e->kv_bytes_s, MAX_BYTES_S, "bytes of keys and values per second", err) != 0) return KIN_FAIL;
    if (e->kv_bytes_s > 0 && e->prompt_read_bytes_s == 0)
        return kin_err_set(err, "the rate of keys and values needs a rate for prompts");
    for (int i = 0; i < KIN_FACTS_BATCHES * KIN_N_QUANT; i++) {
        double factor = e->batch_factor[i / KIN_N_QUANT][i % KIN_N_QUANT];
        if (factor != 0 && check_number(factor, LEAST_FACTOR, MOST_FACTOR, "factor of a batch", err) != 0) return KIN_FAIL;
    }
    for (int i = 0; i < KIN_FACTS_CACHED * KIN_N_QUANT; i++) {
        double factor = e->cached_factor[i / KIN_N_QUANT][i % KIN_N_QUANT];
        if (factor != 0 && check_number(factor, LEAST_FACTOR, MOST_FACTOR, "factor of a cache", err) != 0) return KIN_FAIL;
    }
    if (check_number(e->op_s, 0, MAX_SECONDS, "time of an operation", err) != 0) return KIN_FAIL;
    return check_number(e->kv_copy_s, 0, MAX_SECONDS, "KV copy time", err);
}

static int check_gpu(const kin_device_facts *d, const kin_model_facts *m, kin_err *err) {
    if (check_engine(&d->gpu, m, false, err) != 0) return kin_err_prefix(err, "GPU");
    if (check_number(d->gpu_memory_bytes, 0, MAX_MEMORY_BYTES, "GPU memory", err) != 0) return KIN_FAIL;
    if (d->uma) return 0;
    if (check_number(d->to_gpu_s, 0, MAX_SECONDS, "time to copy to the GPU", err) != 0) return KIN_FAIL;
    if (check_number(d->from_gpu_s, 0, MAX_SECONDS, "time to copy from the GPU", err) != 0) return KIN_FAIL;
    return check_number(d->gpu_copy_bytes_s, TINY, MAX_BYTES_S, "rate of copies to the GPU", err);
}

int kin_facts_check_device(const kin_device_facts *d, const kin_model_facts *m, bool is_head, kin_err *err) {
    if (check_number(d->memory_bytes, 1, MAX_MEMORY_BYTES, "memory", err) != 0) return KIN_FAIL;
    if (check_number(d->swap_bytes, 0, MAX_MEMORY_BYTES, "swap", err) != 0) return KIN_FAIL;
    if (check_optional_rate(d->disk_bytes_s, MAX_BYTES_S, "disk rate", err) != 0) return KIN_FAIL;
    if (check_optional_rate(d->disk_random_bytes_s, MAX_BYTES_S, "random disk rate", err) != 0) return KIN_FAIL;
    if (check_number(d->window_s, 0, MAX_SECONDS, "time to start a window", err) != 0) return KIN_FAIL;
    if (check_engine(&d->cpu, m, is_head, err) != 0) return kin_err_prefix(err, "CPU");
    return kin_facts_gpu_usable(d, m) ? check_gpu(d, m, err) : 0;
}

// ---- medians

#define TAKE_MEDIAN(figure)                                                                                                      \
    do {                                                                                                                         \
        for (int k = 0; k < n; k++) values[k] = sweeps[k].figure;                                                                \
        out->figure = kin_median(values, n);                                                                                     \
    } while (0)

void kin_engine_facts_median(kin_engine_facts *out, const kin_engine_facts *sweeps, int n) {
    double values[KIN_FACTS_MAX_SWEEPS];
    kin_assert(n > 0 && n <= KIN_FACTS_MAX_SWEEPS);
    for (int q = 0; q < KIN_N_QUANT; q++) {
        TAKE_MEDIAN(token_bytes_s[q]);
        TAKE_MEDIAN(prompt_flop_s[q]);
        for (int i = 0; i < KIN_FACTS_BATCHES; i++) TAKE_MEDIAN(batch_factor[i][q]);
        for (int i = 0; i < KIN_FACTS_CACHED; i++) TAKE_MEDIAN(cached_factor[i][q]);
    }
    TAKE_MEDIAN(read_bytes_s);
    TAKE_MEDIAN(prompt_read_bytes_s);
    TAKE_MEDIAN(kv_bytes_s);
    TAKE_MEDIAN(kv_copy_s);
    TAKE_MEDIAN(op_s);
}

bool kin_facts_link_usable(const kin_link_facts *link) {
    return link->rtt_s >= 0 && link->rtt_s <= MAX_SECONDS && link->bytes_s >= TINY && link->bytes_s <= MAX_BYTES_S;
}

// Returns the devices of `among` that the head can reach or, if backward, that can reach the head.
static kin_device_set spread(const kin_facts *facts, kin_device_set among, bool backward) {
    kin_device_set seen = kin_device_bit(0), before = 0;
    while (seen != before) {
        before = seen;
        for (int a = 0; a < facts->n_device; a++) {
            for (int b = 0; b < facts->n_device; b++) {
                const kin_link_facts *link = backward ? &facts->links[b][a] : &facts->links[a][b];
                if (a != b && (seen & among & kin_device_bit(a)) && (among & kin_device_bit(b)) && kin_facts_link_usable(link))
                    seen |= kin_device_bit(b);
            }
        }
    }
    return seen;
}

kin_device_set kin_facts_reachable(const kin_facts *facts, kin_device_set among) {
    return spread(facts, among, false) & spread(facts, among, true);
}

static void set_reason(char reasons[][KIN_FACTS_MAX_REASON], int device, const char *sentence) {
    if (reasons) snprintf(reasons[device], KIN_FACTS_MAX_REASON, "%s", sentence);
}

int kin_facts_screen(const kin_facts *facts, kin_device_set *usable, char reasons[][KIN_FACTS_MAX_REASON], kin_err *err) {
    kin_device_set possible = 0;
    if (kin_facts_check(facts, err) != 0) return KIN_FAIL;
    for (int i = 0; i < facts->n_device; i++) {
        kin_err why = {""};
        set_reason(reasons, i, "");
        if (kin_facts_check_device(&facts->devices[i], &facts->model, i == 0, &why) == 0)
            possible |= kin_device_bit(i);
        else if (i == 0)
            return kin_err_set(err, "the head's facts: %.300s", why.text);
        else
            set_reason(reasons, i, why.text);
    }
    *usable = kin_facts_reachable(facts, possible);
    for (int i = 0; i < facts->n_device; i++) {
        if (possible & ~*usable & kin_device_bit(i)) set_reason(reasons, i, "it has no usable link to the head");
    }
    return 0;
}

// ---- without a metric

static void ignore_speed(kin_engine_facts *e) {
    for (int q = 0; q < KIN_N_QUANT; q++) {
        if (e->token_bytes_s[q] > 0) e->token_bytes_s[q] = MAX_BYTES_S;
        if (e->prompt_flop_s[q] > 0) e->prompt_flop_s[q] = MAX_BYTES_S;
    }
    e->read_bytes_s = MAX_BYTES_S;
    e->op_s = 0;
}

int kin_facts_ignore(kin_facts *facts, const char *metric, kin_err *err) {
    bool speed = strcmp(metric, "speed") == 0, latency = strcmp(metric, "latency") == 0;
    if (!speed && !latency && strcmp(metric, "bandwidth") != 0)
        return kin_err_set(err, "'%.32s' is no metric; these are: speed, latency, bandwidth", metric);
    for (int i = 0; i < facts->n_device; i++) {
        if (speed) ignore_speed(&facts->devices[i].cpu), ignore_speed(&facts->devices[i].gpu);
        for (int to = 0; to < facts->n_device; to++) {
            kin_link_facts *link = &facts->links[i][to];
            if (latency) link->rtt_s = 0;
            if (!speed && !latency && link->bytes_s > 0) link->bytes_s = MAX_BYTES_S;
        }
    }
    return 0;
}
