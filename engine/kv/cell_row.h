// A cell of the KV cache as a row of ggml's tensor: on a GPU, and where ggml's kernels compute. A browser has neither, and its
// own version of this.
#pragma once

#include <ggml.h>
#include <stdint.h>

// Copy a row between the tensor and x // f32 [t->ne[0]].
void kin_kv_cell_row_get(const struct ggml_tensor *t, int64_t cell, float *x);
void kin_kv_cell_row_set(struct ggml_tensor *t, int64_t cell, const float *x);
