#include "engine/weights/experts.h"

#include <stdlib.h>

#include "base/log.h"
#include "engine/expert_history.h"
#include "engine/weights/mapping.h"
#include "pure/plan/expert_cache.h"
#include "sys/pages.h"

static bool has_cpu_experts(const kin_weights_block *b) {
    return b->experts && !b->device->is_gpu;
}

bool kin_weights_caches_experts(const kin_weights *w) {
    if (!w->devices->cpu.kernels || w->o.mode != KIN_STREAM_RESIDENT || w->o.sliding.n_blocks > 0) return false;
    for (size_t i = 0; i < w->n_blocks; i++)
        if (has_cpu_experts(&w->blocks[i])) return true;
    return false;
}

// ---- the budget

// Experts that are not packed are read from any offset of the file, widened to whole blocks of the disk. Each takes whole pages.
static uint64_t bytes_of(const kin_weights_block *b, uint64_t n_expert) {
    if (!b->experts) return b->pack ? b->packed_bytes : b->bytes;
    const uint64_t expert =
        b->pack ? b->packed_bytes / n_expert : b->bytes / n_expert + (uint64_t)b->n_pieces * 2 * KIN_STREAM_ALIGN;
    return n_expert * kin_weights_align_up(expert, kin_page_bytes());
}

uint64_t kin_weights_experts_budget(const kin_weights *w, uint64_t budget) {
    const uint64_t n_expert = (uint64_t)w->model->hp.n_expert, n_used = (uint64_t)w->model->hp.n_expert_used;
    uint64_t others = 0, experts = 0, layer = 0;
    if (!kin_weights_caches_experts(w) || (budget >= kin_weights_cpu_bytes(w->model, &w->o) && !w->experts)) return 0;
    for (size_t i = 0; i < w->n_blocks; i++) {
        const kin_weights_block *b = &w->blocks[i];
        const uint64_t bytes = bytes_of(b, n_expert);
        if (has_cpu_experts(b))
            experts += bytes, layer = bytes > layer ? bytes : layer;
        else if (b->i_compute_block != KIN_WEIGHTS_NO_COMPUTE_BLOCK && !b->device->is_gpu)
            others += bytes;
    }
    const uint64_t part = kin_expert_cache_divide(budget, others, w->ring_bytes, layer, layer / n_expert * n_used);
    return part < experts ? part : experts;
}

// ---- places

// A weight's part in the products of an expert.
static void set_matrix(const kin_weights *w, kin_expert_layer *l, int il, const kin_weights_piece *p, int i_part, uint64_t at) {
    struct ggml_tensor **slots = w->layers[il];
    const bool both = p->slot == &slots[KIN_W_FFN_GATE_UP_EXPS];
    if (both || p->slot == &slots[KIN_W_FFN_GATE_EXPS])
        l->matrices[KIN_EXPERT_GATE].i_part = i_part, l->matrices[KIN_EXPERT_GATE].at = at;
    if (both || p->slot == &slots[KIN_W_FFN_UP_EXPS])
        l->matrices[KIN_EXPERT_UP].i_part = i_part, l->matrices[KIN_EXPERT_UP].at = at;
    if (p->slot == &slots[KIN_W_FFN_DOWN_EXPS])
        l->matrices[KIN_EXPERT_DOWN].i_part = i_part, l->matrices[KIN_EXPERT_DOWN].at = at;
}

static kin_expert_layer describe_layer(const kin_weights *w, int il, const kin_weights_block *b) {
    kin_expert_layer l = {0};
    const uint64_t n_expert = (uint64_t)w->model->hp.n_expert;
    if (!kin_weights_on_disk(w, b)) return l;
    if (b->pack) {
        l.n_parts = 1;
        l.parts[0] = (kin_expert_part){kin_gguf_n_files(w->model->gguf), kin_packed_offset(w->packed, b->i_packed),
                                       b->expert_stride, b->expert_stride};
    }
    for (int i = 0; i < b->n_pieces; i++) {
        const kin_weights_piece *p = &b->pieces[i];
        const uint64_t bytes = p->bytes / n_expert;
        if (!b->pack) l.parts[l.n_parts++] = (kin_expert_part){p->i_file, p->file_offset, bytes, bytes};
        set_matrix(w, &l, il, p, b->pack ? 0 : i, b->pack ? p->offset : 0);
    }
    return l;
}

// The pages of the experts' mapping are not used any more.
static kin_expert_layer *describe_layers(const kin_weights *w) {
    const int n_layer = w->model->hp.n_layer;
    kin_expert_layer *layers = calloc((size_t)n_layer, sizeof *layers);
    for (size_t i = 0; i < w->n_blocks && layers; i++) {
        const kin_weights_block *b = &w->blocks[i];
        if (!has_cpu_experts(b)) continue;
        const int il = (int)(b->i_packed / KIN_WEIGHT_BLOCK_COUNT);
        layers[il] = describe_layer(w, il, b);
        if (layers[il].n_parts > 0) kin_weights_drop_pages(w, b);
    }
    return layers;
}

static int open_experts(kin_weights *w, uint64_t budget, kin_err *err) {
    kin_expert_layer *layers = describe_layers(w);
    if (!layers) return kin_err_set(err, "out of memory");
    const int n_layer = w->model->hp.n_layer;
    int rc = 0;
    if (kin_experts_largest(layers, n_layer) > 0)
        rc = kin_experts_open(&w->experts, w->stream, layers, n_layer, w->model->hp.n_expert, w->model->hp.n_expert_used, budget,
                              err);
    free(layers);
    return rc;
}

// ---- counts of earlier runs

static const kin_time SAVE_NS = UINT64_C(600) * 1000000000; // a process that runs for long saves its counts this often

static void load_history(kin_weights *w) {
    kin_err err;
    w->history_saved = kin_clock_now();
    if (!w->packed) return;
    int rc = kin_expert_history_load(w->experts, w->packed, w->model->hp.n_layer, w->model->hp.n_expert, &err);
    if (rc == KIN_FAIL) kin_log(KIN_LOG_INFO, "experts are counted anew: %s", err.text);
    if (rc == 0) kin_experts_start_filling(w->experts);
}

static void save_history(kin_weights *w) {
    kin_err err;
    const kin_experts_stats stats = kin_experts_get_stats(w->experts);
    w->history_saved = kin_clock_now();
    if (!w->packed || stats.n_hits + stats.n_misses == 0) return;
    if (kin_expert_history_save(w->experts, w->packed, w->model->hp.n_layer, w->model->hp.n_expert, &err) != 0)
        kin_log(KIN_LOG_DEBUG, "the counts of experts are not kept: %s", err.text);
}

void kin_weights_begin_experts(kin_weights *w) {
    kin_err err;
    if (w->experts && kin_clock_now() - w->history_saved > SAVE_NS) save_history(w);
    if (w->experts || w->experts_failed || !w->stream || !atomic_load(&w->short_of_experts) || !kin_weights_caches_experts(w))
        return;
    pthread_mutex_lock(&w->mutex); // the governor's thread sets budgets
    int rc = open_experts(w, kin_weights_experts_budget(w, w->budget), &err);
    if (rc == 0 && w->experts) w->source = *kin_experts_source(w->experts);
    pthread_mutex_unlock(&w->mutex);
    w->experts_failed = !w->experts;
    if (rc != 0) kin_log(KIN_LOG_WARN, "the system decides which experts stay in memory: %s", err.text);
    if (w->experts) load_history(w);
}

void kin_weights_end_experts(kin_weights *w) {
    if (!w->experts) return;
    kin_experts_stop_filling(w->experts);
    save_history(w);
}
