// The blocks of a layer, built from its description (kin_layer) and the weights it has. Each function adds nodes to g->gf and
// returns the last one. Shapes are in ggml's order, fastest dimension first; all activations are f32.
#pragma once

#include "model/graph.h"

// Root-mean-square norm over the first dimension, of x minus its mean if the model says so, times `weight`, plus `bias`. bias may
// be NULL.
struct ggml_tensor *kin_block_norm(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *weight, struct ggml_tensor *bias);

// The output layer, or a tile of its rows: x: [n_embd, n] -> [n_rows, n]
struct ggml_tensor *kin_block_output(kin_graph *g, struct ggml_tensor *matrix, struct ggml_tensor *x);

// Returns the feature of this model that only kin's kernels compute, as a noun phrase for an error; NULL: ggml computes all of
// it in a context of n_ctx tokens.
const char *kin_blocks_without_ggml(const kin_hparams *hp, int n_ctx);

// Multi-head attention with grouped key/value heads. x: [n_embd, n_tokens] -> x + attention(norm(x)). In the model's last layer
// only g->out_rows are kept: [n_embd, n_out]. With several streams x and the results of this and of the following two functions
// are [stream width, n], and blocks mix them (model/streams.h) instead of adding to them.
struct ggml_tensor *kin_block_attention(kin_graph *g, int il, struct ggml_tensor *x);

// The feed-forward block, dense or with experts. x: [n_embd, n] -> x + ffn(norm(x))
struct ggml_tensor *kin_block_ffn(kin_graph *g, int il, struct ggml_tensor *x);

// All blocks of a layer. x: [n_embd, n_tokens] -> [n_embd, n], as kin_block_attention does
struct ggml_tensor *kin_block_layer(kin_graph *g, int il, struct ggml_tensor *x);

// The two halves of a dense block, of models with one stream. x: [n_embd, n] -> h: [n_ff, n]; h -> g->residual + down(h):
// [n_embd, n]
struct ggml_tensor *kin_block_ffn_in(kin_graph *g, int il, struct ggml_tensor *x);
struct ggml_tensor *kin_block_ffn_out(kin_graph *g, int il, struct ggml_tensor *h);

// The experts that kin_block_ffn will use, with ggml's kernels. x: [n_embd, n] -> i32 [n_expert_used, n]
struct ggml_tensor *kin_block_route(kin_graph *g, int il, struct ggml_tensor *x);
