// Rows of F16 in cells of the cache that are made of a block of tokens each: compressed rows (compressed.c), and the keys by
// which indexers choose such rows, or pools of tokens (pools.c).
//
// Each token's cell has values and as many gates. A block's row is in each column the sum of its tokens' values, weighted by the
// softmax of their gates, to which a number for the token's place in its block is added. It is in the cell of the block's last
// token (kin_made_rows in ops_impl.h).
#pragma once

#include "model/kernel/ops_impl.h"

// Returns the cell of a position of a row's sequence.
const ggml_fp16_t *kin_op_cell_of(const struct kin_op *op, const struct ggml_tensor *cache, int row, int pos);

// Writes n numbers into the cells of a token of the batch, from number `at` of a cell on; x NULL: zeros.
void kin_op_store_cells(const struct kin_op *op, const struct ggml_tensor *cache, int row, int at, int n, const float *x);

// Computes the row of the block that ends with the token at `pos` of a row's sequence, as op->made says: x // f32 [made.dim].
// places // f32 [made.n_values, made.n_tokens]: what is added to the gates
void kin_op_pool_block(const struct kin_op *op, const struct ggml_tensor *cache, int row, int pos, const float *places, float *x);

// Chooses the made rows that have the greatest scores for each row's token, among those up to it: q // [n_head * key_dim, n],
// weights // [n_head, n], cache: of the made rows, which `made` describes. -> i32 [n_chosen, n], of which only rows are set that
// would see more: numbers of made rows, or of the tokens of chosen pools and of those after the last whole pool. n_candidates: at
// least the number of made rows
struct ggml_tensor *kin_op_choose_made(kin_graph *g, int il, struct ggml_tensor *q, struct ggml_tensor *weights,
                                       struct ggml_tensor *cache, kin_made_rows made, int64_t n_candidates, kin_graph_rows *rows);
