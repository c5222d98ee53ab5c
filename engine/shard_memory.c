#include "engine/shard_memory.h"

#include <stdio.h>

#include "engine/border_log.h"
#include "engine/row_cache.h"
#include "engine/shared_choice.h"
#include "engine/side_rows.h"
#include "model/border.h"

// The program itself, its libraries and small allocations. bench/pressure.sh: an unlimited run has 12.7 MiB that the OS cannot
// reclaim, including some KV cache (Linux, no GPU).
#define OVERHEAD_BYTES (16u << 20)

// Returns what an indexer takes: keys, queries, weights and chosen positions for each token, and the scores of a few rows.
static uint64_t indexer_bytes(const kin_hparams *hp, const kin_shard_options *o) {
    enum { SCORED_ROWS = 4 };
    const kin_indexer *x = &hp->indexer;
    const bool of_rows = hp->compressed.window > 0; // made of a token's values and gates, twice
    const int n_candidates = of_rows ? o->n_ctx / KIN_COMPRESSED_OVERLAPS : o->n_ctx;
    const int n_scores = x->pools ? n_candidates / x->n_block + 1 : n_candidates;
    const uint64_t n_batch = (uint64_t)o->n_batch, key = (of_rows ? 4 : x->n_pool > 0 ? 2 : 1) * 4 * (uint64_t)x->key_dim;
    const uint64_t shared = kin_shared_choice_bytes(hp, o->n_batch), fixed = key * n_batch + shared;
    if (x->n_chosen == 0 || n_candidates <= x->n_chosen) return fixed;
    const uint64_t n_numbers = x->pools         ? (uint64_t)(x->n_chosen / x->n_block)
                               : x->n_block > 0 ? (uint64_t)x->n_head * (uint64_t)x->n_chosen / KIN_KV_CELLS
                                                : (uint64_t)x->n_chosen;
    const uint64_t per_token = 4 * (uint64_t)x->n_head * (uint64_t)(x->key_dim + 1) + 4 * n_numbers;
    return fixed + per_token * n_batch + shared + SCORED_ROWS * 4 * (uint64_t)n_scores; // shared: of the rows that are wanted
}

// Estimates ggml's compute buffer and work memory for the largest batch of a prompt.
static uint64_t compute_estimate(const kin_model *model, const kin_shard_options *o, bool has_masks) {
    kin_hparams own = kin_share_hparams(&o->share, model);
    const kin_hparams *hp = &own;
    uint64_t experts = (uint64_t)hp->n_ff_exp * (uint64_t)hp->n_expert_used, dense = (uint64_t)hp->n_ff;
    const kin_delta_net *d = &hp->delta;
    uint64_t widest = dense > experts ? dense : experts, latents = 0;
    uint64_t states = d->n_value_heads > 0 ? (uint64_t)kin_delta_n_values(d) + (uint64_t)kin_delta_n_channels(d) : 0;
    if (states > widest) widest = states;
    // Activations in float32; the same quantized, for the products; two 16-bit masks.
    uint64_t per_token = 4 * (5 * widest + 4 * (uint64_t)hp->n_embd + 4 * (uint64_t)kin_hparams_stream_width(hp)) + 2 * widest;
    // Queries, the same multiplied with the heads' matrices, attention's result by rows and by heads.
    if (hp->latent.n_latent > 0)
        latents = 3 * (uint64_t)hp->latent.n_latent + 2 * (uint64_t)(hp->latent.k_dim + hp->latent.n_rot);
    per_token += 4 * (uint64_t)hp->n_head * latents;
    per_token += 4 * (uint64_t)hp->n_input * (uint64_t)hp->n_layer; // this and the embedding of the last tokens: in the graph
    per_token +=
        2 * kin_side_rows_bytes(hp, 1) + 4 * (uint64_t)(kin_border_most(hp) - kin_hparams_stream_width(hp)); // and the head's
    per_token += 4 * (uint64_t)kin_ngram_width(&hp->ngram);
    if (has_masks) per_token += (hp->window > 0 ? 8 : 4) * (uint64_t)o->n_ctx;
    if (!o->flash) per_token += 8 * (uint64_t)hp->n_head * (uint64_t)o->n_ctx; // scores, before and after the softmax
    return per_token * (uint64_t)o->n_batch + indexer_bytes(hp, o);
}

// Without ggml's kernels there are no masks: kin's kernels use positions instead.
uint64_t kin_shard_buffer_bytes(const kin_model *model, const kin_shard_options *o, bool on_gpu) {
    kin_shard_options own = *o;
    if (own.n_batch > own.n_ctx) own.n_batch = own.n_ctx;
    return compute_estimate(model, &own, on_gpu || !kin_shard_has_kernels(model, o));
}

uint64_t kin_shard_overhead_bytes(void) {
    return OVERHEAD_BYTES;
}

uint64_t kin_shard_kv_bytes(const kin_model *model, const kin_shard_options *o, int layer_begin, int layer_end, bool on_gpu) {
    kin_kv_options kv = kin_shard_kv_options(model, o);
    kv.windows = kin_windows_one(layer_begin, layer_end, on_gpu ? layer_end - layer_begin : 0);
    return kin_kv_bytes(&model->hp, &kv);
}

uint64_t kin_shard_cpu_kv_bytes(const kin_model *model, const kin_shard_options *o) {
    kin_kv_options kv = kin_shard_kv_options(model, o);
    for (int i = 0; i < kv.windows.n; i++) {
        kv.windows.at[i].layer_end -= kv.windows.at[i].n_gpu_layers;
        kv.windows.at[i].n_gpu_layers = 0;
    }
    kin_hparams hp = kin_share_hparams(&o->share, model);
    return kin_kv_bytes(&hp, &kv);
}

uint64_t kin_shard_border_bytes(const kin_model *model, const kin_shard_options *o) {
    int n_batch = o->n_batch < o->n_ctx ? o->n_batch : o->n_ctx;
    return o->kv_disk.dir && kin_shard_has_borders(model, o)
               ? kin_border_log_most_bytes(kin_hparams_stream_width(&model->hp), n_batch)
               : 0;
}

uint64_t kin_shard_fixed_bytes(const kin_model *model, const kin_shard_options *o) {
    uint64_t borders = kin_shard_is_whole(model, o) ? 0 : kin_shard_border_bytes(model, o);
    uint64_t inputs = o->output && model->input_proj ? model->input_proj->n_bytes : 0; // the head reads it for each step
    if (o->output || o->stream_ends) inputs += kin_model_stream_end_bytes(model);
    if (o->output && model->hp.ngram.size > 0) inputs += kin_row_cache_bytes(model->hp.ngram.dim);
    return kin_shard_cpu_kv_bytes(model, o) + kin_shard_buffer_bytes(model, o, false) + OVERHEAD_BYTES + borders + inputs;
}

uint64_t kin_shard_memory_sum(const kin_shard_memory *m) {
    return m->weights + m->kv + m->buffers + m->program;
}

void kin_shard_memory_format(const kin_shard_memory *m, char *text, size_t n) {
    const double mib = 1 << 20;
    snprintf(text, n, "%.1f MiB by the formula (weights %.1f, KV cache %.1f, buffers %.1f, the program %.1f), %.1f MiB taken",
             (double)kin_shard_memory_sum(m) / mib, (double)m->weights / mib, (double)m->kv / mib, (double)m->buffers / mib,
             (double)m->program / mib, (double)m->occupied / mib);
}
