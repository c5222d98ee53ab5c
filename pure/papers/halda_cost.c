#include "pure/papers/halda_cost.h"

#include <math.h>
#include <stddef.h>

static double rate_of(const double rates[KIN_N_QUANT], int q) {
    return rates[q] > 0 ? rates[q] : rates[KIN_QUANT_OTHER];
}

// Returns the sum over types of FLOP / FLOPS.
static double compute_s(const double flops[KIN_N_QUANT], const kin_engine_facts *e) {
    double sum = 0;
    for (int q = 0; q < KIN_N_QUANT; q++) sum += flops[q] > 0 ? flops[q] / rate_of(e->prompt_flop_s, q) : 0;
    return sum;
}

// Returns T: the bytes per second at which the engine reads these weights.
static double read_rate(const double bytes[KIN_N_QUANT], const double more[KIN_N_QUANT], const kin_engine_facts *e) {
    double sum = 0, sum_s = 0;
    for (int q = 0; q < KIN_N_QUANT; q++) {
        double n = bytes[q] + (more ? more[q] : 0);
        sum += n;
        sum_s += n > 0 ? n / rate_of(e->token_bytes_s, q) : 0;
    }
    return sum / sum_s;
}

static double layer_s(const kin_halda_model *h, const kin_model_facts *m, const kin_engine_facts *e, kin_halda_terms_kind kind) {
    double read_s = kind == KIN_HALDA_PUBLISHED ? h->layer_kv_bytes / read_rate(m->layer_bytes, m->expert_bytes, e) : 0;
    return compute_s(m->layer_flops, e) + e->kv_copy_s + read_s;
}

static bool reads_at_random(kin_os os, kin_halda_terms_kind kind) {
    return kind == KIN_HALDA_PUBLISHED ? os == KIN_OS_MACOS : os != KIN_OS_LINUX;
}

static void init_device(kin_halda_model *h, const kin_facts *facts, kin_halda_device *out, kin_halda_terms_kind kind) {
    const kin_device_facts *d = &facts->devices[out->device];
    const kin_model_facts *m = &facts->model;
    out->os = d->os;
    out->has_gpu = kin_facts_gpu_usable(d, m);
    out->is_head = out->device == 0;
    out->is_metal = d->os == KIN_OS_MACOS && out->has_gpu;
    out->alpha_s = layer_s(h, m, &d->cpu, kind);
    if (out->has_gpu) out->beta_s = layer_s(h, m, &d->gpu, kind) - out->alpha_s;
    if (out->has_gpu && !d->uma && kind == KIN_HALDA_PUBLISHED) out->xi_s += d->to_gpu_s + d->from_gpu_s;
    out->avail_bytes = out->is_metal ? d->gpu_memory_bytes : d->memory_bytes + (d->os == KIN_OS_ANDROID ? d->swap_bytes : 0);
    out->disk_bytes_s = reads_at_random(d->os, kind) ? d->disk_random_bytes_s : d->disk_bytes_s;
    out->fixed_bytes = (out->is_head ? h->row_bytes + h->output_bytes : 0) + m->cpu_buffer_bytes;
    if (out->is_metal) out->fixed_bytes += m->gpu_buffer_bytes;
    if (out->has_gpu)
        out->gpu_avail_bytes = d->gpu_memory_bytes - m->gpu_buffer_bytes - (out->is_metal && out->is_head ? h->output_bytes : 0);
}

void kin_halda_model_init(kin_halda_model *h, const kin_facts *facts, const int *members, const double *hop_s, int n_members,
                          kin_halda_terms_kind kind) {
    const kin_model_facts *m = &facts->model;
    const kin_device_facts *head = &facts->devices[members[0]];
    *h = (kin_halda_model){.n_device = n_members, .n_layer = m->n_layer, .layer_bytes = kin_facts_layer_bytes(m)};
    const int n_kv = kind == KIN_HALDA_PUBLISHED ? facts->work.n_cached : facts->work.n_ctx;
    h->layer_kv_bytes = h->layer_bytes + kin_facts_kv_held(m, n_kv);
    h->output_bytes = kin_facts_bytes_sum(m->output_bytes);
    h->row_bytes = m->input_bytes / m->n_vocab;
    for (int i = 0; i < n_members; i++) {
        h->devices[i] = (kin_halda_device){.device = members[i], .xi_s = kind == KIN_HALDA_PUBLISHED ? hop_s[i] : 0};
        init_device(h, facts, &h->devices[i], kind);
    }
    h->kappa_s = compute_s(m->output_flops, &head->cpu);
    if (kind == KIN_HALDA_PUBLISHED)
        h->kappa_s += (h->row_bytes + h->output_bytes) / read_rate(m->output_bytes, NULL, &head->cpu);
    if (h->devices[0].disk_bytes_s > 0) h->kappa_s += h->row_bytes / h->devices[0].disk_bytes_s;
}

// Returns the bytes that the OS must hold for l layers, g of them on the GPU (Cases 1 to 3). It does not hold a GPU's own memory.
static double needed_bytes(const kin_halda_model *h, int i, int l, int g) {
    const kin_halda_device *d = &h->devices[i];
    int held = d->is_metal || d->os == KIN_OS_MACOS ? l : l - g;
    return held * h->layer_kv_bytes + d->fixed_bytes;
}

kin_halda_set kin_halda_set_of(const kin_halda_model *h, int i, int w, int n, int k, bool slow) {
    const kin_halda_device *d = &h->devices[i];
    if (slow || needed_bytes(h, i, k * w, k * n) <= d->avail_bytes) return KIN_HALDA_M4;
    if (d->os != KIN_OS_MACOS) return KIN_HALDA_M3;
    return d->is_metal ? KIN_HALDA_M2 : KIN_HALDA_M1;
}

kin_halda_terms kin_halda_terms_of(const kin_halda_model *h, int i, kin_halda_set set) {
    const kin_halda_device *d = &h->devices[i];
    kin_halda_terms t = {.a_s = d->alpha_s, .b_s = d->beta_s, .c_s = d->xi_s};
    if (set == KIN_HALDA_M4) return t;
    double load_s = h->layer_kv_bytes / d->disk_bytes_s;
    if (set == KIN_HALDA_M2) {
        t.a_s += h->layer_bytes / d->disk_bytes_s;
        t.constant_s = d->is_head ? h->output_bytes / d->disk_bytes_s : 0;
        return t;
    }
    t.a_s += load_s;
    t.b_s = set == KIN_HALDA_M1 || !d->has_gpu ? 0 : t.b_s - load_s;
    t.constant_s = (d->fixed_bytes - (d->is_head ? h->row_bytes : 0) - d->avail_bytes) / d->disk_bytes_s; // kappa has the row
    return t;
}

double kin_halda_memory_share(const kin_halda_model *h, int i) {
    return (h->devices[i].avail_bytes - h->devices[i].fixed_bytes) / (h->n_layer * h->layer_kv_bytes);
}

double kin_halda_gpu_share(const kin_halda_model *h, int i) {
    return fmax(0, h->devices[i].gpu_avail_bytes) / (h->n_layer * h->layer_kv_bytes);
}

// Eq. (15) to (18). kappa includes the row of the embedding.
static double disk_s(const kin_halda_model *h, int i, int l, int g) {
    const kin_halda_device *d = &h->devices[i];
    double over = needed_bytes(h, i, l, g) - d->avail_bytes;
    if (over <= 0) return 0;
    if (d->is_metal) return (l * h->layer_bytes + (d->is_head ? h->output_bytes : 0)) / d->disk_bytes_s;
    return fmax(0, over - (d->is_head ? h->row_bytes : 0)) / d->disk_bytes_s;
}

double kin_halda_objective_s(const kin_halda_model *h, const int *w, const int *n, int k) {
    double sum = h->kappa_s;
    for (int i = 0; i < h->n_device; i++) {
        const kin_halda_device *d = &h->devices[i];
        sum += k * (d->alpha_s * w[i] + d->beta_s * n[i] + d->xi_s) + disk_s(h, i, k * w[i], k * n[i]);
    }
    return sum;
}
