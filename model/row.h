// Single rows of a matrix, read from the file where they lie: the rest of the matrix is neither read nor in memory.
#pragma once

#include "model/gguf.h"

// x // f32 [t->ne[0]]: row `row` of t, dequantized. Fails if the file can no longer be read.
int kin_row_read(const kin_gguf *gguf, const kin_gguf_tensor *t, uint64_t row, float *x, kin_err *err);

// Announces that the row will be read soon, so that the disk can read several at a time.
void kin_row_prefetch(const kin_gguf *gguf, const kin_gguf_tensor *t, uint64_t row);
