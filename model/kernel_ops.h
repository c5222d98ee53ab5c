// kin's kernels as nodes of a ggml graph: they run in ggml's thread pool, between ggml's own operators.
//
// A node's work is cut into chunks that the pool's threads take one after the other, so a slow core keeps no other one waiting.
// Which thread computes what never changes a bit.
//
// Activations are rounded once for all matrices that read them: see kin_op_linear.
// Thread: the one that builds the graph. What the nodes need beside their tensors lies in the graph's kin_ops.
#pragma once

#include <ggml-backend.h>

#include "model/graph.h"

// Whether kin's kernels compute models of this shape: heads and widths in whole vectors.
bool kin_ops_fit(const kin_hparams *hp, int kv_type);

// Bytes of a node's kin_op.
size_t kin_op_bytes(void);

// As ggml_backend_graph_compute, for a graph that may have such nodes.
enum ggml_status kin_ops_compute(kin_graph *g, ggml_backend_t backend);

// Says of a weight's tensor that its data are panels (kin_kernel_pack): ggml's operators must not read them.
void kin_ops_mark_packed(struct ggml_tensor *weight);
bool kin_ops_is_packed(const struct ggml_tensor *weight);

// Whether kin's kernels multiply with this weight (a matrix, or those of all experts); else ggml does.
bool kin_ops_multiply(const struct ggml_tensor *weight);

// Whether kin_op_gated takes such weights; up NULL: gate has the rows of both.
bool kin_ops_gate(const struct ggml_tensor *gate, const struct ggml_tensor *up);

// Whether kin_op_experts takes weights of such types and shapes (no data are looked at). If it does not take all three, ggml
// multiplies with all of them.
bool kin_ops_take_experts(const kin_matrix *gate, const kin_matrix *up, const kin_matrix *down);

// x // [n, n_rows] -> the same shape
struct ggml_tensor *kin_op_norm(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *weight);

// x // f32 [n_in, n] rounded for a kind: tiles of rows, one after the other, each as kin_kernels.quantize makes it. x itself for
// KIN_ACT_F32. Products do it themselves.
struct ggml_tensor *kin_op_rounded(kin_graph *g, struct ggml_tensor *x, kin_act_kind kind);

// Products of one input with up to KIN_OP_MATRICES weights, stacked: x // [n_in, n] -> [sum of their n_out, n]. bias: NULL, or
// [n_weights] of which each may be NULL. residual: NULL, or [n_out, n], added to the first weight's product.
enum { KIN_OP_MATRICES = 3 };
struct ggml_tensor *kin_op_linear(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *const *weights,
                                  struct ggml_tensor *const *bias, int n_weights, struct ggml_tensor *residual);

// The activation of gate x, times up x, of weights whose inputs are rounded alike: x // [n_embd, n] -> [n_ff, n]. up NULL: gate
// has the rows of both, one after the other.
struct ggml_tensor *kin_op_gated(kin_graph *g, kin_gate kind, struct ggml_tensor *x, struct ggml_tensor *gate,
                                 struct ggml_tensor *up);

// residual + scale * y; all // [n_embd, n]
struct ggml_tensor *kin_op_add(kin_graph *g, struct ggml_tensor *y, float scale, struct ggml_tensor *residual);

// x // [n_ff, n], each row times the sigmoid of its number in gate // [1, n]. Changes x.
struct ggml_tensor *kin_op_scale_sigmoid(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *gate);

// Makes heads of y in place: rows of n_q query heads, n_kv key heads and n_kv value heads; a part may be missing (0). Queries and
// keys are normed where the layer says so and rotated by the rows' positions; keys and values go to their cells of the cache.
struct ggml_tensor *kin_op_heads(kin_graph *g, int il, struct ggml_tensor *y, int n_q, int n_kv, kin_graph_rows *rows);

// Attention of rows of heads // [at least n_embd_q, n], queries first -> [n_embd_q, n]
struct ggml_tensor *kin_op_attend(kin_graph *g, int il, struct ggml_tensor *heads, kin_graph_rows *rows);

// y + residual, where y // [n_embd, n] is this device's part of what the group's devices compute: all parts are added up first.
// Changes y. For g->sums.
struct ggml_tensor *kin_op_sum(kin_graph *g, struct ggml_tensor *y, struct ggml_tensor *residual);

// ---- experts

// The experts of each row: logits // [n_expert, n] -> i32 [2 * n_used, n]: their numbers, then the bits of their shares.
// choice_bias: f32 [n_expert], NULL: none.
struct ggml_tensor *kin_op_route(kin_graph *g, struct ggml_tensor *logits, struct ggml_tensor *choice_bias);

// x + the sum over a token's experts of share * down(activation(gate x') * (up x')), x' the normed x // [n_embd, n]. x NULL:
// without it. w: the layer's weights [KIN_W_COUNT], of which those of experts and their biases are used.
struct ggml_tensor *kin_op_experts(kin_graph *g, kin_gate kind, struct ggml_tensor *x, struct ggml_tensor *normed,
                                   struct ggml_tensor *routed, struct ggml_tensor *const *w);
