// A part: what one member of the ring, the head too, does with the steps that come by.
//
// A step goes k times round the ring. In each round a member runs at most one window of its layers; a relay runs none, ever.
// The part knows which steps are on their way and which window belongs to which round.
//
//   begin (positions) ─► run round 0 ─► ... ─► run round k - 1: the step is over, its tokens stay in the KV cache
//
// Owner: the head or a worker. Thread: the shard's.
#pragma once

#include <stdint.h>

#include "engine/shard.h"

typedef struct kin_part kin_part;

typedef struct kin_part_options {
    kin_shard *shard;    // borrowed; NULL: no layers
    kin_windows windows; // the shard's
    const int *rounds;   // [windows.n] the round of each, ascending; borrowed for open
    int n_rounds;        // k
    int n_layer;         // of the model
    int n_steps;         // most steps on their way at once
} kin_part_options;

int kin_part_open(kin_part **out, const kin_part_options *options, kin_err *err);
void kin_part_close(kin_part *part);

// A step arrives for the first time. Fails when too many are on their way, or the context is full.
int kin_part_begin(kin_part *part, uint64_t step, const kin_batch *batch, kin_err *err);

// Whether a later round names as many tokens and wanted rows as the step began with. Else it fails, and the step is over.
int kin_part_match(kin_part *part, uint64_t step, uint32_t n_tokens, uint32_t n_out, kin_err *err);

// Its round: x // f32 [n_rows, n_embd] before this member's window -> after it, in place. Returns the rows there are then (less
// after the model's last layer, where only the wanted ones remain), or KIN_FAIL. A failed step is over. Fails, too, when rounds
// are skipped or repeated, or n_rows is not what the step has.
int kin_part_run(kin_part *part, uint64_t step, int round, int n_rows, float *x, kin_err *err);

// Forgets positions [begin, end) of a sequence (of all: seq -1), and ends steps on their way that have tokens there.
void kin_part_forget(kin_part *part, int32_t seq, int32_t begin, int32_t end);

// As after open: no step, an empty KV cache.
void kin_part_reset(kin_part *part);
