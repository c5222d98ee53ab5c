// Token embedding: from token ids to hidden states, before the first layer. Only the head computes it.
#pragma once

#include "model/model.h"

// x // f32 [n, n_embd]: the embedding rows of the tokens, dequantized. Only these rows of the file are read.
// Fails on an id outside the vocabulary, with x undefined.
int kin_embed(const kin_model *model, const int32_t *tokens, int n, float *x, kin_err *err);
