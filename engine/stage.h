// A stage: a fixed part of the model on one device, built as a ggml graph and run.
//
// The graph depends only on a few numbers (tokens, cells, output rows). It is kept while they stay the same, which during
// generation is many tokens, so most steps only write the inputs and compute.
//
// Owner: one shard. Thread: the shard's.
#pragma once

#include <ggml-alloc.h>

#include "engine/device.h"
#include "model/graph.h"

typedef struct kin_stage kin_stage;

// The numbers that determine the graph's shape.
typedef struct kin_stage_shape {
    int variant;  // which of the builder's graphs
    int n_x;      // numbers of a row of x; 0: those of the residual (kin_hparams_stream_width)
    bool is_half; // the second half of a feed-forward block: there is a residual beside x
    int n_tokens;
    int n_kv;  // 0: no attention
    int n_out; // output rows; equal to n_tokens unless the stage ends the model
} kin_stage_shape;

// The inputs of one run, with the shape's sizes. kin's kernels read the arrays of `all` and `out`, which must stay unchanged
// until the run ends.
typedef struct kin_stage_inputs {
    const float *x;                                // f32 [n_tokens, n_x]
    const float *residual;                         // f32 [n_tokens, stream width], only for a half
    const float *inputs;                           // f32 [n_tokens, n_layer * n_input], only if the layers have inputs
    const int32_t *tokens;                         // [n_tokens], only if some layers need them
    const float *ngrams;                           // f32 [n_tokens, any], only if the model has such embeddings
    const int32_t *pos;                            // [n_tokens]
    const int64_t *cells;                          // [n_tokens]
    const ggml_fp16_t *mask;                       // [n_tokens, n_kv]
    const ggml_fp16_t *window_mask;                // the same for windowed layers; only if the model has any
    const int32_t *out_rows, *out_pos;             // [n_out], only if n_out < n_tokens
    const ggml_fp16_t *out_mask, *out_window_mask; // [n_out, n_kv], likewise
    kin_rows all, out;                             // [n_tokens], [n_out]
} kin_stage_inputs;

// Adds the nodes of one of the stage's graphs to g and returns the result. x: f32 [n_x, n_tokens]
typedef struct ggml_tensor *(*kin_stage_build)(const void *user, kin_graph *g, struct ggml_tensor *x, int variant);

// `proto`: its hp, layers, rope_factors, flash, sums and kernels are borrowed; n_nodes: an upper bound of the graph's nodes.
int kin_stage_open(kin_stage **out, const kin_device *device, const kin_graph *proto, size_t n_nodes, kin_stage_build build,
                   const void *user, kin_err *err);

// Opens a stage with a graph of its own in the compute buffer of another stage, which must be closed after it. They take turns on
// one thread, and the other stage has reserved for the largest shape of both.
int kin_stage_open_beside(kin_stage **out, kin_stage *other, size_t n_nodes, kin_err *err);
void kin_stage_close(kin_stage *stage);

// Allocates for the largest shape and checks that the device supports every operation in it.
int kin_stage_reserve(kin_stage *stage, kin_stage_shape largest, kin_err *err);

// Runs the stage and copies the result // f32 or i32 [n_out, row size] to y.
int kin_stage_run(kin_stage *stage, kin_stage_shape shape, const kin_stage_inputs *inputs, void *y, kin_err *err);

// Makes the next run rebuild its graph, because the builder would choose other nodes now.
void kin_stage_forget(kin_stage *stage);

// Returns the bytes of the compute buffer. Those opened beside it share it.
uint64_t kin_stage_bytes(const kin_stage *stage);
