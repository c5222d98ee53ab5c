// Token embedding: from token ids to hidden states, before the first layer. Only the head computes it.
#pragma once

#include "model/model.h"

// x // f32 [n, stream width]: the embedding rows of the tokens, dequantized; of several streams a copy for each. Only these rows
// of the file are read. Fails on an id outside the vocabulary, with x undefined.
int kin_embed(const kin_model *model, const int32_t *tokens, int n, float *x, kin_err *err);

// Returns the floats of all layers' inputs for a token; 0: they have none.
size_t kin_embed_n_inputs(const kin_model *model);

// inputs // f32 [n, n_layer, n_input]: the layers' inputs for these tokens, whose embeddings are x // f32 [n, n_embd]
int kin_embed_inputs(const kin_model *model, const int32_t *tokens, int n, const float *x, float *inputs, kin_err *err);
