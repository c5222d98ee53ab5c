#include "model/blocks.h"

#include <math.h>

#include "model/kernel/ops.h"
#include "model/streams.h"
#include "pure/plan/expert_guess.h"

struct ggml_tensor *kin_block_output(kin_graph *g, struct ggml_tensor *matrix, struct ggml_tensor *x) {
    return g->kernels ? kin_op_linear(g, x, &matrix, NULL, 1, NULL) : ggml_mul_mat(g->ctx, matrix, x);
}

static struct ggml_tensor *norm_with(kin_graph *g, float eps, struct ggml_tensor *x, struct ggml_tensor *weight,
                                     struct ggml_tensor *bias) {
    if (g->kernels) return kin_op_norm(g, eps, x, weight, bias);
    struct ggml_tensor *y = g->hp->centers_norms ? ggml_norm(g->ctx, x, eps) : ggml_rms_norm(g->ctx, x, eps);
    y = ggml_mul(g->ctx, y, weight);
    return bias ? ggml_add(g->ctx, y, bias) : y;
}

struct ggml_tensor *kin_block_norm(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *weight, struct ggml_tensor *bias) {
    return norm_with(g, g->hp->rms_eps, x, weight, bias);
}

// Products with unquantized weights are summed in f32: such weights are meant to be exact, but some GPUs would sum in half
// precision.
static struct ggml_tensor *linear(kin_graph *g, struct ggml_tensor *weight, struct ggml_tensor *bias, struct ggml_tensor *x) {
    if (g->kernels) return kin_op_linear(g, x, &weight, bias ? &bias : NULL, 1, NULL);
    struct ggml_tensor *y = ggml_mul_mat(g->ctx, weight, x); // [n_out, n]
    if (!ggml_is_quantized(weight->type)) ggml_prec_set_acc(y, GGML_PREC_F32);
    return bias ? ggml_add(g->ctx, y, bias) : y;
}

// The same plus a residual [n_out, n], if there is one.
static struct ggml_tensor *linear_onto(kin_graph *g, struct ggml_tensor *weight, struct ggml_tensor *bias, struct ggml_tensor *x,
                                       struct ggml_tensor *residual) {
    if (g->kernels) return kin_op_linear(g, x, &weight, bias ? &bias : NULL, 1, residual);
    struct ggml_tensor *y = linear(g, weight, bias, x);
    return residual ? ggml_add(g->ctx, y, residual) : y;
}

// residual + residual_scale * norm(y), with the norm if the layer has one. Without a residual, in a model with several streams,
// there is no scale either. [n_embd, n]
static struct ggml_tensor *add_onto(kin_graph *g, struct ggml_tensor *y, struct ggml_tensor *norm, struct ggml_tensor *residual) {
    const float scale = g->hp->residual_scale;
    if (norm) y = norm_with(g, g->hp->out_norm_eps != 0 ? g->hp->out_norm_eps : g->hp->rms_eps, y, norm, NULL);
    if (!residual) return y;
    if (g->kernels) return kin_op_add(g, y, scale, residual);
    return ggml_add(g->ctx, scale == 1 ? y : ggml_scale(g->ctx, y, scale), residual);
}

static bool adds_as_is(const kin_graph *g, const struct ggml_tensor *norm) {
    return !norm && g->hp->residual_scale == 1;
}

// Ends a block of a group whose devices have parts y of its result: they add these up, and each then does the same. [n_embd, n]
static struct ggml_tensor *add_parts_onto(kin_graph *g, struct ggml_tensor *y, struct ggml_tensor *norm,
                                          struct ggml_tensor *residual) {
    if (adds_as_is(g, norm)) return kin_op_sum(g, y, residual);
    return add_onto(g, kin_op_sum(g, y, NULL), norm, residual);
}

// Ends a block: residual + residual_scale * norm(weight h + bias). [n_embd, n]
static struct ggml_tensor *end_block(kin_graph *g, struct ggml_tensor *weight, struct ggml_tensor *bias, struct ggml_tensor *norm,
                                     struct ggml_tensor *h, struct ggml_tensor *residual) {
    if (g->sums) return add_parts_onto(g, linear(g, weight, bias, h), norm, residual);
    if (adds_as_is(g, norm)) return linear_onto(g, weight, bias, h, residual);
    return add_onto(g, linear(g, weight, bias, h), norm, residual);
}

const char *kin_blocks_without_ggml(const kin_hparams *hp, int n_ctx) {
    if (hp->indexer.n_block > 0 && n_ctx > hp->indexer.n_chosen) return "attention to chosen blocks of tokens";
    if (kin_hparams_has_states(hp)) return "the states of recurrent layers";
    for (int il = 0; il < hp->n_layer; il++)
        if (kin_layer_of(hp, il).gates_queries) return "gates of queries";
    if (hp->latent.n_latent > 0) return "latent attention";
    if (hp->query_temperature != 0) return "query scaling by position";
    if (hp->routing.n_group > 1) return "grouped expert routing";
    if (hp->n_streams > 1) return "several residual streams";
    if (hp->routing.gating == KIN_GATING_SOFTPLUS) return "experts chosen by the root of a softplus";
    return NULL;
}

// ---- attention

// Normalises y [n_head * head_dim, n] over all heads, or each head, if the layer says so, and rotates the heads by their tokens'
// positions: [head_dim, n_head, n]
static struct ggml_tensor *heads(kin_graph *g, int il, struct ggml_tensor *y, int n_head, struct ggml_tensor *norm_all,
                                 struct ggml_tensor *norm, const kin_graph_rows *rows) {
    const kin_hparams *hp = g->hp;
    const kin_layer layer = kin_layer_of(hp, il);
    if (norm_all) y = kin_block_norm(g, y, norm_all, NULL);
    y = ggml_reshape_3d(g->ctx, y, layer.head_dim, n_head, rows->n); // [head_dim, n_head, n]
    if (norm) y = kin_block_norm(g, y, norm, NULL);
    if (layer.rope == KIN_ROPE_NONE) return y;
    const kin_rope *r = &hp->ropes[layer.rope];
    const int type = hp->rope_neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL;
    struct ggml_tensor *yarn = g->yarn_factors[layer.rope];
    if (yarn)
        return ggml_rope_ext(g->ctx, y, rows->pos, yarn, r->n_rot, type, r->n_ctx_orig, (float)r->base, 1, 0,
                             (float)kin_rope_length(r), 0, 0);
    return ggml_rope_ext(g->ctx, y, rows->pos, hp->ignores_factors[layer.rope] ? NULL : g->rope_factors, r->n_rot, type,
                         r->n_ctx_orig, (float)r->base, (float)r->freq_scale, (float)r->ext_factor, (float)r->attn_factor,
                         (float)r->beta_fast, (float)r->beta_slow);
}

// Writes the tokens' rows [n_embd_k or n_embd_v, n] into their cells of the cache, before any other node reads it.
static void store(kin_graph *g, struct ggml_tensor *cache, struct ggml_tensor *rows) {
    ggml_build_forward_expand(g->gf, ggml_set_rows(g->ctx, cache, rows, g->cells));
}

// Returns the first n_kv cells of a cache, by head of `dim` values: [dim, n_kv, n_head_kv].
static struct ggml_tensor *cached_heads(kin_graph *g, int dim, struct ggml_tensor *cache) {
    return ggml_view_3d(g->ctx, cache, dim, g->n_kv, cache->ne[0] / dim, cache->nb[1], ggml_row_size(cache->type, dim), 0);
}

// c tanh(x / c)
static struct ggml_tensor *cap(kin_graph *g, struct ggml_tensor *x, float scale, float c) {
    return ggml_scale(g->ctx, ggml_tanh(g->ctx, ggml_scale(g->ctx, x, scale / c)), c);
}

// softmax(cap(scale q k^T) + mask) v, with the heads' sinks. q: [head_dim, n_head, n] -> [n_head * v_dim, n]
static struct ggml_tensor *attend(kin_graph *g, int il, struct ggml_tensor *q, const kin_graph_rows *rows) {
    const kin_graph_layer *layer = &g->layers[il];
    const kin_layer how = kin_layer_of(g->hp, il);
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *mask = how.is_windowed ? rows->window_mask : rows->mask, *sinks = layer->w[KIN_W_ATTN_SINKS], *out;

    q = ggml_permute(ctx, q, 0, 2, 1, 3);                            // [head_dim, n, n_head]
    struct ggml_tensor *k = cached_heads(g, how.head_dim, layer->k); // [head_dim, n_kv, n_head_kv]
    struct ggml_tensor *v = cached_heads(g, how.v_dim, layer->v);    // [v_dim, n_kv, n_head_kv]
    if (g->flash) {
        out = ggml_flash_attn_ext(ctx, q, k, v, mask, how.attn_scale, 0, how.softcap); // [v_dim, n_head, n]
        ggml_prec_set_acc(out, GGML_PREC_F32);
        if (sinks) ggml_flash_attn_ext_add_sinks(out, sinks);
    } else {
        struct ggml_tensor *kq = ggml_mul_mat(ctx, k, q); // [n_kv, n, n_head]
        if (how.softcap > 0) kq = cap(g, kq, how.attn_scale, how.softcap);
        kq = ggml_soft_max_ext(ctx, kq, mask, how.softcap > 0 ? 1 : how.attn_scale, 0); // [n_kv, n, n_head]
        if (sinks) ggml_soft_max_add_sinks(kq, sinks);
        if (ggml_is_quantized(v->type)) v = ggml_cast(ctx, v, GGML_TYPE_F32);      // [v_dim, n_kv, n_head_kv]
        struct ggml_tensor *vt = ggml_cont(ctx, ggml_permute(ctx, v, 1, 0, 2, 3)); // [n_kv, v_dim, n_head_kv]
        out = ggml_mul_mat(ctx, vt, kq);                                           // [v_dim, n, n_head]
        out = ggml_cont(ctx, ggml_permute(ctx, out, 0, 2, 1, 3));                  // [v_dim, n_head, n]
    }
    return ggml_reshape_2d(ctx, out, kin_layer_n_embd_out(&how), rows->n);
}

// True if only the rows of the output tokens are needed from here on: in the model's last layer.
static bool drops_rows(const kin_graph *g, int il) {
    return g->out_rows && il == g->hp->n_layer - 1;
}

// Returns the rows of x // f32 [n, n_tokens] that are needed after the last layer: [n, n_out]
static struct ggml_tensor *wanted_rows(kin_graph *g, struct ggml_tensor *x) {
    return g->kernels ? kin_op_rows(g, x, g->out_rows) : ggml_get_rows(g->ctx, x, g->out_rows);
}

// Returns queries, keys and values of x in one tensor, without values if they are made of the keys: [n_embd_q + n_embd_k +
// n_embd_v, n]
static struct ggml_tensor *stack_qkv(kin_graph *g, struct ggml_tensor *const *w, struct ggml_tensor *x) {
    struct ggml_tensor *const qkv[] = {w[KIN_W_ATTN_Q], w[KIN_W_ATTN_K], w[KIN_W_ATTN_V]};
    struct ggml_tensor *const bias[] = {w[KIN_W_ATTN_Q_BIAS], w[KIN_W_ATTN_K_BIAS], w[KIN_W_ATTN_V_BIAS]};
    if (w[KIN_W_ATTN_QKV]) return linear(g, w[KIN_W_ATTN_QKV], w[KIN_W_ATTN_QKV_BIAS], x);
    return kin_op_linear(g, x, qkv, bias, w[KIN_W_ATTN_V] ? 3 : 2, NULL);
}

// The same for the last layer, where queries are needed for the output rows only, after storing keys and values of all rows: [at
// least n_embd_q, n_out]
static struct ggml_tensor *last_queries(kin_graph *g, int il, struct ggml_tensor *x) {
    const kin_layer layer = kin_layer_of(g->hp, il);
    struct ggml_tensor *const *w = g->layers[il].w;
    struct ggml_tensor *const kv[] = {w[KIN_W_ATTN_K], w[KIN_W_ATTN_V]};
    struct ggml_tensor *const bias[] = {w[KIN_W_ATTN_K_BIAS], w[KIN_W_ATTN_V_BIAS]};
    if (w[KIN_W_ATTN_QKV]) {
        struct ggml_tensor *y = kin_op_heads(g, il, stack_qkv(g, w, x), layer.n_head, layer.n_head_kv, &g->all);
        return wanted_rows(g, y); // [n_embd_q + n_embd_k + n_embd_v, n_out]
    }
    if (layer.kv_back > 0) {
        x = wanted_rows(g, x); // [n_embd, n_out]
        return kin_op_heads(g, il, linear(g, w[KIN_W_ATTN_Q], w[KIN_W_ATTN_Q_BIAS], x), layer.n_head, 0, &g->out);
    }
    struct ggml_tensor *y = kin_op_linear(g, x, kv, bias, w[KIN_W_ATTN_V] ? 2 : 1, NULL); // [n_embd_k + n_embd_v, n_tokens]
    ggml_build_forward_expand(g->gf, kin_op_heads(g, il, y, 0, layer.n_head_kv, &g->all));
    x = wanted_rows(g, x);                                   // [n_embd, n_out]
    y = linear(g, w[KIN_W_ATTN_Q], w[KIN_W_ATTN_Q_BIAS], x); // [n_embd_q, n_out]
    return kin_op_heads(g, il, y, layer.n_head, 0, &g->out);
}

// Stores the keys of the layer's indexer for the normed x, and returns the blocks that it chooses for the rows that are needed.
// Returns NULL if the layer has no indexer, or if the context is short enough for all tokens to be seen.
static struct ggml_tensor *choose_blocks(kin_graph *g, int il, struct ggml_tensor *x) {
    const kin_layer layer = kin_layer_of(g->hp, il);
    struct ggml_tensor *const *w = g->layers[il].w;
    kin_graph_rows *rows = drops_rows(g, il) ? &g->out : &g->all;
    if (!kin_layer_chooses_blocks(&layer)) return NULL;
    struct ggml_tensor *keys = linear(g, w[KIN_W_INDEX_K_2], NULL, x); // [key_dim, n_tokens]
    ggml_build_forward_expand(g->gf, kin_op_index_keys(g, il, keys));
    if (g->n_kv <= g->hp->indexer.n_chosen) return NULL;
    if (drops_rows(g, il)) x = wanted_rows(g, x);                                  // [n_embd, n_out]
    return kin_op_index_blocks(g, il, linear(g, w[KIN_W_INDEX_Q], NULL, x), rows); // i32 [n_chosen / 64, n_head_kv * n]
}

// Attention by kin's kernels: a layer's three products are one node, its heads the next.
static struct ggml_tensor *attend_by_kernels(kin_graph *g, int il, struct ggml_tensor *x) {
    const kin_layer layer = kin_layer_of(g->hp, il);
    struct ggml_tensor *chosen = choose_blocks(g, il, x);
    if (drops_rows(g, il)) return kin_op_attend(g, il, last_queries(g, il, x), chosen, &g->out);
    struct ggml_tensor *const *w = g->layers[il].w, *y;
    if (layer.kv_back > 0)
        y = kin_op_heads(g, il, linear(g, w[KIN_W_ATTN_Q], w[KIN_W_ATTN_Q_BIAS], x), layer.n_head, 0, &g->all);
    else
        y = kin_op_heads(g, il, stack_qkv(g, w, x), layer.n_head, layer.n_head_kv, &g->all);
    return kin_op_attend(g, il, y, chosen, &g->all); // [n_embd_out, n]
}

// Returns the query, key or value as computed by ggml; `all` is their common product, or NULL. [width, n]
static struct ggml_tensor *part_of(kin_graph *g, struct ggml_tensor *all, int64_t at, int64_t width, struct ggml_tensor *weight,
                                   struct ggml_tensor *bias, struct ggml_tensor *x) {
    if (!all) return linear(g, weight, bias, x);
    return ggml_cont(g->ctx, ggml_view_2d(g->ctx, all, width, all->ne[1], all->nb[1], (size_t)at * sizeof(float)));
}

// Normalises each value head, without weights: [n_embd_v, n]
static struct ggml_tensor *norm_values(kin_graph *g, const kin_layer *how, struct ggml_tensor *v) {
    const int64_t n_v = v->ne[0], n = v->ne[1];
    v = ggml_reshape_3d(g->ctx, v, how->v_dim, how->n_head_kv, n); // [v_dim, n_head_kv, n]
    return ggml_reshape_2d(g->ctx, ggml_rms_norm(g->ctx, v, g->hp->rms_eps), n_v, n);
}

// Computes and stores the keys and values of x; `all`: their products with the queries' before them, or NULL.
static void store_by_ggml(kin_graph *g, int il, struct ggml_tensor *all, struct ggml_tensor *x) {
    const kin_layer how = kin_layer_of(g->hp, il);
    const kin_graph_layer *layer = &g->layers[il];
    struct ggml_tensor *const *w = layer->w;
    const kin_graph_rows *rows = &g->all;
    const int64_t n_q = kin_layer_n_embd_q(&how), n_k = kin_layer_n_embd_k(&how), n_v = kin_layer_n_embd_v(&how);
    struct ggml_tensor *k = part_of(g, all, n_q, n_k, w[KIN_W_ATTN_K], w[KIN_W_ATTN_K_BIAS], x); // [n_embd_k, n_tokens]
    struct ggml_tensor *v = k;                                                                   // [n_embd_v, n_tokens]
    if (all || w[KIN_W_ATTN_V]) v = part_of(g, all, n_q + n_k, n_v, w[KIN_W_ATTN_V], w[KIN_W_ATTN_V_BIAS], x);
    if (how.norms_values) v = norm_values(g, &how, v);
    if (g->hp->value_scale != 0) v = ggml_scale(g->ctx, v, g->hp->value_scale);
    struct ggml_tensor *norm = w[KIN_W_ATTN_K_NORM_EACH] ? w[KIN_W_ATTN_K_NORM_EACH] : w[KIN_W_ATTN_K_NORM];
    k = heads(g, il, k, how.n_head_kv, w[KIN_W_ATTN_K_NORM_ALL], norm, rows);
    store(g, layer->k, ggml_reshape_2d(g->ctx, k, n_k, rows->n));
    store(g, layer->v, v);
}

static struct ggml_tensor *attend_by_ggml(kin_graph *g, int il, struct ggml_tensor *x) {
    const kin_layer how = kin_layer_of(g->hp, il);
    struct ggml_tensor *const *w = g->layers[il].w;
    const kin_graph_rows *rows = &g->all;
    struct ggml_tensor *all = w[KIN_W_ATTN_QKV] ? stack_qkv(g, w, x) : NULL;
    if (how.kv_back == 0) store_by_ggml(g, il, all, x);
    if (drops_rows(g, il)) {
        rows = &g->out;
        x = wanted_rows(g, x); // [n_embd, n_out]
        if (all) all = wanted_rows(g, all);
    }
    struct ggml_tensor *q =
        part_of(g, all, 0, kin_layer_n_embd_q(&how), w[KIN_W_ATTN_Q], w[KIN_W_ATTN_Q_BIAS], x); // [n_embd_q, n]
    struct ggml_tensor *norm = w[KIN_W_ATTN_Q_NORM_EACH] ? w[KIN_W_ATTN_Q_NORM_EACH] : w[KIN_W_ATTN_Q_NORM];
    q = heads(g, il, q, how.n_head, w[KIN_W_ATTN_Q_NORM_ALL], norm, rows);
    return attend(g, il, q, rows); // [n_embd_out, n]
}

// Multiplies the heads' results x [n_embd_out, n] by what the gate makes of the block's normed input [n_embd, n].
static struct ggml_tensor *gate_heads(kin_graph *g, int il, struct ggml_tensor *x, struct ggml_tensor *normed) {
    const kin_layer how = kin_layer_of(g->hp, il);
    struct ggml_tensor *gate = linear(g, g->layers[il].w[KIN_W_ATTN_GATE], NULL, normed); // [n_head * n_head_gate, n]
    if (g->kernels) return kin_op_gate_heads(g, il, x, gate);
    const int64_t n = x->ne[1], n_embd_out = x->ne[0];
    gate = how.head_gate == KIN_HEAD_GATE_SIGMOID ? ggml_sigmoid(g->ctx, gate) : ggml_softplus(g->ctx, gate);
    gate = ggml_reshape_3d(g->ctx, gate, how.n_head_gate, how.n_head, n); // [n_head_gate, n_head, n]
    x = ggml_reshape_3d(g->ctx, x, how.v_dim, how.n_head, n);             // [v_dim, n_head, n]
    return ggml_reshape_2d(g->ctx, ggml_mul(g->ctx, x, gate), n_embd_out, n);
}

// Stores the keys of the layer's indexer for the normed x, if it has one whose blocks have one key each.
static void store_index(kin_graph *g, int il, struct ggml_tensor *x) {
    const kin_layer layer = kin_layer_of(g->hp, il);
    if (!kin_layer_chooses_groups(&layer)) return;
    struct ggml_tensor *keys = linear(g, g->layers[il].w[KIN_W_INDEX_K_2], NULL, x); // [key_dim, n_tokens]
    ggml_build_forward_expand(g->gf, kin_op_index_pool(g, il, keys));
}

// Returns the blocks that it chooses for the rows of x: i32 [n_chosen / n_block, n]. NULL: they see all.
static struct ggml_tensor *choose_groups(kin_graph *g, int il, struct ggml_tensor *x, kin_graph_rows *rows) {
    const kin_layer layer = kin_layer_of(g->hp, il);
    if (!kin_layer_chooses_groups(&layer) || g->n_kv <= kin_indexer_n_seen(&g->hp->indexer)) return NULL;
    return kin_op_index_groups(g, il, linear(g, g->layers[il].w[KIN_W_INDEX_Q], NULL, x), rows);
}

// Attention whose queries have gates beside them. normed: [n_embd, n_tokens] -> [n_embd_q, n]
static struct ggml_tensor *attend_gated(kin_graph *g, int il, struct ggml_tensor *normed) {
    const kin_layer how = kin_layer_of(g->hp, il);
    struct ggml_tensor *const *w = g->layers[il].w, *const kv[] = {w[KIN_W_ATTN_K], w[KIN_W_ATTN_V]},
                              *const none[] = {NULL, NULL};
    struct ggml_tensor *y = kin_op_linear(g, normed, kv, none, 2, NULL); // [2 n_embd_kv, n_tokens]
    kin_graph_rows *rows = drops_rows(g, il) ? &g->out : &g->all;
    ggml_build_forward_expand(g->gf, kin_op_heads(g, il, y, 0, how.n_head_kv, &g->all));
    store_index(g, il, normed);
    if (drops_rows(g, il)) normed = wanted_rows(g, normed); // [n_embd, n]
    struct ggml_tensor *chosen = choose_groups(g, il, normed, rows);
    struct ggml_tensor *both = linear(g, w[KIN_W_ATTN_Q_GATE], NULL, normed); // [2 n_embd_q, n]
    struct ggml_tensor *q = kin_op_fields(g, both, how.n_head, &(kin_op_field){0, how.head_dim}, 1);
    struct ggml_tensor *gate = kin_op_fields(g, both, how.n_head, &(kin_op_field){how.head_dim, how.head_dim}, 1);
    y = kin_op_attend(g, il, kin_op_heads(g, il, q, how.n_head, 0, rows), chosen, rows); // [n_embd_q, n]
    return kin_op_gate_heads(g, il, y, gate);
}

// The state space of a layer. normed: [n_embd, n_tokens] -> [n_values, n]
static struct ggml_tensor *advance_states(kin_graph *g, int il, struct ggml_tensor *normed) {
    const kin_delta_net *d = &g->hp->delta;
    struct ggml_tensor *const *w = g->layers[il].w;
    const int n_values = kin_delta_n_values(d), n_channels = kin_delta_n_channels(d);
    const kin_op_field gates = {0, n_values}, channels = {n_values, n_channels},
                       times = {n_values + n_channels, d->n_value_heads};
    struct ggml_tensor *all = linear(g, w[KIN_W_STATE_IN], NULL, normed); // [n_values + n_channels + n_value_heads, n_tokens]
    struct ggml_tensor *gate = kin_op_fields(g, all, 1, &gates, 1);       // [n_values, n_tokens]
    struct ggml_tensor *x = kin_op_fields(g, all, 1, &channels, 1);       // [n_channels, n_tokens]
    struct ggml_tensor *time = kin_op_fields(g, all, 1, &times, 1);       // [n_value_heads, n_tokens]
    struct ggml_tensor *y = kin_op_delta_net(g, il, kin_op_convolve(g, il, x), time, gate, NULL); // [n_values, n_tokens]
    if (drops_rows(g, il)) y = wanted_rows(g, y);
    return kin_op_norm_groups(g, y, w[KIN_W_STATE_NORM]);
}

// Kimi's delta attention. normed: [n_embd, n_tokens] -> [n_values, n]
static struct ggml_tensor *attend_delta(kin_graph *g, int il, struct ggml_tensor *normed) {
    struct ggml_tensor *const *w = g->layers[il].w, *const qkv[] = {w[KIN_W_KDA_Q], w[KIN_W_KDA_K], w[KIN_W_KDA_V]};
    struct ggml_tensor *x = kin_op_linear(g, normed, qkv, NULL, 3, NULL);                           // [n_channels, n_tokens]
    struct ggml_tensor *beta = linear(g, w[KIN_W_DELTA_BETA], NULL, normed);                        // [n_value_heads, n_tokens]
    struct ggml_tensor *decays = linear(g, w[KIN_W_KDA_DECAY_A], NULL, normed);                     // [head_dim, n_tokens]
    struct ggml_tensor *gate = linear(g, w[KIN_W_KDA_GATE_A], NULL, normed);                        // [head_dim, n_tokens]
    decays = linear(g, w[KIN_W_KDA_DECAY_B], NULL, decays);                                         // [n_values, n_tokens]
    gate = linear(g, w[KIN_W_KDA_GATE_B], NULL, gate);                                              // [n_values, n_tokens]
    struct ggml_tensor *y = kin_op_delta_net(g, il, kin_op_convolve(g, il, x), beta, gate, decays); // [n_values, n_tokens]
    return drops_rows(g, il) ? wanted_rows(g, y) : y;
}

// normed: [n_embd, n_tokens] -> [n_values, n]
static struct ggml_tensor *recur(kin_graph *g, int il, struct ggml_tensor *normed) {
    const kin_delta_net *d = &g->hp->delta;
    struct ggml_tensor *const *w = g->layers[il].w, *x, *gate, *beta_alpha;
    if (d->is_state_space) return advance_states(g, il, normed);
    if (d->decays_rows) return attend_delta(g, il, normed);
    if (w[KIN_W_DELTA_IN]) {
        const int dim = d->head_dim, values = kin_delta_n_values(d) / d->n_key_heads;
        const kin_op_field qkv[] = {{0, dim}, {dim, dim}, {2 * dim, values}}, gates = {2 * dim + values, values};
        struct ggml_tensor *all = linear(g, w[KIN_W_DELTA_IN], NULL, normed); // [n_channels + n_values, n_tokens]
        x = kin_op_fields(g, all, d->n_key_heads, qkv, 3);                    // [n_channels, n_tokens]
        gate = kin_op_fields(g, all, d->n_key_heads, &gates, 1);              // [n_values, n_tokens]
    } else {
        x = linear(g, w[KIN_W_DELTA_QKV], NULL, normed);     // [n_channels, n_tokens]
        gate = linear(g, w[KIN_W_DELTA_GATE], NULL, normed); // [n_values, n_tokens]
    }
    if (w[KIN_W_DELTA_BETA_ALPHA]) {
        beta_alpha = linear(g, w[KIN_W_DELTA_BETA_ALPHA], NULL, normed); // [2 n_value_heads, n_tokens]
    } else {
        struct ggml_tensor *const two[] = {w[KIN_W_DELTA_BETA], w[KIN_W_DELTA_ALPHA]}, *const none[] = {NULL, NULL};
        beta_alpha = kin_op_linear(g, normed, two, none, 2, NULL); // [2 n_value_heads, n_tokens]
    }
    struct ggml_tensor *y = kin_op_delta_net(g, il, kin_op_convolve(g, il, x), beta_alpha, gate, NULL); // [n_values, n_tokens]
    return drops_rows(g, il) ? wanted_rows(g, y) : y;
}

// Returns the shared choice of all tokens: i32 [n_chosen, n_tokens]
static struct ggml_tensor *shared_choice(kin_graph *g) {
    return ggml_view_2d(g->ctx, g->choice, g->choice->ne[0], g->all.n, g->choice->nb[1], 0);
}

// Returns the positions that the layer's indexer, or that of an earlier layer, chooses for rows of the normed x, whose queries
// have the latents qa // [n_query, n]: i32 [n_chosen, n]. NULL: they see all.
static struct ggml_tensor *choose(kin_graph *g, int il, struct ggml_tensor *x, struct ggml_tensor *qa, kin_graph_rows *rows) {
    struct ggml_tensor *const *w = g->layers[il].w;
    const kin_layer how = kin_layer_of(g->hp, il);
    if (!kin_layer_chooses(&how) || g->n_kv <= g->hp->indexer.n_chosen) return NULL;
    if (how.choice_back > 0) return rows == &g->all ? shared_choice(g) : wanted_rows(g, shared_choice(g));
    struct ggml_tensor *q = linear(g, w[KIN_W_INDEX_Q_B], NULL, qa);           // [n_head * key_dim, n]
    struct ggml_tensor *weights = linear(g, w[KIN_W_INDEX_PROJ], NULL, x);     // [n_head, n]
    if (how.n_pool > 0) return kin_op_pool_choose(g, il, q, weights, rows);    // i32 [n_chosen, n]
    struct ggml_tensor *chosen = kin_op_index_choose(g, il, q, weights, rows); // i32 [n_chosen, n]
    if (il + 1 < g->hp->n_layer && kin_layer_of(g->hp, il + 1).choice_back > 0)
        ggml_build_forward_expand(g->gf, kin_op_copy(g, chosen, shared_choice(g)));
    return chosen;
}

// Stores the keys of the layer's indexer for the normed x // [n_embd, n_tokens].
static void store_index_keys(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w, *const of_pools[] = {w[KIN_W_INDEX_K], w[KIN_W_INDEX_POOL_GATE]};
    struct ggml_tensor *keys;
    if (kin_layer_of(g->hp, il).n_pool > 0)
        keys = kin_op_pool_keys(g, il, kin_op_linear(g, x, of_pools, NULL, 2, NULL)); // [2 key_dim, n_tokens]
    else
        keys = kin_op_index_keys(g, il, linear(g, w[KIN_W_INDEX_K], NULL, x)); // [key_dim, n_tokens]
    ggml_build_forward_expand(g->gf, keys);
}

// Attention of the normed x over latents: [n_head * latent.v_dim, n]
static struct ggml_tensor *attend_latent(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w, *q, *chosen = NULL;
    const kin_latent *latent = &g->hp->latent;
    const kin_layer how = kin_layer_of(g->hp, il);
    kin_graph_rows *rows = drops_rows(g, il) ? &g->out : &g->all;
    struct ggml_tensor *keys = linear(g, w[KIN_W_LATENT_KV_A], NULL, x); // [n_latent + n_rot, n_tokens]
    ggml_build_forward_expand(g->gf, kin_op_latent_keys(g, il, keys));
    if (w[KIN_W_INDEX_K]) store_index_keys(g, il, x);
    if (drops_rows(g, il)) x = wanted_rows(g, x); // [n_embd, n_out]
    if (w[KIN_W_LATENT_Q_A]) {
        q = linear(g, w[KIN_W_LATENT_Q_A], NULL, x); // [n_query, n]
        q = kin_block_norm(g, q, w[KIN_W_LATENT_Q_A_NORM], NULL);
        chosen = choose(g, il, x, q, rows);
        q = linear(g, w[KIN_W_LATENT_Q_B], NULL, q); // [n_head * (k_dim + n_rot), n]
    } else {
        q = linear(g, w[KIN_W_LATENT_Q], NULL, x); // [n_head * (k_dim + n_rot), n]
    }
    struct ggml_tensor *y =
        kin_op_by_heads(g, q, w[KIN_W_LATENT_K_B], how.n_head, how.head_dim);     // [n_head * (n_latent + n_rot), n]
    y = kin_op_latent_queries(g, il, y, q, rows);                                 // the same
    y = kin_op_attend(g, il, y, chosen, rows);                                    // [n_head * n_latent, n]
    return kin_op_by_heads(g, y, w[KIN_W_LATENT_V_B], how.n_head, latent->v_dim); // [n_head * v_dim, n]
}

// Returns the compressed rows that the layer's indexer chooses, likewise: i32 [n_chosen, n]. NULL: rows see all.
static struct ggml_tensor *choose_rows(kin_graph *g, int il, struct ggml_tensor *x, struct ggml_tensor *qa,
                                       kin_graph_rows *rows) {
    struct ggml_tensor *const *w = g->layers[il].w;
    if (!w[KIN_W_INDEX_COMPRESSOR_KV] || g->n_kv / KIN_COMPRESSED_OVERLAPS <= g->hp->indexer.n_chosen) return NULL;
    struct ggml_tensor *q = linear(g, w[KIN_W_INDEX_Q_B], NULL, qa);       // [n_head * key_dim, n]
    struct ggml_tensor *weights = linear(g, w[KIN_W_INDEX_PROJ], NULL, x); // [n_head, n]
    return kin_op_compressed_choose(g, il, q, weights, rows);
}

// Attention of the normed x over a window and compressed rows: [n_group * n_rank, n]
static struct ggml_tensor *attend_compressed(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w;
    struct ggml_tensor *const rows_of[] = {w[KIN_W_COMPRESSED_KV], w[KIN_W_COMPRESSOR_KV], w[KIN_W_COMPRESSOR_GATE]};
    struct ggml_tensor *const keys_of[] = {w[KIN_W_INDEX_COMPRESSOR_KV], w[KIN_W_INDEX_COMPRESSOR_GATE]};
    const kin_compressed *c = &g->hp->compressed;
    const kin_layer how = kin_layer_of(g->hp, il);
    kin_graph_rows *rows = drops_rows(g, il) ? &g->out : &g->all;
    struct ggml_tensor *all = kin_op_linear(g, x, rows_of, NULL, how.ratio > 0 ? 3 : 1, NULL); // [head_dim + n_raw, n_tokens]
    ggml_build_forward_expand(g->gf, kin_op_compressed_rows(g, il, all));
    if (w[KIN_W_INDEX_COMPRESSOR_KV]) {
        all = kin_op_linear(g, x, keys_of, NULL, 2, NULL); // [4 key_dim, n_tokens]
        ggml_build_forward_expand(g->gf, kin_op_compressed_keys(g, il, all));
    }
    if (drops_rows(g, il)) x = wanted_rows(g, x);                     // [n_embd, n_out]
    struct ggml_tensor *qa = linear(g, w[KIN_W_LATENT_Q_A], NULL, x); // [n_query, n]
    qa = kin_block_norm(g, qa, w[KIN_W_LATENT_Q_A_NORM], NULL);
    struct ggml_tensor *chosen = choose_rows(g, il, x, qa, rows);
    struct ggml_tensor *q = linear(g, w[KIN_W_LATENT_Q_B], NULL, qa); // [n_head * head_dim, n]
    q = kin_op_compressed_queries(g, il, q, rows);
    q = kin_op_compressed_attend(g, il, q, chosen, rows); // [n_head * head_dim, n]
    return kin_op_by_heads(g, q, w[KIN_W_COMPRESSED_OUT_A], c->n_group, c->n_rank);
}

// A layer with a short convolution: its result for the normed x, before the last product [n_embd, n].
static struct ggml_tensor *convolve(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *y = kin_op_short_conv(g, il, linear(g, g->layers[il].w[KIN_W_CONV_IN], NULL, x));
    return drops_rows(g, il) ? wanted_rows(g, y) : y;
}

// Writes y // [n_embd, n] into columns of `both` // [2 n_embd, n], from `column` on.
static void fill_columns(kin_graph *g, struct ggml_tensor *both, int64_t column, struct ggml_tensor *y) {
    const size_t at = (size_t)column * sizeof(float);
    struct ggml_tensor *to = ggml_view_2d(g->ctx, both, y->ne[0], y->ne[1], both->nb[1], at);
    ggml_build_forward_expand(g->gf, g->kernels ? kin_op_copy(g, y, to) : ggml_cpy(g->ctx, y, to));
}

// A draft block's input: a product of the norms of the tokens' embeddings (the layer's inputs) and of the hidden states x that
// precede them, for each stream by itself. [stream width, n_tokens]
static struct ggml_tensor *join_draft(kin_graph *g, struct ggml_tensor *const *w, struct ggml_tensor *x) {
    const int64_t n_embd = g->hp->n_embd, n_tokens = x->ne[1], n = n_tokens * g->hp->n_streams;
    struct ggml_tensor *inputs = ggml_reshape_2d(g->ctx, g->inputs, n_embd, n);
    struct ggml_tensor *both = ggml_new_tensor_2d(g->ctx, GGML_TYPE_F32, 2 * n_embd, n), *by_stream = w[KIN_W_NEXTN_STREAMS_NORM];
    ggml_set_input(both); // is allocated from the start
    if (by_stream) x = kin_streams_of(g->hp)->norm(g, by_stream, x);
    x = ggml_reshape_2d(g->ctx, x, n_embd, n);
    fill_columns(g, both, 0, kin_block_norm(g, inputs, w[KIN_W_NEXTN_TOKEN_NORM], NULL));
    fill_columns(g, both, n_embd, by_stream ? x : kin_block_norm(g, x, w[KIN_W_NEXTN_STATE_NORM], NULL));
    return ggml_reshape_2d(g->ctx, linear(g, w[KIN_W_NEXTN_PROJ], NULL, both), n_embd * g->hp->n_streams, n_tokens);
}

// Adds the attention block's result for x // [n_embd, n_tokens] to the residual of the rows that are needed. residual NULL:
// returns the result alone. [n_embd, n]
static struct ggml_tensor *attention_onto(kin_graph *g, int il, struct ggml_tensor *x, struct ggml_tensor *residual) {
    struct ggml_tensor *const *w = g->layers[il].w;
    struct ggml_tensor *cur = w[KIN_W_ATTN_NORM] ? kin_block_norm(g, x, w[KIN_W_ATTN_NORM], w[KIN_W_ATTN_NORM_BIAS]) : x;
    struct ggml_tensor *normed = cur;
    const kin_layer how = kin_layer_of(g->hp, il);
    if (how.is_latent) {
        cur = attend_latent(g, il, cur); // [n_head * v_dim, n]
        return end_block(g, w[KIN_W_LATENT_OUT], NULL, NULL, cur, residual);
    }
    if (how.is_compressed) {
        cur = attend_compressed(g, il, cur); // [n_group * n_rank, n]
        return end_block(g, w[KIN_W_COMPRESSED_OUT_B], NULL, NULL, cur, residual);
    }
    if (w[KIN_W_CONV_IN]) {
        cur = convolve(g, il, cur); // [n_embd, n]
        return end_block(g, w[KIN_W_CONV_OUT], NULL, NULL, cur, residual);
    }
    if (how.is_recurrent) {
        cur = recur(g, il, cur); // [n_values, n]
        return end_block(g, w[w[KIN_W_KDA_OUT] ? KIN_W_KDA_OUT : KIN_W_DELTA_OUT], NULL, NULL, cur, residual);
    }
    if (how.gates_queries) {
        cur = attend_gated(g, il, cur); // [n_embd_q, n]
        return end_block(g, w[KIN_W_ATTN_OUT], NULL, NULL, cur, residual);
    }
    cur = g->kernels ? attend_by_kernels(g, il, cur) : attend_by_ggml(g, il, cur); // [n_embd_out, n]
    if (w[KIN_W_ATTN_GATE]) {
        if (drops_rows(g, il)) normed = wanted_rows(g, normed); // [n_embd, n_out]
        cur = gate_heads(g, il, cur, normed);
    }
    return end_block(g, w[KIN_W_ATTN_OUT], w[KIN_W_ATTN_OUT_BIAS], w[KIN_W_ATTN_OUT_NORM], cur, residual);
}

struct ggml_tensor *kin_block_attention(kin_graph *g, int il, struct ggml_tensor *x) {
    const kin_streams_mixer *mixer = kin_streams_of(g->hp);
    struct ggml_tensor *const *w = g->layers[il].w, *gates;
    if (w[KIN_W_NEXTN_PROJ]) x = join_draft(g, w, x);
    if (w[KIN_W_NGRAM_KEY]) x = kin_op_ngrams(g, il, x); // [stream width, n_tokens]
    if (!mixer) return attention_onto(g, il, x, drops_rows(g, il) ? wanted_rows(g, x) : x);
    struct ggml_tensor *y = attention_onto(g, il, mixer->in(g, il, KIN_STREAMS_ATTN, x, &gates), NULL); // [n_embd, n]
    if (drops_rows(g, il)) {
        x = wanted_rows(g, x);         // [stream width, n_out]
        gates = wanted_rows(g, gates); // [any, n_out]
    }
    return mixer->out(g, il, KIN_STREAMS_ATTN, x, gates, y);
}

// ---- dense feed-forward blocks

static struct ggml_tensor *norm_ffn(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w, *norm = w[KIN_W_FFN_NORM], *bias = w[KIN_W_FFN_NORM_BIAS];
    if (!norm) norm = w[KIN_W_FFN_NORM_2] ? w[KIN_W_FFN_NORM_2] : w[KIN_W_FFN_NORM_ATTN];
    if (!bias) bias = w[KIN_W_FFN_NORM_ATTN_BIAS];
    return norm ? kin_block_norm(g, x, norm, bias) : x; // [n_embd, n]
}

// limit: of the gate, 0: none
static struct ggml_tensor *apply_gate(kin_graph *g, kin_gate kind, float limit, struct ggml_tensor *gate,
                                      struct ggml_tensor *up) {
    const float alpha = 1.702f, limit_oai = 7;
    if (limit > 0)
        return ggml_mul(g->ctx, ggml_clamp(g->ctx, ggml_silu(g->ctx, gate), -INFINITY, limit),
                        ggml_clamp(g->ctx, up, -limit, limit));
    switch (kind) {
    case KIN_GATE_GELU: return ggml_geglu_split(g->ctx, gate, up);
    case KIN_GATE_OAI: return ggml_swiglu_oai(g->ctx, gate, up, alpha, limit_oai);
    default: return ggml_swiglu_split(g->ctx, gate, up);
    }
}

// activation(gate x) * up x: [n_ff, n]. up NULL: gate has the rows of both.
static struct ggml_tensor *gated(kin_graph *g, kin_gate kind, float limit, struct ggml_tensor *gate, struct ggml_tensor *up,
                                 struct ggml_tensor *x) {
    if (g->kernels) return kin_op_gated(g, kind, limit, x, gate, up);
    struct ggml_tensor *y = linear(g, gate, NULL, x);
    if (up) return apply_gate(g, kind, limit, y, linear(g, up, NULL, x));
    const int64_t n_ff = y->ne[0] / 2;
    struct ggml_tensor *first = ggml_view_2d(g->ctx, y, n_ff, y->ne[1], y->nb[1], 0);
    struct ggml_tensor *second = ggml_view_2d(g->ctx, y, n_ff, y->ne[1], y->nb[1], (size_t)n_ff * sizeof(float));
    return apply_gate(g, kind, limit, ggml_cont(g->ctx, first), ggml_cont(g->ctx, second));
}

struct ggml_tensor *kin_block_ffn_in(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w;
    const kin_layer how = kin_layer_of(g->hp, il);
    struct ggml_tensor *cur = norm_ffn(g, il, x); // [n_embd, n]
    if (!w[KIN_W_FFN_GATE] && !w[KIN_W_FFN_GATE_UP]) {
        kin_assert(g->kernels); // only models with states have such blocks (kin_blocks_without_ggml)
        return kin_op_square_relu(g, linear(g, w[KIN_W_FFN_UP], NULL, cur)); // [n_ff, n]
    }
    if (w[KIN_W_FFN_GATE_UP]) return gated(g, how.gate, how.limit_dense, w[KIN_W_FFN_GATE_UP], NULL, cur);
    return gated(g, how.gate, how.limit_dense, w[KIN_W_FFN_GATE], w[KIN_W_FFN_UP], cur); // [n_ff, n]
}

// x + norm(proj (GELU(gate x) * the layer's input)): [n_embd, n]
static struct ggml_tensor *add_input(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w, *inputs = g->inputs;
    const int n_input = g->hp->n_input;
    const size_t at = (size_t)il * (size_t)n_input * sizeof(float);
    if (drops_rows(g, il)) inputs = wanted_rows(g, inputs);                                              // [any, n_out]
    struct ggml_tensor *input = ggml_view_2d(g->ctx, inputs, n_input, inputs->ne[1], inputs->nb[1], at); // [n_input, n]
    struct ggml_tensor *h = linear(g, w[KIN_W_INPUT_GATE], NULL, x);                                     // [n_input, n]
    h = g->kernels ? kin_op_gate_input(g, h, input) : ggml_mul(g->ctx, ggml_gelu(g->ctx, h), input);
    return add_onto(g, linear(g, w[KIN_W_INPUT_PROJ], NULL, h), w[KIN_W_INPUT_NORM], x);
}

// Ends a layer: adds what it makes of its input and multiplies by its scale, if it has these. [n_embd, n]
static struct ggml_tensor *end_layer(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *scale = g->layers[il].w[KIN_W_LAYER_SCALE];
    if (g->layers[il].w[KIN_W_INPUT_GATE]) x = add_input(g, il, x);
    if (!scale) return x;
    return g->kernels ? kin_op_scale(g, x, scale) : ggml_mul(g->ctx, x, scale);
}

static struct ggml_tensor *ffn_down(kin_graph *g, int il, struct ggml_tensor *h, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w;
    return end_layer(g, il, end_block(g, w[KIN_W_FFN_DOWN], NULL, w[KIN_W_FFN_OUT_NORM], h, x)); // [n_embd, n]
}

struct ggml_tensor *kin_block_ffn_out(kin_graph *g, int il, struct ggml_tensor *h) {
    return ffn_down(g, il, h, g->residual);
}

// ---- experts

// The inputs of the router, of shared experts and of the experts: x, the block's input, or its norm; the experts' may be a latent
// that is made of it.
typedef struct moe_input {
    struct ggml_tensor *router, *shared; // [n_embd, n]
    struct ggml_tensor *experts;         // [kin_hparams_expert_width, n]
} moe_input;

static moe_input norm_moe(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w;
    moe_input in = {.shared = w[KIN_W_FFN_EXPS_NORM] ? kin_block_norm(g, x, w[KIN_W_FFN_EXPS_NORM], NULL) : norm_ffn(g, il, x)};
    in.router = w[KIN_W_FFN_ROUTER_NORM] ? kin_block_norm(g, x, w[KIN_W_FFN_ROUTER_NORM], NULL) : in.shared;
    in.experts = in.shared;
    return in;
}

// The router's logits for the normed cur [n_embd, n]: [n_expert, n]
static struct ggml_tensor *route_logits(kin_graph *g, int il, struct ggml_tensor *cur) {
    return linear(g, g->layers[il].w[KIN_W_FFN_ROUTER], g->layers[il].w[KIN_W_FFN_ROUTER_BIAS], cur);
}

// What is added to the router's probabilities when choosing; NULL: nothing. [n_expert]
static struct ggml_tensor *choice_bias(const kin_graph *g, int il) {
    struct ggml_tensor *const *w = g->layers[il].w;
    return w[KIN_W_FFN_CHOICE_BIAS] ? w[KIN_W_FFN_CHOICE_BIAS] : w[KIN_W_FFN_CHOICE_BIAS_2];
}

// Chooses the experts of each token by ggml. cur: [n_embd, n] -> *chosen: i32 [n_used, n]; returns their weights [1, n_used, n].
static struct ggml_tensor *route_by_ggml(kin_graph *g, int il, struct ggml_tensor *cur, struct ggml_tensor **chosen) {
    const kin_routing *r = &g->hp->routing;
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *logits = route_logits(g, il, cur), *bias = choice_bias(g, il);
    struct ggml_tensor *scale = g->layers[il].w[KIN_W_FFN_EXPS_SCALE];
    int64_t n = cur->ne[1];
    if (g->hp->router_scale != 1) logits = ggml_scale(ctx, logits, g->hp->router_scale);
    struct ggml_tensor *probs = r->gating == KIN_GATING_SIGMOID ? ggml_sigmoid(ctx, logits) : ggml_soft_max(ctx, logits);
    *chosen = ggml_argsort_top_k(ctx, bias ? ggml_add(ctx, probs, bias) : probs, r->n_used); // i32 [n_used, n]

    struct ggml_tensor *weights = ggml_get_rows(ctx, ggml_reshape_3d(ctx, probs, 1, r->n_expert, n), *chosen); // [1, n_used, n]
    weights = ggml_reshape_2d(ctx, weights, r->n_used, n);                                                     // [n_used, n]
    if (r->gating == KIN_GATING_CHOSEN || r->normalize) {
        struct ggml_tensor *sum = ggml_sum_rows(ctx, weights); // [1, n]
        if (r->normalize) sum = ggml_clamp(ctx, sum, 0x1p-14f, INFINITY);
        weights = ggml_div(ctx, weights, sum); // [n_used, n]
    }
    if (r->scale != 1) weights = ggml_scale(ctx, weights, r->scale);
    if (scale) {
        struct ggml_tensor *all = ggml_reshape_1d(ctx, ggml_cont(ctx, *chosen), r->n_used * n); // i32 [n_used * n]
        scale = ggml_get_rows(ctx, ggml_reshape_2d(ctx, scale, 1, r->n_expert), all);           // [1, n_used * n]
        weights = ggml_mul(ctx, weights, ggml_reshape_2d(ctx, scale, r->n_used, n));            // [n_used, n]
    }
    return ggml_reshape_3d(ctx, weights, 1, r->n_used, n);
}

// The same by kin's kernels: i32 [2 n_used, n], see kin_op_route.
static struct ggml_tensor *route_by_kernels(kin_graph *g, int il, struct ggml_tensor *cur) {
    struct ggml_tensor *tokens = g->tokens, *table = g->layers[il].w[KIN_W_FFN_TOKEN_EXPERTS];
    if (table) {
        if (drops_rows(g, il)) tokens = wanted_rows(g, tokens); // [1, n_out]
        return kin_op_route_tokens(g, route_logits(g, il, cur), tokens, table);
    }
    return kin_op_route(g, route_logits(g, il, cur), choice_bias(g, il), g->layers[il].w[KIN_W_FFN_EXPS_SCALE]);
}

// Multiplies each token's experts, and adds their biases if there are any. [n_out, n_used, n]
static struct ggml_tensor *multiply_experts(kin_graph *g, struct ggml_tensor *weight, struct ggml_tensor *bias,
                                            struct ggml_tensor *x, struct ggml_tensor *chosen) {
    struct ggml_tensor *y = ggml_mul_mat_id(g->ctx, weight, x, chosen);
    return bias ? ggml_add_id(g->ctx, y, bias, chosen) : y;
}

// activation(gate cur) * up cur of each token's experts: [n_ff_exp, n_used, n]
static struct ggml_tensor *gate_experts(kin_graph *g, int il, struct ggml_tensor *cur, struct ggml_tensor *chosen) {
    struct ggml_tensor *const *w = g->layers[il].w, *both = w[KIN_W_FFN_GATE_UP_EXPS], *gate, *up;
    const kin_layer how = kin_layer_of(g->hp, il);
    if (both) {
        struct ggml_tensor *y = multiply_experts(g, both, NULL, cur, chosen); // [2 n_ff_exp, n_used, n]
        const int64_t n_ff = y->ne[0] / 2;
        gate = ggml_cont(g->ctx, ggml_view_3d(g->ctx, y, n_ff, y->ne[1], y->ne[2], y->nb[1], y->nb[2], 0));
        up = ggml_view_3d(g->ctx, y, n_ff, y->ne[1], y->ne[2], y->nb[1], y->nb[2], (size_t)n_ff * sizeof(float));
        up = ggml_cont(g->ctx, up);
    } else {
        gate = multiply_experts(g, w[KIN_W_FFN_GATE_EXPS], w[KIN_W_FFN_GATE_EXPS_BIAS], cur, chosen);
        up = multiply_experts(g, w[KIN_W_FFN_UP_EXPS], w[KIN_W_FFN_UP_EXPS_BIAS], cur, chosen);
    }
    return apply_gate(g, how.gate, how.limit_exps, gate, up);
}

// sum + the experts' outputs, by ggml; sum NULL: the outputs alone. [n_embd, n]
static struct ggml_tensor *experts_by_ggml(kin_graph *g, int il, struct ggml_tensor *sum, moe_input in) {
    struct ggml_tensor *const *w = g->layers[il].w, *chosen;
    struct ggml_context *ctx = g->ctx;
    const int64_t n = in.experts->ne[1], n_embd = in.experts->ne[0];
    struct ggml_tensor *weights = route_by_ggml(g, il, in.router, &chosen);   // [1, n_used, n]
    struct ggml_tensor *cur = ggml_reshape_3d(ctx, in.experts, n_embd, 1, n); // [n_embd, 1, n]
    cur = gate_experts(g, il, cur, chosen);                                   // [n_ff_exp, n_used, n]
    cur = multiply_experts(g, w[KIN_W_FFN_DOWN_EXPS], w[KIN_W_FFN_DOWN_EXPS_BIAS], cur, chosen);
    cur = ggml_mul(ctx, cur, weights); // [n_embd, n_used, n]
    for (int i = 0; i < g->hp->n_expert_used; i++) {
        struct ggml_tensor *one = ggml_view_2d(ctx, cur, n_embd, n, cur->nb[2], (size_t)i * cur->nb[1]); // [n_embd, n]
        sum = sum ? ggml_add(ctx, sum, one) : ggml_cont(ctx, one);
    }
    return sum;
}

// sum + the shared experts' output for the normed cur. [n_embd, n]
static struct ggml_tensor *add_shared(kin_graph *g, int il, struct ggml_tensor *sum, struct ggml_tensor *cur) {
    struct ggml_tensor *const *w = g->layers[il].w, *router = w[KIN_W_FFN_SHARED_ROUTER];
    const kin_layer how = kin_layer_of(g->hp, il);
    struct ggml_tensor *h = w[KIN_W_FFN_SHARED_GATE]
                                ? gated(g, how.gate, how.limit_shared, w[KIN_W_FFN_SHARED_GATE], w[KIN_W_FFN_SHARED_UP], cur)
                                : kin_op_square_relu(g, linear(g, w[KIN_W_FFN_SHARED_UP], NULL, cur)); // [n_ff_shared, n]
    if (router) {
        struct ggml_tensor *gate = linear(g, router, NULL, cur); // [1, n]
        h = g->kernels ? kin_op_scale_sigmoid(g, h, gate) : ggml_mul(g->ctx, h, ggml_sigmoid(g->ctx, gate));
    }
    return linear_onto(g, w[KIN_W_FFN_SHARED_DOWN], NULL, h, sum);
}

// norm(experts) + norm(dense block) of x: [n_embd, n]
static struct ggml_tensor *add_dense(kin_graph *g, int il, struct ggml_tensor *experts, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w;
    struct ggml_tensor *dense = linear(g, w[KIN_W_FFN_DOWN], NULL, kin_block_ffn_in(g, il, x));
    dense = kin_block_norm(g, dense, w[KIN_W_FFN_DENSE_OUT_NORM], NULL);
    experts = kin_block_norm(g, experts, w[KIN_W_FFN_EXPS_OUT_NORM], NULL);
    return g->kernels ? kin_op_add(g, experts, 1, dense) : ggml_add(g->ctx, experts, dense);
}

// Guesses the next layer's experts by its router from x, to which this layer's experts and the next attention have yet to add.
static void expect_next(kin_graph *g, int il, struct ggml_tensor *x, struct ggml_tensor *slots) {
    const int next = il + 1, first = g->n_ops;
    if (!g->experts || next >= g->layers_end || x->ne[1] > KIN_GUESS_TOKENS || !kin_layer_of(g->hp, next).has_experts) return;
    if (g->layers[next].w[KIN_W_FFN_TOKEN_EXPERTS] && drops_rows(g, next)) return; // fewer tokens than x has
    kin_op_expect(g, next, first, slots, route_by_kernels(g, next, norm_moe(g, next, x).router));
}

static struct ggml_tensor *experts_by_kernels(kin_graph *g, int il, struct ggml_tensor *sum, moe_input in,
                                              struct ggml_tensor *x) {
    const kin_layer how = kin_layer_of(g->hp, il);
    struct ggml_tensor *routed = route_by_kernels(g, il, in.router), *slots = kin_op_slots(g, il, routed);
    expect_next(g, il, x, slots);
    return kin_op_experts(g, il, &how, sum, in.experts, routed, slots);
}

// sum + the experts' outputs; sum NULL: the outputs alone. ggml's operators have no experts without a gate.
static struct ggml_tensor *sum_experts(kin_graph *g, int il, struct ggml_tensor *sum, moe_input in, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w;
    const bool is_gated = w[KIN_W_FFN_GATE_EXPS] || w[KIN_W_FFN_GATE_UP_EXPS];
    return g->kernels || !is_gated ? experts_by_kernels(g, il, sum, in, x) : experts_by_ggml(g, il, sum, in);
}

// The same of experts that read and write a latent. [n_embd, n]
static struct ggml_tensor *sum_latent_experts(kin_graph *g, int il, struct ggml_tensor *sum, moe_input in,
                                              struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w;
    kin_assert(!g->sums);                                               // ensured by kin_share_check
    in.experts = linear(g, w[KIN_W_FFN_LATENT_DOWN], NULL, in.experts); // [n_expert_latent, n]
    return linear_onto(g, w[KIN_W_FFN_LATENT_UP], NULL, sum_experts(g, il, NULL, in, x), sum);
}

// residual + experts(norm(x)); residual NULL: the sum of experts alone
static struct ggml_tensor *ffn_experts(kin_graph *g, int il, struct ggml_tensor *x, struct ggml_tensor *residual) {
    struct ggml_tensor *const *w = g->layers[il].w;
    const moe_input in = norm_moe(g, il, x);
    const bool as_is = adds_as_is(g, w[KIN_W_FFN_OUT_NORM]);
    struct ggml_tensor *sum = as_is && !g->sums ? residual : NULL;
    sum = w[KIN_W_FFN_LATENT_DOWN] ? sum_latent_experts(g, il, sum, in, x) : sum_experts(g, il, sum, in, x);
    if (w[KIN_W_FFN_SHARED_DOWN]) sum = add_shared(g, il, sum, in.shared);
    if (g->sums) return end_layer(g, il, add_parts_onto(g, sum, w[KIN_W_FFN_OUT_NORM], residual));
    if (w[KIN_W_FFN_DENSE_OUT_NORM]) sum = add_dense(g, il, sum, x);
    return end_layer(g, il, as_is ? sum : add_onto(g, sum, w[KIN_W_FFN_OUT_NORM], residual));
}

static struct ggml_tensor *ffn_onto(kin_graph *g, int il, struct ggml_tensor *x, struct ggml_tensor *residual) {
    if (kin_layer_of(g->hp, il).has_experts) return ffn_experts(g, il, x, residual);
    return ffn_down(g, il, kin_block_ffn_in(g, il, x), residual);
}

struct ggml_tensor *kin_block_ffn(kin_graph *g, int il, struct ggml_tensor *x) {
    const kin_streams_mixer *mixer = kin_streams_of(g->hp);
    struct ggml_tensor *gates;
    if (!mixer) return ffn_onto(g, il, x, x);
    struct ggml_tensor *y = ffn_onto(g, il, mixer->in(g, il, KIN_STREAMS_FF, x, &gates), NULL); // [n_embd, n]
    return mixer->out(g, il, KIN_STREAMS_FF, x, gates, y);
}

struct ggml_tensor *kin_block_layer(kin_graph *g, int il, struct ggml_tensor *x) {
    const kin_layer how = kin_layer_of(g->hp, il);
    if (how.has_no_attention) return kin_block_ffn(g, il, drops_rows(g, il) ? wanted_rows(g, x) : x); // [n_embd, n]
    struct ggml_tensor *y = kin_block_attention(g, il, x);                                            // [n_embd, n]
    if (how.has_no_ff) return y;
    if (!how.is_parallel) return kin_block_ffn(g, il, y);
    if (drops_rows(g, il)) x = wanted_rows(g, x); // [n_embd, n_out]
    return ffn_down(g, il, kin_block_ffn_in(g, il, x), y);
}

struct ggml_tensor *kin_block_route(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *chosen;
    kin_assert(!g->kernels);
    route_by_ggml(g, il, norm_moe(g, il, x).router, &chosen);
    return ggml_cont(g->ctx, chosen); // i32 [n_used, n]
}
