// A slice of a weight: some of its rows (outputs) or columns (inputs), for a device of a tensor-parallel group.
//
// A slice names the elements; a kin_slice_view says where their bytes are in the tensor. Rows of a matrix are one run of bytes
// (for experts' matrices: one per expert; two of halves), columns are one run per row. Slices of quantized weights end at block
// boundaries of the type, and rows also at panel boundaries, so that a slice is packed exactly like that part of the whole.
//
// Plain data and pure functions. Thread: any.
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "model/gguf.h"
#include "model/weights.h"

typedef enum kin_slice_dim {
    KIN_SLICE_FULL,    // begin and end are unused
    KIN_SLICE_ROWS,    // ne[1], of every expert's matrix; for a vector its elements (a bias has one per row)
    KIN_SLICE_COLUMNS, // ne[0]
    KIN_SLICE_HALVES,  // of a matrix that is two, one after the other: the same rows of both
} kin_slice_dim;

typedef struct kin_slice {
    kin_slice_dim dim;
    int64_t begin, end; // [begin, end)
} kin_slice;

// The same for every layer. Zeros: all weights are whole.
typedef struct kin_slices {
    kin_slice of[KIN_W_COUNT];
} kin_slices;

typedef struct kin_slice_view {
    int64_t ne[3];   // the slice's shape
    uint64_t first;  // offset of the slice in the tensor, in bytes
    uint64_t bytes;  // of the slice
    uint64_t run;    // contiguous bytes
    uint64_t n_runs; // run * n_runs = bytes
    uint64_t stride; // from one run to the next
} kin_slice_view;

// Returns the number that the ends of a tensor's slices of that dimension are multiples of; 0: it cannot be sliced so.
int64_t kin_slice_step(const kin_gguf_tensor *tensor, kin_slice_dim dim);

// True if a tensor can be split into n_parts slices of that dimension: its size is a multiple of the alignment of slice ends, and
// there is at least one aligned piece per part.
bool kin_slice_can_split(const kin_gguf_tensor *tensor, kin_slice_dim dim, int n_parts);

// Returns part i of n_parts, as equal as the alignment allows. Requires kin_slice_can_split.
kin_slice kin_slice_part(const kin_gguf_tensor *tensor, kin_slice_dim dim, int i, int n_parts);

// Fails if the tensor has no such slice.
int kin_slice_check(const kin_slice *slice, const kin_gguf_tensor *tensor, kin_err *err);

// Returns the view of a slice that passed kin_slice_check.
kin_slice_view kin_slice_view_of(const kin_slice *slice, const kin_gguf_tensor *tensor);
