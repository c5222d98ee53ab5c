// A stage executor: runs the windows of one member of the ring (of the head, too) on the steps that arrive.
//
// A step goes k times round the ring. In each round a member runs at most one window of its layers; a member without layers
// runs none. The executor knows which steps are in flight and which window belongs to which round.
//
//   begin (positions) ─► run round 0 ─► ... ─► run round k - 1: the step is over, its tokens stay in the KV cache
//
// Owner: the head or a worker. Thread: the shard's.
#pragma once

#include <stdint.h>

#include "engine/shard.h"

typedef struct kin_stage_executor kin_stage_executor;

typedef struct kin_stage_executor_options {
    kin_shard *shard;    // borrowed; NULL: no layers
    kin_windows windows; // the shard's
    const int *rounds;   // [windows.n] the round of each, ascending; borrowed for open
    int n_rounds;        // k
    int n_layer;         // of the model
    int n_steps;         // most steps in flight at once
    kin_sum sum;         // the shard's; zeros: the layers are whole
} kin_stage_executor_options;

int kin_stage_executor_open(kin_stage_executor **out, const kin_stage_executor_options *options, kin_err *err);
void kin_stage_executor_close(kin_stage_executor *executor);

// A step arrives for the first time. Its changes of the KV cache come first: they end steps in flight whose tokens they forget.
// Fails when too many are in flight, or the context is full.
int kin_stage_executor_begin(kin_stage_executor *executor, uint64_t step, const kin_batch *batch, kin_err *err);

// Changes of the KV cache as above, and then its pages instead of a step (kin_shard_pages): how many are as they should be.
// Without pages: the changes alone, and 0.
int kin_stage_executor_pages(kin_stage_executor *executor, const kin_batch *batch, kin_err *err);

// The second half of a request that recomputes (kin_shard_recompute), at the head when it has come back.
int kin_stage_executor_recompute(kin_stage_executor *executor, const kin_page_request *request, kin_err *err);

// Whether a step is in flight here; not if its tokens were forgotten since it began.
bool kin_stage_executor_has(kin_stage_executor *executor, uint64_t step);

// Whether a later round names as many tokens and wanted rows as the step began with. Else it fails, and the step is over.
int kin_stage_executor_match(kin_stage_executor *executor, uint64_t step, uint32_t n_tokens, uint32_t n_out, kin_err *err);

// Whether the step is in that round and has so many rows. Else it fails, and the step is over.
int kin_stage_executor_check(kin_stage_executor *executor, uint64_t step, int round, int n_rows, kin_err *err);

// The step is over, and its tokens are forgotten.
void kin_stage_executor_abandon(kin_stage_executor *executor, uint64_t step);

// Its round: x // f32 [n_rows, n_embd] before this member's window -> after it, in place. Returns the rows there are then (less
// after the model's last layer, where only the wanted ones remain), or KIN_FAIL. A failed step is over. Fails, too, when rounds
// are skipped or repeated, or n_rows is not what the step has.
int kin_stage_executor_run(kin_stage_executor *executor, uint64_t step, int round, int n_rows, float *x, kin_err *err);

// The step is over without having been computed; its tokens keep their cells, as on members that computed it. One that is not
// here is over already.
void kin_stage_executor_drop(kin_stage_executor *executor, uint64_t step);

// As after open: no step, an empty KV cache.
void kin_stage_executor_reset(kin_stage_executor *executor);
