// What a graph builder works on: the inputs of one step and the weights and caches of the layers, as ggml tensors.
//
// The engine fills a kin_graph and owns everything in it; the families only add nodes. Nothing here allocates data.
// Thread: the one that builds the graph.
#pragma once

#include <ggml.h>
#include <stdbool.h>

#include "model/hparams.h"
#include "model/weights.h"

// Tokens that pass through attention as queries, with what attention must know of them.
typedef struct kin_graph_rows {
    int n;
    struct ggml_tensor *pos;  // i32 [n]: position of each token in its sequence
    struct ggml_tensor *mask; // f16 [n_kv, n]: 0 where the token may look, -inf elsewhere
} kin_graph_rows;

typedef struct kin_graph_layer {
    struct ggml_tensor *w[KIN_W_COUNT]; // NULL if the family does not have it
    struct ggml_tensor *k, *v;          // KV cache [n_embd_kv, n_ctx]
} kin_graph_layer;

typedef struct kin_graph {
    struct ggml_context *ctx;
    struct ggml_cgraph *gf;
    const kin_hparams *hp;
    const kin_graph_layer *layers;    // [n_layer], by the model's layer number
    struct ggml_tensor *rope_factors; // f32 [n_rot / 2], NULL if the model has none
    bool flash;                       // use the fused attention operator

    int n_kv;                     // cells that attention looks at
    struct ggml_tensor *cells;    // i64 [all.n]: the cache cell that each token writes
    kin_graph_rows all;           // every token of the batch
    kin_graph_rows out;           // the tokens whose result is wanted after the model's last layer
    struct ggml_tensor *residual; // f32 [n_embd, all.n]: what the second half of a feed-forward block is added to
    struct ggml_tensor *out_rows; // i32 [out.n]: their numbers in the batch; NULL: all of them are wanted
} kin_graph;
