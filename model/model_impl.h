// Internals of kin_model, shared by model.c (the layers and both ends) and draft_block.c (the block that drafts).
#pragma once

#include "model/model.h"

// Finds `name`, checks it, counts it in *n_used. If absent: NULL, and an error if it is required.
int kin_model_find_tensor(const kin_model *model, const char *name, const int64_t ne[3], bool vector, bool required,
                          const kin_gguf_tensor **out, size_t *n_used, kin_err *err);

// Takes the weights of layer `il`, block i_block of the file, that its family requires or knows, and those of `also`, all of
// which must be there. NULL: none.
int kin_model_find_layer(kin_model *model, int il, int i_block, const kin_weight_set *also, size_t *n_used, kin_err *err);
