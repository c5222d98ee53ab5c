// Several residual streams (hyper-connections): what a layer's two blocks read of them and write to them.
//
// The residual of such a model is hp->n_streams hidden states of each token, one after the other: kin_hparams_stream_width
// numbers. They travel between layers, members and steps as one wide row, and begin as copies of the token's embedding
// (kin_embed). A block reads one hidden state that is mixed of them, and its result goes into all of them, instead of being added
// to a single one. Before the output's norm they become one.
//
// A kind of mixing (kin_streams_kind) is a table of functions in a file of its own, model/streams_NAME.c, with weights of its
// own; a family states the kind in kin_hparams.streams. Only kin's kernels compute several streams.
#pragma once

#include "model/graph.h"

enum { KIN_STREAMS_MAX = 8 };

// The blocks of a layer: its attention, or recurrent, block, and its feed-forward block.
typedef enum kin_streams_block {
    KIN_STREAMS_ATTN,
    KIN_STREAMS_FF,
} kin_streams_block;

// A tensor that mixes the streams after the last layer: its name, shape, and whether it is a vector (kin_weight_is_vector).
typedef struct kin_streams_end {
    const char *name;
    int64_t ne[3];
    bool is_vector;
} kin_streams_end;

typedef struct kin_streams_mixer {
    // x // [stream width, n] -> the block's input // [n_embd, n]. *gates: input of `out`, a row of each token.
    struct ggml_tensor *(*in)(kin_graph *g, int il, kin_streams_block block, struct ggml_tensor *x, struct ggml_tensor **gates);
    // x // [stream width, n], with the block's result y // [n_embd, n] -> [stream width, n]
    struct ggml_tensor *(*out)(kin_graph *g, int il, kin_streams_block block, struct ggml_tensor *x, struct ggml_tensor *gates,
                               struct ggml_tensor *y);
    // x // [stream width, n] after the last layer -> [n_embd, n]. ends: the tensors that end_at describes.
    struct ggml_tensor *(*end)(kin_graph *g, struct ggml_tensor *const *ends, struct ggml_tensor *x);
    // Describes the i-th tensor that `end` needs; false if it needs fewer. At most KIN_STREAM_ENDS
    bool (*end_at)(const kin_hparams *hp, int i, kin_streams_end *out);
    // The same of a draft block's own, by names after "blk.N."; NULL: what ends the model's streams ends a block's.
    bool (*draft_end_at)(const kin_hparams *hp, int i, kin_streams_end *out);
    // Normalises each stream of x // [stream width, n] by itself; weight // [stream width]. NULL: streams share one weight
    struct ggml_tensor *(*norm)(kin_graph *g, struct ggml_tensor *weight, struct ggml_tensor *x);
} kin_streams_mixer;

extern const kin_streams_mixer kin_streams_sinkhorn;
extern const kin_streams_mixer kin_streams_sinkhorn_mean;
extern const kin_streams_mixer kin_streams_gated;

// Returns the model's kind of mixing; NULL: it has one stream.
const kin_streams_mixer *kin_streams_of(const kin_hparams *hp);

// y // f32 [n] = the mean of the streams x // f32 [n_streams, n]
void kin_streams_average(const kin_kernels *kernels, int n_streams, int64_t n, const float *x, float *y);

// Describes the i-th tensor that mixes the streams after the last layer; false if fewer do so, as in models with one stream.
bool kin_streams_end_at(const kin_hparams *hp, int i, kin_streams_end *out);

// Describes the i-th tensor that ends a draft block's own streams, by its name after "blk.N."; false if there are fewer.
bool kin_streams_draft_end_at(const kin_hparams *hp, int i, kin_streams_end *out);
