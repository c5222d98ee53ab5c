// kin's CPU kernels: matrix products, attention and the small operators between them.
//
// Plain functions over memory: no ggml, no threads, no allocation, no state. Callers give each thread a range of the work.
// What makes them different from ggml's: a row's bits depend neither on the other rows of its batch, nor on the ranges that
// threads were given, nor on the CPU. docs/KERNELS.md says how that is done and what it costs.
//
// Thread: any; two calls may run at once where they write different ranges.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    KIN_PANEL_ROWS = 16, // rows of a packed matrix that are interleaved
    KIN_ACT_COLUMNS = 256,
};

// ---- matrices

// How activations are rounded to bytes before they are multiplied with a type's weights.
typedef enum kin_act_kind {
    KIN_ACT_NONE, // no kernel for this type
    KIN_ACT_256,  // one scale for 256 columns
    KIN_ACT_32,   // one scale for 32 columns
    KIN_ACT_F32,  // they are not: products are float
} kin_act_kind;

// 256 columns of one activation row. A batch is an array [n_blocks][n_rows] of these: blocks of columns first.
typedef struct kin_act {
    int8_t q[KIN_ACT_COLUMNS];
    int16_t sum[16]; // of q: 16 columns each (KIN_ACT_256)
    float d[8];      // x = d * q: d[0] (KIN_ACT_256), or 32 columns each (KIN_ACT_32)
} kin_act;

// types: the numbers of GGUF, which are those of enum ggml_type
kin_act_kind kin_kernel_act_kind(int type);

// Whether a matrix of `rows` rows of `columns` weights has a kernel here: else ggml multiplies it.
bool kin_kernel_has(int type, int64_t columns, int64_t rows);

// Whether such a matrix is packed first; one of KIN_ACT_F32 is used as it is in the file.
bool kin_kernel_packs(int type);

// Interleaves the rows: src, as in GGUF, rows one after the other -> dst, panels of 16 rows, of the same size in bytes. A panel
// depends on its 16 rows alone: a range of rows that begins and ends with a panel is a slice of src and of dst alike.
void kin_kernel_pack(int type, int64_t columns, int64_t rows, const void *src, void *dst);

static inline size_t kin_act_bytes(int64_t columns, int64_t n) {
    return (size_t)((columns + KIN_ACT_COLUMNS - 1) / KIN_ACT_COLUMNS * n) * sizeof(kin_act);
}

typedef struct kin_matrix {
    int type;
    int64_t columns, rows;
    const void *data; // packed, or as in the file for KIN_ACT_F32
} kin_matrix;

// ---- the back-ends

typedef struct kin_kernels {
    const char *name; // "avx512"

    // Rounds rows: x // f32 [n, columns] -> act // [n_blocks][n], the blocks [begin, end) of n_blocks * n.
    void (*quantize)(kin_act_kind kind, int64_t columns, int64_t n, const float *x, kin_act *act, int64_t begin, int64_t end);

    // y[i][r] = the product of activation row i and the matrix's row r, for the panels of 16 rows in [begin, end), and the n rows
    // of a batch. act // [n_blocks][n]; x // f32 [n, columns], only one of the two is read, as the type wants. y // f32 [n, ldy]
    void (*matmul)(const kin_matrix *w, const kin_act *act, const float *x, int64_t n, float *y, int64_t ldy, int64_t begin,
                   int64_t end);
} kin_kernels;

// The best back-end that this CPU has, or the one that the environment's KIN_CPU names. NULL: KIN_CPU names none that could run
// here (the sentence lists those that can).
const kin_kernels *kin_kernels_choose(kin_err *err);

// The i-th that was compiled in, NULL beyond the last; and whether this CPU has what it needs.
const kin_kernels *kin_kernels_at(int i);
bool kin_kernels_can_run(const kin_kernels *kernels);
