// A tensor as stored in the model file: still quantized, borrowed from the caller, up to three dimensions.
//
// Shapes in testkit/ref/ are written (matrices, rows, columns), the last one contiguous, as in `wq // (n_head*head_dim, n_embd)`.
// GGUF lists the same numbers in the opposite order.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kin_ref_tensor {
    const uint8_t *data; // NULL: the model does not have this tensor
    size_t n_bytes;
    int type;                   // kin_ref_type
    int n_mats, n_rows, n_cols; // 1 for unused dimensions
} kin_ref_tensor;

// True if the tensor is present, has this shape and a known type, and n_bytes matches them.
bool kin_ref_tensor_is(const kin_ref_tensor *t, int n_mats, int n_rows, int n_cols);

// Returns matrix i of a stack: one expert's weights. t // (n_mats, n_rows, n_cols) -> (n_rows, n_cols)
kin_ref_tensor kin_ref_tensor_matrix(const kin_ref_tensor *t, int i);

// Returns n rows of a matrix, from row i on, as a matrix. t // (n_rows, n_cols); the type must be known and i + n at most n_rows.
kin_ref_tensor kin_ref_tensor_rows(const kin_ref_tensor *t, int i, int n);

// Converts row i to floats. t // (n_rows, n_cols), out // (n_cols)
void kin_ref_tensor_row(const kin_ref_tensor *t, int i, float *out);

// Converts n elements of row i, from column `at` on. at and n must be multiples of the type's block.
void kin_ref_tensor_elements(const kin_ref_tensor *t, int i, int at, int n, float *out);

// Element (i, j) of a tensor of 32-bit integers.
int kin_ref_tensor_int(const kin_ref_tensor *t, int i, int j);

// out = w x, each sum in double. w // (n_rows, n_cols), x // (n_cols), out // (n_rows); out and x must not overlap.
void kin_ref_matvec(const kin_ref_tensor *w, const float *x, float *out);

// x = x / sqrt(mean(x^2) + eps) * w. w, x, scratch // (n_cols)
void kin_ref_tensor_norm(const kin_ref_tensor *w, float eps, float *x, float *scratch);
