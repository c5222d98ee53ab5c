// The block table of the KV cache: which blocks belong to which sequence. Bookkeeping only, without keys and values.
//
// A sequence has the positions 0 .. n - 1, in blocks of KIN_KV_CELLS positions; a position exists once, and only if all before it
// do. Full blocks may be shared by several sequences (a prefix that was computed once); the last block of a sequence, unless
// full, belongs to that sequence alone, so a block that is written to has one owner. The lowest free block is allocated first:
// caches that see the same steps agree on what fits, and the scheduler (pipeline/scheduler.h) keeps such a table to predict it.
//
// If the model has recurrent layers, a sequence also has one of n_states states, from its first position on. A state cannot go
// back: it has a log of the tokens of the sequence's last step, if these are at most KIN_STATE_LOG, and can stand at the
// beginning of the log, within it, or at the sequence's end. So a sequence can be shortened, or another one begin with its
// positions, only there.
//
// If the model has windowed layers, these may have a table and blocks of their own (engine/kv/window.h): a sequence keeps only
// the blocks that hold its last positions. A step begins by giving back the blocks that lie before the window of what the step
// before it began with, and 64 positions more: so drafts of the steps in flight can be removed, and caches that see the same
// steps agree. A sequence can be shortened, or another one begin with its positions, only where all of the window is left.
//
// Owner and thread: the code that opened it, one thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/kernels.h"

enum { KIN_KV_MAX_SEQUENCES = 1 << 16 }; // sequence numbers are below this

// A change of the cache, ordered with the steps: sequence `seq` becomes the first n positions of sequence `from`.
//   from == seq: truncates to n positions; n == 0 removes the sequence.    seq == -1: removes all sequences
typedef struct kin_kv_op {
    int32_t seq, from, n;
} kin_kv_op;

typedef struct kin_kv_blocks kin_kv_blocks;

// The blocks of windowed layers.
typedef struct kin_kv_window {
    int size;     // positions that a token sees, including its own
    int n_blocks; // 0: these layers use the blocks of the others
    int n_most;   // blocks with which any sequence can go on
} kin_kv_window;

// Returns the blocks that the window before a position of whole blocks reaches into.
static inline int kin_kv_window_n_blocks(const kin_kv_window *window) {
    return window->n_blocks > 0 ? (window->size - 1 + KIN_KV_CELLS - 1) / KIN_KV_CELLS : 0;
}

// n_ctx: the maximum tokens of one sequence; there are enough blocks for n_ctx tokens in total. n_states 0: sequences have no
// states. window NULL: no blocks of their own.
int kin_kv_blocks_open(kin_kv_blocks **out, int n_ctx, int n_states, const kin_kv_window *window, kin_err *err);
void kin_kv_blocks_close(kin_kv_blocks *blocks);

// Tells the caller to copy the contents of block `from` to block `to`, in windowed layers that have blocks of their own
// `window_from` to `window_to`, and those of a state; from == -1: nothing to copy.
typedef struct kin_kv_copy {
    int from, to;
    int window_from, window_to;
    int state_from, state_to;
} kin_kv_copy;

// Fails if `from` has fewer than n positions, or if there is no free block for a copy of the last one (`seq` is then removed,
// unless it equals `from`), or if there is no state at position n, or no free one for `seq`, or if a part of the window before
// position n is gone.
int kin_kv_blocks_apply(kin_kv_blocks *blocks, const kin_kv_op *op, kin_kv_copy *copy, kin_err *err);

// Allocates a cell for the next position of a sequence, which must be `pos`.
int kin_kv_blocks_append(kin_kv_blocks *blocks, int32_t seq, int32_t pos, int64_t *cell, kin_err *err);

// Appends n blocks, in full, to a sequence of full blocks: their content is loaded. has_states: with a state at their end and the
// blocks of the window there, so the sequence can go on. Without, if the model has states or windowed layers have blocks of their
// own, it can only get more blocks, or be shortened. A sequence can be shortened to any of its blocks before it goes on.
int kin_kv_blocks_load(kin_kv_blocks *blocks, int32_t seq, int n, bool has_states, kin_err *err);

// Begins a step: positions that are appended until the next call, to the same sequence, are a run.
void kin_kv_blocks_begin_step(kin_kv_blocks *blocks);

// A sequence's positions that were appended in the present step.
typedef struct kin_kv_run {
    int begin, n;
    int state;    // its number
    int n_logged; // positions of the log that come before them
    bool stores;  // they are too many for the log
} kin_kv_run;
kin_kv_run kin_kv_blocks_run(const kin_kv_blocks *blocks, int32_t seq); // of a sequence with a state
int kin_kv_blocks_state(const kin_kv_blocks *blocks, int32_t seq);      // the number of its state

// Returns the largest number of positions, at most n, that another sequence can have from this one.
int kin_kv_blocks_nearest(const kin_kv_blocks *blocks, int32_t seq, int n);

// Returns the largest number of positions, at most n and in full blocks, at which the sequence has all of the window, and a state
// with an empty log; 0: none.
int kin_kv_blocks_checkpoint(const kin_kv_blocks *blocks, int32_t seq, int n);

// Removes the positions from n on that were appended since the last operation on the sequence, which loses its state.
void kin_kv_blocks_undo(kin_kv_blocks *blocks, int32_t seq, int32_t n);

int kin_kv_blocks_n_tokens(const kin_kv_blocks *blocks, int32_t seq);
// Returns the blocks of a sequence in order; sets *n to their number. Valid until the next change.
const int32_t *kin_kv_blocks_table(const kin_kv_blocks *blocks, int32_t seq, int *n);
// The same for windowed layers. The first n_gone blocks were given back; until other steps are computed they have what steps in
// flight read.
const int32_t *kin_kv_blocks_window_table(const kin_kv_blocks *blocks, int32_t seq, int *n);
int kin_kv_blocks_n_gone(const kin_kv_blocks *blocks, int32_t seq);
int kin_kv_blocks_n(const kin_kv_blocks *blocks);
int kin_kv_blocks_n_free(const kin_kv_blocks *blocks); // without those of windowed layers
// True if a sequence can get n more blocks, in windowed layers as many of them as it needs to go on.
bool kin_kv_blocks_fit(const kin_kv_blocks *blocks, int n);
// True if a sequence can load n pages, and n_window blocks of windowed layers.
bool kin_kv_blocks_fit_load(const kin_kv_blocks *blocks, int n, int n_window);
int kin_kv_blocks_n_free_states(const kin_kv_blocks *blocks);
// Returns the highest block in use + 1.
int kin_kv_blocks_end(const kin_kv_blocks *blocks);
