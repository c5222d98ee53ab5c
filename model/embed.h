// Token embedding: the first of a model's two ends. Only the head has it: it is where ids become numbers.
#pragma once

#include "model/model.h"

// x // f32 [n, n_embd]: the embedding rows of the tokens, dequantized. Only these rows of the file are read.
// Fails on an id outside the vocabulary, with x undefined.
int kin_embed(const kin_model *model, const int32_t *tokens, int n, float *x, kin_err *err);
