// Shared by attention with keys per head (heads.c) and with latent keys (latent.c).
#pragma once

#include "model/kernel/ops_impl.h"

// Returns the cosines and sines of the rows' positions, f32 [n_rot, n]: a node that is added once.
struct ggml_tensor *kin_op_cos_sin(kin_graph *g, kin_graph_rows *rows, int i_rope);

// Scales the n values of a row's queries by its position, if the family does so.
void kin_op_heat_queries(const struct kin_op *op, float *q, int64_t n, int32_t pos);

// Stores the rows [begin, end) of keys, values or both; tokens that belong to several sequences in the blocks of all of them.
void kin_op_store_rows(const struct kin_op *op, const kin_kv_rows *rows, int64_t begin, int64_t end);
