// A slice of a weight: some of its rows (outputs) or of its columns (inputs), as a device of a tensor-parallel group has them.
//
// A slice says which elements; a kin_slice_view says where their bytes are in the tensor. Rows of a matrix are one run of bytes
// (rows of the experts' matrices: one for each expert), columns are one run for each row. Slices of quantized weights end where
// blocks of the type end, and rows where a packed panel ends, so that a slice is packed as the whole would be.
//
// Plain data and pure functions. Thread: any.
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "model/gguf.h"
#include "model/weights.h"

typedef enum kin_slice_dim {
    KIN_SLICE_FULL,    // begin and end do not count
    KIN_SLICE_ROWS,    // ne[1], of every expert's matrix; the elements of a vector (a bias has one for each row)
    KIN_SLICE_COLUMNS, // ne[0]
} kin_slice_dim;

typedef struct kin_slice {
    kin_slice_dim dim;
    int64_t begin, end; // [begin, end)
} kin_slice;

// Of every layer alike. Zeros: all weights are full.
typedef struct kin_slices {
    kin_slice of[KIN_W_COUNT];
} kin_slices;

typedef struct kin_slice_view {
    int64_t ne[3];   // the slice's shape
    uint64_t first;  // of the tensor's bytes: where the slice begins
    uint64_t bytes;  // of the slice
    uint64_t run;    // bytes in a row of each other
    uint64_t n_runs; // run * n_runs = bytes
    uint64_t stride; // from a run to the next
} kin_slice_view;

// What the ends of a tensor's slices of that dimension are multiples of; 0: it has none.
int64_t kin_slice_step(const kin_gguf_tensor *tensor, kin_slice_dim dim);

// Whether a tensor can be split into n_parts slices of that dimension: its size there is a multiple of what a slice's ends are
// aligned to, and there is one such piece for each part at least.
bool kin_slice_can_split(const kin_gguf_tensor *tensor, kin_slice_dim dim, int n_parts);

// Part i of n_parts, as equal as the alignment allows. The tensor can be split so.
kin_slice kin_slice_part(const kin_gguf_tensor *tensor, kin_slice_dim dim, int i, int n_parts);

// Fails with a sentence if the tensor has no such slice.
int kin_slice_check(const kin_slice *slice, const kin_gguf_tensor *tensor, kin_err *err);

// The slice passed kin_slice_check.
kin_slice_view kin_slice_view_of(const kin_slice *slice, const kin_gguf_tensor *tensor);
