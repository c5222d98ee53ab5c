// The graphs of a shard, by variant (engine/stage.h): which layers a graph computes, and how it is built.
//
// Variants of the layers' graphs: a window as a whole, a range of its layers, or one block of a layer. Variants of the output's
// graphs: all tiles of the vocabulary, or tile 0, 1, ...
#pragma once

#include "engine/weights.h"
#include "model/graph.h"
#include "pure/plan/window.h"

enum {
    KIN_VARIANT_ROUTE = KIN_MAX_LAYER_COMPUTE_BLOCKS, // in place of a block: only chooses a feed-forward block's experts
    KIN_VARIANT_WHOLE = -1,                           // output: all tiles
    KIN_VARIANT_HIDDEN = -2,                          // output: only the norm
    KIN_VARIANT_PLAIN = 1 << 20,                      // added to a variant of the output: without the norm
};

// A range of a window's layers.
typedef struct kin_layer_range {
    int begin, end;
} kin_layer_range;

kin_layer_range kin_layers_of_window(const kin_window *window);

// Where a layer is: on the CPU, divided (its attention on the GPU, its feed-forward block on the CPU), or on the GPU.
typedef enum kin_layer_place { KIN_LAYER_ON_CPU, KIN_LAYER_DIVIDED, KIN_LAYER_ON_GPU } kin_layer_place;

// Restricts a range to the layers that the window has in a place.
kin_layer_range kin_layers_in(const kin_window *window, kin_layer_range of, kin_layer_place place);

int kin_variant_of_block(int il, int block);
int kin_variant_of_layers(const kin_windows *windows, int i_window, kin_layer_range of);

// The graphs of one device, for its layers of each window.
typedef struct kin_layers_graphs {
    const kin_windows *windows; // borrowed
    bool on_gpu;
} kin_layers_graphs;

// Returns the number of the window's layers that this device has alone.
int kin_layers_graphs_n(const kin_layers_graphs *graphs, int i_window);

// user: kin_layers_graphs. x: [stream width, n] before the variant's layers -> the same after them.
struct ggml_tensor *kin_build_layers(const void *user, kin_graph *g, struct ggml_tensor *x, int variant);

// user: kin_weights. x: [stream width, n], of a plain variant [n_embd, n] -> logits [n_vocab, n], or those of one tile of the
// vocabulary.
struct ggml_tensor *kin_build_output(const void *user, kin_graph *g, struct ggml_tensor *x, int variant);

// True if a device has ggml's fused attention operator for the heads of all layers that need one, and for this type of the cache.
bool kin_graphs_have_flash(const kin_hparams *hp, enum ggml_type kv_type, const kin_device *device);
