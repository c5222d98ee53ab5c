// Which blocks of the KV cache belong to which sequence: book-keeping only, without keys and values.
//
// A sequence has the positions 0 .. n - 1, in blocks of KIN_KV_CELLS positions; a position is there once, and with all before it.
// Full blocks may be shared by several sequences (a prefix that was computed once); the last block of a sequence, if it is not
// full, is its own. So a block that is written to has one owner. Blocks are given out lowest-free-first: caches that see the same
// steps agree on what fits, and so does the scheduler (pipeline/scheduler.h), which keeps such a book to know it beforehand.
//
// Owner and thread: who opened it, one.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/kernels.h"

enum { KIN_KV_MAX_SEQUENCES = 1 << 16 }; // their numbers are below it

// A change of the cache, in order with the steps: sequence `seq` becomes the first n positions of sequence `from`.
//   from == seq: positions from n on are forgotten; n = 0: the sequence is.    seq == -1: all sequences are forgotten
typedef struct kin_kv_op {
    int32_t seq, from, n;
} kin_kv_op;

typedef struct kin_kv_blocks kin_kv_blocks;

// n_ctx: most tokens of one sequence; there are blocks for so many in all.
int kin_kv_blocks_open(kin_kv_blocks **out, int n_ctx, kin_err *err);
void kin_kv_blocks_close(kin_kv_blocks *blocks);

// The contents of block `from` are to be copied to block `to`; from -1: nothing is to be copied.
typedef struct kin_kv_copy {
    int from, to;
} kin_kv_copy;

// Fails when `from` has not n positions, or there is no block for a copy of the last one (`seq` is then forgotten if it is
// another one than `from`).
int kin_kv_blocks_apply(kin_kv_blocks *blocks, const kin_kv_op *op, kin_kv_copy *copy, kin_err *err);

// A cell for the next position of a sequence, which must be `pos`.
int kin_kv_blocks_append(kin_kv_blocks *blocks, int32_t seq, int32_t pos, int64_t *cell, kin_err *err);

// Takes back positions from n on, which were appended since the last operation on the sequence.
void kin_kv_blocks_undo(kin_kv_blocks *blocks, int32_t seq, int32_t n);

int kin_kv_blocks_n_tokens(const kin_kv_blocks *blocks, int32_t seq);
// The blocks of a sequence in order; *n of them. Until the next change.
const int32_t *kin_kv_blocks_table(const kin_kv_blocks *blocks, int32_t seq, int *n);
int kin_kv_blocks_n(const kin_kv_blocks *blocks);
int kin_kv_blocks_n_free(const kin_kv_blocks *blocks);
// The highest block in use + 1.
int kin_kv_blocks_end(const kin_kv_blocks *blocks);
