// A stage: a fixed piece of the model on one device, turned into a ggml graph and run.
//
// The graph depends only on a few numbers (tokens, cells, wanted rows). It is kept as long as they stay the same, which for
// generation is many tokens, so most steps only write the inputs and compute.
//
// Owner: one shard. Thread: the shard's.
#pragma once

#include <ggml-alloc.h>

#include "engine/device.h"
#include "model/graph.h"

typedef struct kin_stage kin_stage;

// What the graph's shape depends on.
typedef struct kin_stage_shape {
    int variant; // which of the builder's graphs
    bool half;   // the second half of a feed-forward block: x is [n_tokens, n_ff], and there is a residual
    int n_tokens;
    int n_kv;  // 0: no attention
    int n_out; // wanted rows; equal to n_tokens unless the stage ends the model
} kin_stage_shape;

// What one step puts in. The arrays of `all` and `out` are for kin's kernels, and stay as they are until the run ends. Arrays
// have the shape's sizes.
typedef struct kin_stage_inputs {
    const float *x;                                // f32 [n_tokens, n_embd or n_ff]
    const float *residual;                         // f32 [n_tokens, n_embd], only for a half
    const int32_t *pos;                            // [n_tokens]
    const int64_t *cells;                          // [n_tokens]
    const ggml_fp16_t *mask;                       // [n_tokens, n_kv]
    const ggml_fp16_t *window_mask;                // the same for windowed layers, only if the model has such
    const int32_t *out_rows, *out_pos;             // [n_out], only if n_out < n_tokens
    const ggml_fp16_t *out_mask, *out_window_mask; // [n_out, n_kv], likewise
    kin_rows all, out;                             // [n_tokens], [n_out]
} kin_stage_inputs;

// Adds the nodes of one of the stage's graphs to g and returns the result. x: f32 [n_embd or n_ff, n_tokens]
typedef struct ggml_tensor *(*kin_stage_build)(const void *user, kin_graph *g, struct ggml_tensor *x, int variant);

// `proto`: hp, layers, rope_factors, flash, sums and kernels, borrowed; n_nodes: an upper bound of the graph's nodes.
int kin_stage_open(kin_stage **out, const kin_device *device, const kin_graph *proto, size_t n_nodes, kin_stage_build build,
                   const void *user, kin_err *err);
void kin_stage_close(kin_stage *stage);

// Makes room for the largest shape and checks that the device can run every operation in it.
int kin_stage_reserve(kin_stage *stage, kin_stage_shape largest, kin_err *err);

// Runs and copies the result // f32 or i32 [n_out, its row] to y.
int kin_stage_run(kin_stage *stage, kin_stage_shape shape, const kin_stage_inputs *inputs, void *y, kin_err *err);

// The next run builds its graph anew: the builder would choose other nodes now.
void kin_stage_forget(kin_stage *stage);

// Bytes of the compute buffer.
uint64_t kin_stage_bytes(const kin_stage *stage);
