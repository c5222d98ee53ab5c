// Streams that gates of low rank mix (Qwen 4): each stream is normalised by itself; two matrices and a sigmoid make a gate of
// each of their numbers, and a block reads the mean of the gated streams. A mixer stands in the place of each norm of a layer,
// and of the norm before the output.
//   n = rms(x_s) norm, for each stream s;  gate = sigmoid(up silu(down n / n_streams))
//   in = mean over s of n_s gate_s;  x_s += 2 sigmoid((inject n)_s / n_streams) y
#include <string.h>

#include "model/kernel/ops_impl.h"
#include "model/streams.h"

enum { PART = 256 }; // numbers that are gated at a time

typedef struct mixer_weights {
    struct ggml_tensor *norm;   // [stream width]
    struct ggml_tensor *down;   // [stream width, rank]
    struct ggml_tensor *up;     // [rank, stream width]
    struct ggml_tensor *inject; // [stream width, n_streams]; NULL at the end
} mixer_weights;

static mixer_weights weights_of(const kin_graph *g, int il, kin_streams_block block) {
    struct ggml_tensor *const *w = g->layers[il].w;
    if (block == KIN_STREAMS_ATTN)
        return (mixer_weights){w[KIN_W_GATED_ATTN_NORM], w[KIN_W_GATED_ATTN_DOWN], w[KIN_W_GATED_ATTN_UP],
                               w[KIN_W_GATED_ATTN_INJECT]};
    return (mixer_weights){w[KIN_W_GATED_FF_NORM], w[KIN_W_GATED_FF_DOWN], w[KIN_W_GATED_FF_UP], w[KIN_W_GATED_FF_INJECT]};
}

// A chunk of every node here is a token.
static int count_tokens(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1];
}

static float *row_of(const struct ggml_tensor *t, int64_t row) {
    return (float *)t->data + row * t->ne[0];
}

// Sources: x, the weight.
static void norm_streams(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int64_t n = op->hp->n_embd;
    const float *x = row_of(y->src[0], c->i), *weight = y->src[1]->data;
    float *to = row_of(y, c->i);
    (void)n_threads;
    for (int64_t at = 0; at < y->ne[0]; at += n) op->kernels->rms_norm(n, x + at, weight + at, op->eps, to + at);
}

static const kin_op_run norms = {.count = count_tokens, .compute = norm_streams};

// y = SiLU(y / n_streams)
static void activate_low(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const float scale = 1 / (float)op->hp->n_streams;
    float *at = row_of(y, c->i), one[PART];
    (void)n_threads;
    for (int i = 0; i < PART; i++) one[i] = 1;
    for (int64_t i = 0; i < y->ne[0]; i++) at[i] *= scale;
    for (int64_t done = 0; done < y->ne[0]; done += PART) {
        const int64_t n = y->ne[0] - done < PART ? y->ne[0] - done : PART;
        op->kernels->gate(KIN_GATE_SILU, n, at + done, one, at + done);
    }
}

static const kin_op_run activations = {.count = count_tokens, .compute = activate_low};

// Sources: the normalised streams, the gates before their sigmoid.
static void mix_in(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int64_t n_embd = y->ne[0];
    const float *x = row_of(y->src[0], c->i), *gate = row_of(y->src[1], c->i), share = 1 / (float)op->hp->n_streams;
    float *to = row_of(y, c->i), part[PART];
    (void)n_threads;
    memset(to, 0, (size_t)n_embd * sizeof *to);
    for (int64_t done = 0; done < n_embd; done += PART) {
        const int64_t n = n_embd - done < PART ? n_embd - done : PART;
        for (int s = 0; s < op->hp->n_streams; s++) {
            memcpy(part, x + s * n_embd + done, (size_t)n * sizeof *part);
            op->kernels->gate_heads(KIN_HEAD_GATE_SIGMOID, true, 1, (int)n, gate + s * n_embd + done, part);
            op->kernels->add_scaled(n, share, part, to + done);
        }
    }
}

static const kin_op_run mixing_in = {.count = count_tokens, .compute = mix_in};

// Sources: x, the products of inject, the block's result.
static void mix_out(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *result = y->src[2];
    const int64_t n = result->ne[0];
    const float *inject = row_of(y->src[1], c->i), two = 2;
    float *to = row_of(y, c->i);
    (void)n_threads;
    memcpy(to, row_of(y->src[0], c->i), (size_t)y->ne[0] * sizeof *to);
    for (int s = 0; s < op->hp->n_streams; s++) {
        float share;
        op->kernels->scale_sigmoid(1, inject[s] / (float)op->hp->n_streams, &two, &share);
        op->kernels->add_scaled(n, share, row_of(result, c->i), to + s * n);
    }
}

static const kin_op_run mixing_out = {.count = count_tokens, .compute = mix_out};

// ---- the kind

// Returns the normalised streams of x // [stream width, n]: the same shape
static struct ggml_tensor *normed(kin_graph *g, struct ggml_tensor *weight, struct ggml_tensor *x) {
    struct ggml_tensor *args[] = {x, weight};
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->eps = g->hp->rms_eps;
    return kin_op_node(g, GGML_TYPE_F32, x->ne[0], x->ne[1], args, 2, &norms, op);
}

// Returns the mixture of normalised streams // [stream width, n]: [n_embd, n]
static struct ggml_tensor *mixed(kin_graph *g, const mixer_weights *w, struct ggml_tensor *x) {
    struct ggml_tensor *low = kin_op_linear(g, x, &w->down, NULL, 1, NULL); // [rank, n]
    low = kin_op_inplace(g, low, NULL, 0, &activations, kin_op_new(g, KIN_OP_OTHER));
    struct ggml_tensor *args[] = {x, kin_op_linear(g, low, &w->up, NULL, 1, NULL)};
    return kin_op_node(g, GGML_TYPE_F32, g->hp->n_embd, x->ne[1], args, 2, &mixing_in, kin_op_new(g, KIN_OP_OTHER));
}

static struct ggml_tensor *gated_in(kin_graph *g, int il, kin_streams_block block, struct ggml_tensor *x,
                                    struct ggml_tensor **gates) {
    const mixer_weights w = weights_of(g, il, block);
    struct ggml_tensor *n = normed(g, w.norm, x);
    *gates = kin_op_linear(g, n, &w.inject, NULL, 1, NULL); // [n_streams, n]
    return mixed(g, &w, n);
}

static struct ggml_tensor *gated_out(kin_graph *g, int il, kin_streams_block block, struct ggml_tensor *x,
                                     struct ggml_tensor *gates, struct ggml_tensor *y) {
    struct ggml_tensor *args[] = {x, gates, y};
    (void)il, (void)block;
    return kin_op_node(g, GGML_TYPE_F32, x->ne[0], x->ne[1], args, 3, &mixing_out, kin_op_new(g, KIN_OP_OTHER));
}

static struct ggml_tensor *gated_end(kin_graph *g, struct ggml_tensor *const *ends, struct ggml_tensor *x) {
    const mixer_weights w = {ends[0], ends[1], ends[2], NULL};
    return mixed(g, &w, normed(g, w.norm, x));
}

enum { N_ENDS = 3 };

static bool end_named(const kin_hparams *hp, int i, const char *const names[N_ENDS], kin_streams_end *out) {
    const int64_t width = kin_hparams_stream_width(hp), rank = hp->n_mixer_rank;
    const kin_streams_end ends[N_ENDS] = {
        {names[0], {width, 1, 1}, true}, {names[1], {width, rank, 1}, false}, {names[2], {rank, width, 1}, false}};
    if (i >= N_ENDS) return false;
    *out = ends[i];
    return true;
}

static bool gated_end_at(const kin_hparams *hp, int i, kin_streams_end *out) {
    static const char *const names[] = {"output_hc_norm.weight", "output_hc_down.weight", "output_hc_up.weight"};
    return end_named(hp, i, names, out);
}

static bool gated_draft_end_at(const kin_hparams *hp, int i, kin_streams_end *out) {
    static const char *const names[] = {"nextn.hc_head_norm.weight", "nextn.hc_head_down.weight", "nextn.hc_head_up.weight"};
    return end_named(hp, i, names, out);
}

const kin_streams_mixer kin_streams_gated = {.in = gated_in,
                                             .out = gated_out,
                                             .end = gated_end,
                                             .end_at = gated_end_at,
                                             .draft_end_at = gated_draft_end_at,
                                             .norm = normed};
