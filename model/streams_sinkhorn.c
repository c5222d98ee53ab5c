// Streams that Sinkhorn's iteration mixes (DeepSeek V4, GLM-5.3-Flash): kin_sinkhorn in kernels/kernels.h says what a token's
// gates are. They are made of a product of all its streams, normalised together without a weight. What ends the streams is made
// of such gates, too, or is their mean.
#include <string.h>

#include "model/kernel/ops_impl.h"
#include "model/streams.h"

typedef struct mix_weights {
    struct ggml_tensor *fn;    // [stream width, n_gates]
    struct ggml_tensor *base;  // [n_gates]
    struct ggml_tensor *scale; // [3], at the end [1]
} mix_weights;

static mix_weights weights_of(const kin_graph *g, int il, kin_streams_block block) {
    struct ggml_tensor *const *w = g->layers[il].w;
    if (block == KIN_STREAMS_ATTN)
        return (mix_weights){w[KIN_W_SINKHORN_ATTN_FN], w[KIN_W_SINKHORN_ATTN_BASE], w[KIN_W_SINKHORN_ATTN_SCALE]};
    return (mix_weights){w[KIN_W_SINKHORN_FF_FN], w[KIN_W_SINKHORN_FF_BASE], w[KIN_W_SINKHORN_FF_SCALE]};
}

// A chunk of every node here is a token.
static int count_tokens(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1];
}

// ---- gates

// Sources: x.
static void norm_token(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int64_t n = y->ne[0];
    (void)n_threads;
    op->kernels->rms_norm(n, (const float *)y->src[0]->data + c->i * n, NULL, op->eps, (float *)y->data + c->i * n);
}

static const kin_op_run norms = {.count = count_tokens, .compute = norm_token};

// Sources: the products, base, scale.
static void make_gates(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *products = y->src[0];
    const kin_sinkhorn how = {.n_streams = op->hp->n_streams,
                              .n_iterations = op->hp->sinkhorn.n_iterations,
                              .eps = op->hp->sinkhorn.eps,
                              .is_end = y->ne[0] == op->hp->n_streams,
                              .base = y->src[1]->data,
                              .scale = y->src[2]->data};
    (void)n_threads;
    op->kernels->sinkhorn(&how, (const float *)products->data + c->i * products->ne[0], (float *)y->data + c->i * y->ne[0]);
}

static const kin_op_run gates = {.count = count_tokens, .compute = make_gates};

// Returns the gates of x // [stream width, n]: [n_gates, n]
static struct ggml_tensor *gates_of(kin_graph *g, const mix_weights *w, struct ggml_tensor *x) {
    struct kin_op *norm = kin_op_new(g, KIN_OP_OTHER);
    norm->eps = g->hp->rms_eps;
    struct ggml_tensor *normed = kin_op_node(g, GGML_TYPE_F32, x->ne[0], x->ne[1], &x, 1, &norms, norm); // [stream width, n]
    struct ggml_tensor *args[] = {kin_op_linear(g, normed, &w->fn, NULL, 1, NULL), w->base, w->scale};
    return kin_op_node(g, GGML_TYPE_F32, w->fn->ne[1], x->ne[1], args, 3, &gates, kin_op_new(g, KIN_OP_OTHER));
}

// ---- mixing

// Sources: x, the gates, which begin with the part of each stream.
static void mix_in(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int64_t n = y->ne[0];
    const float *x = (const float *)y->src[0]->data + c->i * y->src[0]->ne[0];
    const float *part = (const float *)y->src[1]->data + c->i * y->src[1]->ne[0];
    float *to = (float *)y->data + c->i * n;
    (void)n_threads;
    memset(to, 0, (size_t)n * sizeof *to);
    for (int s = 0; s < op->hp->n_streams; s++) op->kernels->add_scaled(n, part[s], x + s * n, to);
}

static const kin_op_run mixing_in = {.count = count_tokens, .compute = mix_in};

static struct ggml_tensor *mixed(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *of) {
    struct ggml_tensor *args[] = {x, of};
    return kin_op_node(g, GGML_TYPE_F32, g->hp->n_embd, x->ne[1], args, 2, &mixing_in, kin_op_new(g, KIN_OP_OTHER));
}

// Sources: x, the gates, the block's result.
static void mix_out(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *result = y->src[2];
    const int n_streams = op->hp->n_streams;
    const int64_t n = result->ne[0];
    const float *x = (const float *)y->src[0]->data + c->i * y->ne[0], *added = (const float *)result->data + c->i * n;
    const float *post = (const float *)y->src[1]->data + c->i * y->src[1]->ne[0] + n_streams, *of = post + n_streams;
    float *to = (float *)y->data + c->i * y->ne[0];
    (void)n_threads;
    memset(to, 0, (size_t)y->ne[0] * sizeof *to);
    for (int d = 0; d < n_streams; d++, to += n) {
        op->kernels->add_scaled(n, post[d], added, to);
        for (int s = 0; s < n_streams; s++) op->kernels->add_scaled(n, of[s * n_streams + d], x + s * n, to);
    }
}

static const kin_op_run mixing_out = {.count = count_tokens, .compute = mix_out};

// ---- the kind

static struct ggml_tensor *sinkhorn_in(kin_graph *g, int il, kin_streams_block block, struct ggml_tensor *x,
                                       struct ggml_tensor **of) {
    const mix_weights w = weights_of(g, il, block);
    *of = gates_of(g, &w, x);
    return mixed(g, x, *of);
}

static struct ggml_tensor *sinkhorn_out(kin_graph *g, int il, kin_streams_block block, struct ggml_tensor *x,
                                        struct ggml_tensor *of, struct ggml_tensor *y) {
    struct ggml_tensor *args[] = {x, of, y};
    (void)il, (void)block;
    return kin_op_node(g, GGML_TYPE_F32, x->ne[0], x->ne[1], args, 3, &mixing_out, kin_op_new(g, KIN_OP_OTHER));
}

static struct ggml_tensor *sinkhorn_end(kin_graph *g, struct ggml_tensor *const *ends, struct ggml_tensor *x) {
    const mix_weights w = {ends[0], ends[1], ends[2]};
    return mixed(g, x, gates_of(g, &w, x));
}

static bool sinkhorn_end_at(const kin_hparams *hp, int i, kin_streams_end *out) {
    const kin_streams_end ends[] = {{"output_hc_fn.weight", {kin_hparams_stream_width(hp), hp->n_streams, 1}, false},
                                    {"output_hc_base.weight", {hp->n_streams, 1, 1}, true},
                                    {"output_hc_scale.weight", {1, 1, 1}, true}};
    if (i >= (int)(sizeof ends / sizeof ends[0])) return false;
    *out = ends[i];
    return true;
}

// Sources: x.
static void average_token(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int64_t n = y->ne[0];
    (void)n_threads;
    kin_streams_average(op->kernels, op->hp->n_streams, n, (const float *)y->src[0]->data + c->i * y->src[0]->ne[0],
                        (float *)y->data + c->i * n);
}

static const kin_op_run averages = {.count = count_tokens, .compute = average_token};

static struct ggml_tensor *mean_end(kin_graph *g, struct ggml_tensor *const *ends, struct ggml_tensor *x) {
    (void)ends;
    return kin_op_node(g, GGML_TYPE_F32, g->hp->n_embd, x->ne[1], &x, 1, &averages, kin_op_new(g, KIN_OP_OTHER));
}

static bool mean_end_at(const kin_hparams *hp, int i, kin_streams_end *out) {
    (void)hp, (void)i, (void)out;
    return false;
}

const kin_streams_mixer kin_streams_sinkhorn_mean = {
    .in = sinkhorn_in, .out = sinkhorn_out, .end = mean_end, .end_at = mean_end_at};

const kin_streams_mixer kin_streams_sinkhorn = {
    .in = sinkhorn_in, .out = sinkhorn_out, .end = sinkhorn_end, .end_at = sinkhorn_end_at};
