// A model: its file, its hyper-parameters, and every tensor found, checked and sorted by layer and role.
//
// No weights are read: a kin_model of 70B parameters opens in milliseconds. Devices use the parts that they run. Owner: the code
// that opened it. Thread: any; nothing changes after open.
#pragma once

#include "model/gguf.h"
#include "model/hparams.h"
#include "model/weights.h"

typedef struct kin_model_layer {
    const kin_gguf_tensor *w[KIN_W_COUNT]; // NULL where the family has none
} kin_model_layer;

typedef struct kin_model {
    kin_gguf *gguf;
    kin_hparams hp;          // its list of layers belongs to the model
    kin_model_layer *layers; // [n_layer]

    const kin_gguf_tensor *token_embd;                   // [n_embd, n_vocab]
    const kin_gguf_tensor *output_norm;                  // f32 [n_embd]; NULL: what ends several streams is its norm
    const kin_gguf_tensor *output_norm_bias;             // f32 [n_embd]; NULL if the family has none
    const kin_gguf_tensor *output;                       // [n_embd, n_vocab]; token_embd itself if the two are tied
    const kin_gguf_tensor *stream_ends[KIN_STREAM_ENDS]; // mix several streams after the last layer (kin_streams_end_at); NULL
                                                         // after the last one
    const kin_gguf_tensor *rope_factors;                 // f32 [n_rot / 2], NULL if the model has none
    const kin_gguf_tensor *rope_factors_long;            // the same for contexts longer than the original training context
    // Of the layers' inputs; NULL: they have none. The first one is by token: its rows are read singly.
    const kin_gguf_tensor *input_embd; // [n_input * n_layer, n_vocab]
    const kin_gguf_tensor *input_proj; // [n_embd, n_input * n_layer]
    const kin_gguf_tensor *input_norm; // f32 [n_input]
    const kin_gguf_tensor *ngram_embd; // [ngram.dim, any]: only single rows are read; NULL: the model has none
} kin_model;

// True if a file has draft blocks (model/draft_block.h) and none of the model's layers.
bool kin_model_lacks_layers(const kin_gguf *gguf);

// Opens a GGUF file (or all parts of a split one) as a model of a supported family.
int kin_model_open(kin_model *model, const char *path, kin_err *err);

// Does the same for bytes in memory, which the caller keeps alive.
int kin_model_open_bytes(kin_model *model, const char *name, const uint8_t *bytes, size_t size, kin_err *err);

void kin_model_close(kin_model *model);

// True for a tensor of a layer that is in the file and never read (kin_arch.ignored).
bool kin_model_ignores(const kin_model *model, const kin_gguf_tensor *tensor);

// Returns the rope factors for contexts of n_ctx tokens; NULL: none.
const kin_gguf_tensor *kin_model_rope_factors(const kin_model *model, int n_ctx);

// Returns the bytes of all weights of one layer in the file.
uint64_t kin_model_layer_bytes(const kin_model *model, int il);

// Returns the bytes of the tensors that mix several streams after the last layer.
uint64_t kin_model_stream_end_bytes(const kin_model *model);

// Returns the bytes that one generated token must read: all layers (of experts the routed share), the output layer, one embedding
// row.
uint64_t kin_model_bytes_per_token(const kin_model *model);

// Returns the number of parameters in all tensors.
uint64_t kin_model_n_params(const kin_model *model);
