// kin's kernels as nodes of a ggml graph.
//
// A node's work is cut into chunks that threads take one after the other, so a slow core does not delay the others. The result
// never depends on which thread computes a chunk. A graph has either only such nodes, which kin's own threads compute
// (sys/team/team.h), or only ggml's operators, apart from kin_op_sum.
//
// Activations are rounded once for all matrices that read them: see kin_op_linear. Thread: the one that builds the graph. The
// nodes' parameters, besides their tensors, are in the graph's kin_ops.
#pragma once

#include <ggml-backend.h>

#include "model/graph.h"

// Fails unless kin's kernels ("they" in the sentence) support models of this shape: heads and widths must be whole vectors.
int kin_ops_check(const kin_hparams *hp, int kv_type, kin_err *why);

// Returns the size of a node's kin_op.
size_t kin_op_bytes(void);

// Computes a graph: with the device's team if it is built with kernels, else like ggml_backend_graph_compute.
enum ggml_status kin_ops_compute(kin_graph *g, ggml_backend_t backend);

// Computes nodes of a graph, all of which must be kin's or views, with a team.
enum ggml_status kin_ops_run(const kin_graph *g, kin_team *team, struct ggml_tensor **nodes, int n_nodes);

// Marks a weight's tensor as packed into panels (kin_kernel_pack): ggml's operators must not read it.
void kin_ops_mark_packed(struct ggml_tensor *weight);
bool kin_ops_is_packed(const struct ggml_tensor *weight);

// x // [n, n_rows] -> the same shape. bias NULL: none
struct ggml_tensor *kin_op_norm(kin_graph *g, float eps, struct ggml_tensor *x, struct ggml_tensor *weight,
                                struct ggml_tensor *bias);

// Rounds x // f32 [n_in, n] to a kind: tiles of rows, one after the other, each as kin_kernels.quantize makes it; of several
// matrices [n_in, n, any] one after the other. Returns x
// itself for KIN_ACT_F32. Matrix products call this themselves.
struct ggml_tensor *kin_op_rounded(kin_graph *g, struct ggml_tensor *x, kin_act_kind kind);

// Multiplies one input with up to KIN_OP_MATRICES weights and stacks the results: x // [n_in, n] -> [sum of their n_out, n].
// bias: NULL, or [n_weights], each of which may be NULL. residual: NULL, or [n_out, n], added to the first weight's product.
enum { KIN_OP_MATRICES = 3 };
struct ggml_tensor *kin_op_linear(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *const *weights,
                                  struct ggml_tensor *const *bias, int n_weights, struct ggml_tensor *residual);

// activation(gate x) * up x, with a limit unless it is 0 (kin_kernels.gate_limited): x // [n_embd, n] -> [n_ff, n]. up NULL: gate
// has the rows of both, one after the other.
struct ggml_tensor *kin_op_gated(kin_graph *g, kin_gate kind, float limit, struct ggml_tensor *x, struct ggml_tensor *gate,
                                 struct ggml_tensor *up);

// residual + scale * y; all // [n_embd, n]
struct ggml_tensor *kin_op_add(kin_graph *g, struct ggml_tensor *y, float scale, struct ggml_tensor *residual);

// GELU(h) * input; both // [n, n_rows], rows of input may lie farther apart. Changes h.
struct ggml_tensor *kin_op_gate_input(kin_graph *g, struct ggml_tensor *h, struct ggml_tensor *input);

// max(h, 0)^2 of h // [n, n_rows]. Changes h.
struct ggml_tensor *kin_op_square_relu(kin_graph *g, struct ggml_tensor *h);

// Multiplies x // [n, n_rows] by scale // [1]. Changes x.
struct ggml_tensor *kin_op_scale(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *scale);

// Multiplies each row of x // [n_ff, n] by the sigmoid of its number in gate // [1, n]. Changes x.
struct ggml_tensor *kin_op_scale_sigmoid(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *gate);

// Selects rows of x // f32 [n, any] by their numbers // i32 [n_rows] -> [n, n_rows]
struct ggml_tensor *kin_op_rows(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *rows);

// Copies x // f32 [n, n_rows] to a view of the same shape, whose rows may lie farther apart.
struct ggml_tensor *kin_op_copy(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *to);

// Prepares the heads of y in place: rows of n_q query heads, n_kv key heads and n_kv value heads; either number may be 0. In a
// layer without ATTN_V there are no value heads: values are made of the keys. Heads are normalised if the layer says so, queries
// and keys rotated by the rows' positions; keys and values go to their cells of the cache.
struct ggml_tensor *kin_op_heads(kin_graph *g, int il, struct ggml_tensor *y, int n_q, int n_kv, kin_graph_rows *rows);

// Attention of rows of heads // [at least n_embd_q, n], queries first -> [n_embd_out, n]. chosen // i32: what
// kin_op_index_choose, kin_op_index_blocks or kin_op_index_groups has made; NULL: rows attend to all.
struct ggml_tensor *kin_op_attend(kin_graph *g, int il, struct ggml_tensor *heads, struct ggml_tensor *chosen,
                                  kin_graph_rows *rows);

// Multiplies the first ne[0] values of each head of x // [n_head * any, n] by the head's own matrix // [.., n_out, n_head]: ->
// [n_head * width, n], of which the first n_out values of each head are set. x must have no other columns. Of weights with two
// dimensions // [.., n_head * n_out] a head has consecutive rows, in whole panels.
struct ggml_tensor *kin_op_by_heads(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *weights, int n_head, int width);

// Attention with compressed rows (kin_compressed). y // [head_dim + kin_layer_n_raw, n]: the tokens' rows, values and gates;
// stores the rows, normalised and rotated, and the compressed rows of the blocks that end with these tokens. Changes y.
struct ggml_tensor *kin_op_compressed_rows(kin_graph *g, int il, struct ggml_tensor *y);
// Normalises each head of the queries y // [n_head * head_dim, n], without a weight, and rotates it. Changes y.
struct ggml_tensor *kin_op_compressed_queries(kin_graph *g, int il, struct ggml_tensor *y, kin_graph_rows *rows);
// Attention of such queries -> [n_head * head_dim, n], rotated back. chosen // i32 [n_chosen, n]: what kin_op_compressed_choose
// has made; NULL: they see all compressed rows.
struct ggml_tensor *kin_op_compressed_attend(kin_graph *g, int il, struct ggml_tensor *q, struct ggml_tensor *chosen,
                                             kin_graph_rows *rows);
// Stores y // [4 key_dim, n], the values and gates of an indexer's keys of compressed rows, and the keys of the blocks that end
// with these tokens.
struct ggml_tensor *kin_op_compressed_keys(kin_graph *g, int il, struct ggml_tensor *y);
// Chooses the compressed rows that rows see: q // [n_head * key_dim, n] queries of the indexer's heads, which it rotates, weights
// // [n_head, n] -> i32 [n_chosen, n], of which only rows are set that would see more.
struct ggml_tensor *kin_op_compressed_choose(kin_graph *g, int il, struct ggml_tensor *q, struct ggml_tensor *weights,
                                             kin_graph_rows *rows);

// Normalises the latents of y // [n_latent + n_rot, n], rotates the keys after them, and stores both. Changes y.
struct ggml_tensor *kin_op_latent_keys(kin_graph *g, int il, struct ggml_tensor *y);

// Completes the queries y // [n_head * (n_latent + n_rot), n]: to each head's product with its key matrix come the rotated end of
// its query in q // [n_head * (k_dim + n_rot), n], and the factor of its position. Changes y.
struct ggml_tensor *kin_op_latent_queries(kin_graph *g, int il, struct ggml_tensor *y, struct ggml_tensor *q,
                                          kin_graph_rows *rows);

// Normalises an indexer's keys y // [key_dim, n], rotates and stores them. Changes y.
struct ggml_tensor *kin_op_index_keys(kin_graph *g, int il, struct ggml_tensor *y);

// Chooses the positions that rows see: q // [n_head * key_dim, n] queries of the indexer's heads, which it rotates, weights //
// [n_head, n] -> i32 [n_chosen, n], of which only rows with more than n_chosen cells are set.
struct ggml_tensor *kin_op_index_choose(kin_graph *g, int il, struct ggml_tensor *q, struct ggml_tensor *weights,
                                        kin_graph_rows *rows);

// The same of an indexer that chooses pools of tokens: stores y // [2 key_dim, n], keys, which it normalises, and gates, and the
// keys of the pools that end with these tokens. Changes y.
struct ggml_tensor *kin_op_pool_keys(kin_graph *g, int il, struct ggml_tensor *y);

// Chooses the positions that rows see, likewise, by such keys; queries are not rotated. Of n_chosen places a row uses
// n_chosen - n_pool + 1 and as many as there are positions after its last whole pool.
struct ggml_tensor *kin_op_pool_choose(kin_graph *g, int il, struct ggml_tensor *q, struct ggml_tensor *weights,
                                       kin_graph_rows *rows);

// Chooses the blocks of the cache that rows see, for each kv head: q // [n_head * key_dim, n] queries of the indexer's heads,
// which it normalises and rotates -> i32 [n_chosen / 64, n_head_kv * n], of which only rows with more than n_chosen cells are
// set.
struct ggml_tensor *kin_op_index_blocks(kin_graph *g, int il, struct ggml_tensor *q, kin_graph_rows *rows);

// Stores the keys y // [key_dim, n] of an indexer whose blocks have one key each, and the keys of the blocks that end with these
// tokens.
struct ggml_tensor *kin_op_index_pool(kin_graph *g, int il, struct ggml_tensor *y);

// Chooses among such blocks: q // [n_head * key_dim, n] queries of the indexer's heads, which it normalises and rotates -> i32
// [n_chosen / n_block, n], of which only rows with more whole blocks are set.
struct ggml_tensor *kin_op_index_groups(kin_graph *g, int il, struct ggml_tensor *q, kin_graph_rows *rows);

// Multiplies the heads' results x // [n_embd_out, n] by what the layer's gate makes of gate // [n_head * n_head_gate, n]. Changes
// x.
struct ggml_tensor *kin_op_gate_heads(kin_graph *g, int il, struct ggml_tensor *x, struct ggml_tensor *gate);

// Copies n_fields ranges of each of n_groups equal parts of x // [n_in, n]: all groups' first range, then their second, ...
enum { KIN_OP_FIELDS = 3 };
typedef struct kin_op_field {
    int at, n; // floats: within a part
} kin_op_field;
struct ggml_tensor *kin_op_fields(kin_graph *g, struct ggml_tensor *x, int n_groups, const kin_op_field *fields, int n_fields);

// The short convolution of a recurrent layer: x // [n_channels, n] -> the same shape, with queries and keys normalised. Changes
// the sequences' states.
struct ggml_tensor *kin_op_convolve(kin_graph *g, int il, struct ggml_tensor *x);

// The short convolution of y // [3 n_embd, n], whose rows are the gate of its input, the gate of its result, and its input ->
// [n_embd, n]. Changes y and the sequences' states.
struct ggml_tensor *kin_op_short_conv(kin_graph *g, int il, struct ggml_tensor *y);

// The gated delta net of x // [n_channels, n] as convolved, with beta_alpha // [2 n_value_heads, n]: each head's result is
// normalised and multiplied by SiLU of its gate // [n_values, n] -> [n_values, n]. Changes the sequences' states. Of a state
// space instead of beta_alpha the times // [n_value_heads, n]; its results are not normalised. With decays_rows beta //
// [n_value_heads, n], and what the decays are made of // [n_values, n], which changes; else decays is NULL.
struct ggml_tensor *kin_op_delta_net(kin_graph *g, int il, struct ggml_tensor *x, struct ggml_tensor *beta_alpha,
                                     struct ggml_tensor *gate, struct ggml_tensor *decays);

// Adds the embeddings of the last tokens, g->ngrams, to the streams x // [stream width, n] before layer il: -> the same shape.
// Changes the sequences' states.
struct ggml_tensor *kin_op_ngrams(kin_graph *g, int il, struct ggml_tensor *x);

// Normalises each row of x // [n, n_rows] in groups of ne[0] of `weight` // [n / n_groups, n_groups]. Changes x.
struct ggml_tensor *kin_op_norm_groups(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *weight);

// y + residual, where y // [n_embd, n] is this device's part of the group's result: all parts are added up first. Changes y.
// residual NULL: the sum alone. Requires g->sums.
struct ggml_tensor *kin_op_sum(kin_graph *g, struct ggml_tensor *y, struct ggml_tensor *residual);

// ---- experts

// Chooses the experts of each row: logits // [n_expert, n] -> i32 [2 * n_used, n]: their numbers, then the bits of their shares.
// Changes the logits if the model scales them. choice_bias, and scale, which multiplies the shares: f32 [n_expert], or NULL.
struct ggml_tensor *kin_op_route(kin_graph *g, struct ggml_tensor *logits, struct ggml_tensor *choice_bias,
                                 struct ggml_tensor *scale);

// The same for experts that tokens // i32 [1, n] have by their numbers: those of the token in table // i32 [n_used, n_vocab].
struct ggml_tensor *kin_op_route_tokens(kin_graph *g, struct ggml_tensor *logits, struct ggml_tensor *tokens,
                                        struct ggml_tensor *table);

// Sorts the rows of a routing by expert, for layer il: i32. If experts are not all in memory, this begins to read the missing
// ones.
struct ggml_tensor *kin_op_slots(kin_graph *g, int il, struct ggml_tensor *routed);

// Names the experts that layer il will likely choose, after `slots` of the layer before: routed, as a router's state of now says.
// The nodes since op number `first` are computed for this alone, and only if is_due says so. Adds them to the graph.
void kin_op_expect(kin_graph *g, int il, int first, struct ggml_tensor *slots, struct ggml_tensor *routed);

// x + the sum over a token's experts of share * down(activation(gate x') * (up x')), where x' is the normed x // [n_embd, n]. x
// NULL: the sum alone. Of the layer's weights those of experts and their biases are used.
struct ggml_tensor *kin_op_experts(kin_graph *g, int il, const kin_layer *how, struct ggml_tensor *x, struct ggml_tensor *normed,
                                   struct ggml_tensor *routed, struct ggml_tensor *slots);
