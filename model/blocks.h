// The building blocks that the families share. Each adds nodes to g->gf and returns the last one.
// Shapes are in ggml's order, fastest dimension first; all activations are f32.
#pragma once

#include "model/graph.h"

// Root-mean-square norm over the first dimension, times `weight`.
struct ggml_tensor *kin_block_norm(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *weight);

// The output layer, or a tile of its rows: x: [n_embd, n] -> [n_rows, n]
struct ggml_tensor *kin_block_output(kin_graph *g, struct ggml_tensor *matrix, struct ggml_tensor *x);

// Multi-head attention with rotary positions and grouped key/value heads, biases and per-head norms where the layer has them.
// x: [n_embd, n_tokens] -> x + attention(norm(x)). In the model's last layer only g->out_rows remain: [n_embd, n_out].
struct ggml_tensor *kin_block_attention(kin_graph *g, int il, struct ggml_tensor *x);

// x + down(silu(gate(norm(x))) * up(norm(x))). x: [n_embd, n]
struct ggml_tensor *kin_block_ffn_dense(kin_graph *g, int il, struct ggml_tensor *x);

// Its halves. x: [n_embd, n] -> h: [n_ff, n]; h -> g->residual + down(h): [n_embd, n]
struct ggml_tensor *kin_block_ffn_dense_in(kin_graph *g, int il, struct ggml_tensor *x);
struct ggml_tensor *kin_block_ffn_dense_out(kin_graph *g, int il, struct ggml_tensor *h);

// Mixture of experts: the router's softmax picks n_expert_used experts per token, whose weights are made to sum to 1.
// x: [n_embd, n] -> x + sum of the chosen experts' outputs.
struct ggml_tensor *kin_block_ffn_experts(kin_graph *g, int il, struct ggml_tensor *x);

// The experts that kin_block_ffn_experts will use. x: [n_embd, n] -> i32 [n_expert_used, n]
struct ggml_tensor *kin_block_route(kin_graph *g, int il, struct ggml_tensor *x);
