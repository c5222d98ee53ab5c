// The output layer of a shard: hidden states in, logits out. Its matrix is computed tile by tile if its weights are streamed.
//
// Owner: one shard. Thread: the shard's.
#pragma once

#include "engine/device.h"
#include "engine/weights.h"
#include "model/model.h"

typedef struct kin_output_layer kin_output_layer;

// hp: for the share of each layer. kernels: scale and cap logits, even if others compute the rest. All are borrowed until close.
int kin_output_layer_open(kin_output_layer **out, const kin_model *model, const kin_hparams *hp, kin_weights *weights,
                          const kin_device *device, const kin_kernels *kernels, kin_err *err);
void kin_output_layer_close(kin_output_layer *layer); // NULL is allowed, here, in forget and in bytes

// Computes the logits of n rows: x // f32 [n, stream width] -> logits // f32 [n, n_vocab]. Fails if weights cannot be read, or if
// the model's files were modified.
int kin_output_layer_run(kin_output_layer *layer, int n, const float *x, float *logits, kin_err *err);
// The same for hidden states after the norm // f32 [n, n_embd].
int kin_output_layer_project(kin_output_layer *layer, int n, const float *hidden, float *logits, kin_err *err);
// Computes only the norm: x // f32 [n, stream width] -> hidden // f32 [n, n_embd].
int kin_output_layer_hidden(kin_output_layer *layer, int n, const float *x, float *hidden, kin_err *err);

void kin_output_layer_forget(kin_output_layer *layer);          // see kin_stage_forget
uint64_t kin_output_layer_bytes(const kin_output_layer *layer); // of its compute buffer
