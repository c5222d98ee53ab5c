#include "model/blocks.h"

#include <math.h>

#include "model/arch.h"
#include "model/kernel_ops.h"

struct ggml_tensor *kin_block_output(kin_graph *g, struct ggml_tensor *matrix, struct ggml_tensor *x) {
    if (g->kernels && kin_ops_multiply(matrix)) return kin_op_linear(g, x, &matrix, NULL, 1, NULL);
    kin_assert(!kin_ops_is_packed(matrix));
    return ggml_mul_mat(g->ctx, matrix, x);
}

struct ggml_tensor *kin_block_norm(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *weight) {
    if (g->kernels) return kin_op_norm(g, x, weight);
    return ggml_mul(g->ctx, ggml_rms_norm(g->ctx, x, g->hp->rms_eps), weight);
}

// Weights that are not quantized are there for their exactness: some GPUs would add their products up in half precision.
static struct ggml_tensor *linear(kin_graph *g, struct ggml_tensor *weight, struct ggml_tensor *bias, struct ggml_tensor *x) {
    if (g->kernels && kin_ops_multiply(weight)) return kin_op_linear(g, x, &weight, bias ? &bias : NULL, 1, NULL);
    kin_assert(!kin_ops_is_packed(weight));
    struct ggml_tensor *y = ggml_mul_mat(g->ctx, weight, x); // [n_out, n]
    if (!ggml_is_quantized(weight->type)) ggml_prec_set_acc(y, GGML_PREC_F32);
    return bias ? ggml_add(g->ctx, y, bias) : y;
}

// The same plus a residual [n_out, n]. The end of a block: the devices of a group add their parts up here.
static struct ggml_tensor *linear_onto(kin_graph *g, struct ggml_tensor *weight, struct ggml_tensor *bias, struct ggml_tensor *x,
                                       struct ggml_tensor *residual) {
    if (g->sums) return kin_op_sum(g, linear(g, weight, bias, x), residual);
    if (g->kernels && kin_ops_multiply(weight)) return kin_op_linear(g, x, &weight, bias ? &bias : NULL, 1, residual);
    return ggml_add(g->ctx, linear(g, weight, bias, x), residual);
}

// Several products of x, stacked: [sum of their n_out, n].
static struct ggml_tensor *linear_stack(kin_graph *g, struct ggml_tensor *const *weights, struct ggml_tensor *const *bias, int n,
                                        struct ggml_tensor *x) {
    bool all = true;
    for (int i = 0; i < n; i++) all = all && kin_ops_multiply(weights[i]);
    if (all) return kin_op_linear(g, x, weights, bias, n, NULL);
    struct ggml_tensor *y = linear(g, weights[0], bias[0], x);
    for (int i = 1; i < n; i++) y = ggml_concat(g->ctx, y, linear(g, weights[i], bias[i], x), 0);
    return y;
}

// Splits y [n_head * head_dim, n] into heads, norms each head if the layer says so, and rotates it by its token's position.
static struct ggml_tensor *heads(kin_graph *g, struct ggml_tensor *y, int n_head, struct ggml_tensor *norm,
                                 const kin_graph_rows *rows) {
    const kin_hparams *hp = g->hp;
    y = ggml_reshape_3d(g->ctx, y, hp->head_dim, n_head, rows->n); // [head_dim, n_head, n]
    if (norm) y = kin_block_norm(g, y, norm);
    return ggml_rope_ext(g->ctx, y, rows->pos, g->rope_factors, hp->n_rot, hp->arch->rope_type, hp->rope_n_ctx_orig,
                         hp->rope_base, hp->rope_freq_scale, hp->rope_ext_factor, hp->rope_attn_factor, hp->rope_beta_fast,
                         hp->rope_beta_slow);
}

// Writes the tokens' rows [n_embd_kv, n] into their cells of the cache, before anything reads it.
static void store(kin_graph *g, struct ggml_tensor *cache, struct ggml_tensor *rows) {
    ggml_build_forward_expand(g->gf, ggml_set_rows(g->ctx, cache, rows, g->cells));
}

// The first n_kv cells of a cache, by head: [head_dim, n_kv, n_head_kv].
static struct ggml_tensor *cached_heads(kin_graph *g, struct ggml_tensor *cache) {
    const kin_hparams *hp = g->hp;
    return ggml_view_3d(g->ctx, cache, hp->head_dim, g->n_kv, hp->n_head_kv, cache->nb[1],
                        ggml_row_size(cache->type, hp->head_dim), 0);
}

// softmax(q k^T / sqrt(head_dim) + mask) v. q: [head_dim, n_head, n] -> [n_head * head_dim, n]
static struct ggml_tensor *attend(kin_graph *g, const kin_graph_layer *layer, struct ggml_tensor *q, const kin_graph_rows *rows) {
    const kin_hparams *hp = g->hp;
    struct ggml_context *ctx = g->ctx;
    float scale = 1.0f / sqrtf((float)hp->head_dim);
    struct ggml_tensor *out;

    q = ggml_permute(ctx, q, 0, 2, 1, 3);              // [head_dim, n, n_head]
    struct ggml_tensor *k = cached_heads(g, layer->k); // [head_dim, n_kv, n_head_kv]
    struct ggml_tensor *v = cached_heads(g, layer->v); // [head_dim, n_kv, n_head_kv]
    if (g->flash) {
        out = ggml_flash_attn_ext(ctx, q, k, v, rows->mask, scale, 0, 0); // [head_dim, n_head, n]
        ggml_prec_set_acc(out, GGML_PREC_F32);
    } else {
        struct ggml_tensor *kq = ggml_mul_mat(ctx, k, q);                          // [n_kv, n, n_head]
        kq = ggml_soft_max_ext(ctx, kq, rows->mask, scale, 0);                     // [n_kv, n, n_head]
        if (ggml_is_quantized(v->type)) v = ggml_cast(ctx, v, GGML_TYPE_F32);      // [head_dim, n_kv, n_head_kv]
        struct ggml_tensor *vt = ggml_cont(ctx, ggml_permute(ctx, v, 1, 0, 2, 3)); // [n_kv, head_dim, n_head_kv]
        out = ggml_mul_mat(ctx, vt, kq);                                           // [head_dim, n, n_head]
        out = ggml_cont(ctx, ggml_permute(ctx, out, 0, 2, 1, 3));                  // [head_dim, n_head, n]
    }
    return ggml_reshape_2d(ctx, out, kin_hparams_n_embd_q(hp), rows->n);
}

// Attention by kin's kernels: a layer's three products in one node, its heads in the next.
static struct ggml_tensor *attention_by_kernels(kin_graph *g, int il, struct ggml_tensor *x) {
    const kin_hparams *hp = g->hp;
    struct ggml_tensor *const *w = g->layers[il].w;
    struct ggml_tensor *const qkv[] = {w[KIN_W_ATTN_Q], w[KIN_W_ATTN_K], w[KIN_W_ATTN_V]};
    struct ggml_tensor *const bias[] = {w[KIN_W_ATTN_Q_BIAS], w[KIN_W_ATTN_K_BIAS], w[KIN_W_ATTN_V_BIAS]};
    struct ggml_tensor *cur = kin_block_norm(g, x, w[KIN_W_ATTN_NORM]); // [n_embd, n_tokens]
    struct ggml_tensor *y;
    kin_graph_rows *rows = &g->all;

    if (g->out_rows && il == hp->n_layer - 1) {         // after the last layer the other tokens are not needed
        y = linear_stack(g, qkv + 1, bias + 1, 2, cur); // [2 n_embd_kv, n_tokens]
        ggml_build_forward_expand(g->gf, kin_op_heads(g, il, y, 0, hp->n_head_kv, rows));
        rows = &g->out;
        x = ggml_get_rows(g->ctx, x, g->out_rows);     // [n_embd, n_out]
        cur = ggml_get_rows(g->ctx, cur, g->out_rows); // [n_embd, n_out]
        y = linear(g, qkv[0], bias[0], cur);           // [n_embd_q, n_out]
        y = kin_op_heads(g, il, y, hp->n_head, 0, rows);
    } else {
        y = linear_stack(g, qkv, bias, 3, cur); // [n_embd_q + 2 n_embd_kv, n_tokens]
        y = kin_op_heads(g, il, y, hp->n_head, hp->n_head_kv, rows);
    }
    cur = kin_op_attend(g, il, y, rows); // [n_embd_q, n]
    return linear_onto(g, w[KIN_W_ATTN_OUT], w[KIN_W_ATTN_OUT_BIAS], cur, x);
}

struct ggml_tensor *kin_block_attention(kin_graph *g, int il, struct ggml_tensor *x) {
    if (g->kernels) return attention_by_kernels(g, il, x);
    const kin_hparams *hp = g->hp;
    const kin_graph_layer *layer = &g->layers[il];
    struct ggml_tensor *const *w = layer->w;
    const kin_graph_rows *rows = &g->all;

    struct ggml_tensor *cur = kin_block_norm(g, x, w[KIN_W_ATTN_NORM]); // [n_embd, n_tokens]

    struct ggml_tensor *k = linear(g, w[KIN_W_ATTN_K], w[KIN_W_ATTN_K_BIAS], cur); // [n_embd_kv, n_tokens]
    struct ggml_tensor *v = linear(g, w[KIN_W_ATTN_V], w[KIN_W_ATTN_V_BIAS], cur); // [n_embd_kv, n_tokens]
    k = heads(g, k, hp->n_head_kv, w[KIN_W_ATTN_K_NORM], rows);
    store(g, layer->k, ggml_reshape_2d(g->ctx, k, kin_hparams_n_embd_kv(hp), rows->n));
    store(g, layer->v, v);

    // After the last layer the other tokens are not needed: from here on only the wanted ones are computed.
    if (g->out_rows && il == hp->n_layer - 1) {
        rows = &g->out;
        x = ggml_get_rows(g->ctx, x, g->out_rows);     // [n_embd, n_out]
        cur = ggml_get_rows(g->ctx, cur, g->out_rows); // [n_embd, n_out]
    }
    struct ggml_tensor *q = linear(g, w[KIN_W_ATTN_Q], w[KIN_W_ATTN_Q_BIAS], cur); // [n_embd_q, n]
    q = heads(g, q, hp->n_head, w[KIN_W_ATTN_Q_NORM], rows);

    cur = attend(g, layer, q, rows); // [n_embd_q, n]
    return linear_onto(g, w[KIN_W_ATTN_OUT], w[KIN_W_ATTN_OUT_BIAS], cur, x);
}

struct ggml_tensor *kin_block_ffn_dense_in(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w;
    struct ggml_tensor *cur = kin_block_norm(g, x, w[KIN_W_FFN_NORM]); // [n_embd, n]
    if (g->kernels && kin_ops_gate(w[KIN_W_FFN_GATE], w[KIN_W_FFN_UP]))
        return kin_op_gated(g, cur, w[KIN_W_FFN_GATE], w[KIN_W_FFN_UP]); // [n_ff, n]
    struct ggml_tensor *gate = linear(g, w[KIN_W_FFN_GATE], NULL, cur);  // [n_ff, n]
    struct ggml_tensor *up = linear(g, w[KIN_W_FFN_UP], NULL, cur);      // [n_ff, n]
    return ggml_swiglu_split(g->ctx, gate, up);                          // [n_ff, n]
}

static struct ggml_tensor *ffn_down(kin_graph *g, int il, struct ggml_tensor *h, struct ggml_tensor *x) {
    return linear_onto(g, g->layers[il].w[KIN_W_FFN_DOWN], NULL, h, x); // [n_embd, n]
}

struct ggml_tensor *kin_block_ffn_dense_out(kin_graph *g, int il, struct ggml_tensor *h) {
    return ffn_down(g, il, h, g->residual);
}

struct ggml_tensor *kin_block_ffn_dense(kin_graph *g, int il, struct ggml_tensor *x) {
    return ffn_down(g, il, kin_block_ffn_dense_in(g, il, x), x);
}

// Chooses the experts of each token. cur: [n_embd, n] -> *chosen: i32 [n_used, n]; returns their weights [1, n_used, n].
static struct ggml_tensor *route(kin_graph *g, struct ggml_tensor *router, struct ggml_tensor *cur, struct ggml_tensor **chosen) {
    const kin_hparams *hp = g->hp;
    int64_t n = cur->ne[1];
    struct ggml_tensor *probs = ggml_soft_max(g->ctx, linear(g, router, NULL, cur)); // [n_expert, n]
    *chosen = ggml_argsort_top_k(g->ctx, probs, hp->n_expert_used);                  // i32 [n_used, n]

    struct ggml_tensor *weights =
        ggml_get_rows(g->ctx, ggml_reshape_3d(g->ctx, probs, 1, hp->n_expert, n), *chosen); // [1, n_used, n]
    weights = ggml_reshape_2d(g->ctx, weights, hp->n_expert_used, n);                       // [n_used, n]
    weights = ggml_div(g->ctx, weights, ggml_sum_rows(g->ctx, weights));                    // [n_used, n]
    return ggml_reshape_3d(g->ctx, weights, 1, hp->n_expert_used, n);
}

static bool experts_by_kernels(const kin_graph *g, int il) {
    struct ggml_tensor *const *w = g->layers[il].w;
    return g->kernels && kin_ops_gate(w[KIN_W_FFN_GATE_EXPS], w[KIN_W_FFN_UP_EXPS]) && kin_ops_multiply(w[KIN_W_FFN_DOWN_EXPS]);
}

// By kin's kernels: i32 [2 n_used, n], see kin_op_route.
static struct ggml_tensor *route_by_kernels(kin_graph *g, int il, struct ggml_tensor *cur) {
    return kin_op_route(g, linear(g, g->layers[il].w[KIN_W_FFN_ROUTER], NULL, cur));
}

struct ggml_tensor *kin_block_ffn_experts(kin_graph *g, int il, struct ggml_tensor *x) {
    const kin_hparams *hp = g->hp;
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *const *w = g->layers[il].w;
    int64_t n = x->ne[1];
    struct ggml_tensor *cur = kin_block_norm(g, x, w[KIN_W_FFN_NORM]); // [n_embd, n]
    struct ggml_tensor *sum = g->sums ? NULL : x;
    if (experts_by_kernels(g, il)) {
        sum = kin_op_experts(g, sum, cur, route_by_kernels(g, il, cur), w[KIN_W_FFN_GATE_EXPS], w[KIN_W_FFN_UP_EXPS],
                             w[KIN_W_FFN_DOWN_EXPS]);
        return g->sums ? kin_op_sum(g, sum, x) : sum;
    }

    struct ggml_tensor *chosen;
    struct ggml_tensor *weights = route(g, w[KIN_W_FFN_ROUTER], cur, &chosen); // [1, n_used, n]

    for (int id = KIN_W_FFN_GATE_EXPS; id <= KIN_W_FFN_DOWN_EXPS; id++) kin_assert(!kin_ops_is_packed(w[id]));
    cur = ggml_reshape_3d(ctx, cur, hp->n_embd, 1, n);                                    // [n_embd, 1, n]
    struct ggml_tensor *gate = ggml_mul_mat_id(ctx, w[KIN_W_FFN_GATE_EXPS], cur, chosen); // [n_ff_exp, n_used, n]
    struct ggml_tensor *up = ggml_mul_mat_id(ctx, w[KIN_W_FFN_UP_EXPS], cur, chosen);     // [n_ff_exp, n_used, n]
    cur = ggml_swiglu_split(ctx, gate, up);                                               // [n_ff_exp, n_used, n]
    cur = ggml_mul_mat_id(ctx, w[KIN_W_FFN_DOWN_EXPS], cur, chosen);                      // [n_embd, n_used, n]
    cur = ggml_mul(ctx, cur, weights);                                                    // [n_embd, n_used, n]

    for (int i = 0; i < hp->n_expert_used; i++) {
        struct ggml_tensor *one = ggml_view_2d(ctx, cur, hp->n_embd, n, cur->nb[2], (size_t)i * cur->nb[1]); // [n_embd, n]
        sum = sum ? ggml_add(ctx, sum, one) : ggml_cont(ctx, one);
    }
    return g->sums ? kin_op_sum(g, sum, x) : sum;
}

struct ggml_tensor *kin_block_route(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w;
    struct ggml_tensor *cur = kin_block_norm(g, x, w[KIN_W_FFN_NORM]); // [n_embd, n]
    struct ggml_tensor *chosen;
    if (experts_by_kernels(g, il)) {
        struct ggml_tensor *routed = route_by_kernels(g, il, cur);
        chosen = ggml_view_2d(g->ctx, routed, g->hp->n_expert_used, routed->ne[1], routed->nb[1], 0);
    } else {
        route(g, w[KIN_W_FFN_ROUTER], cur, &chosen);
    }
    return ggml_cont(g->ctx, chosen); // i32 [n_used, n]
}
