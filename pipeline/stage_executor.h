// A stage executor: runs the windows of one ring member, head or worker, on the steps that arrive.
//
// A step goes k times round the ring. In each round a member runs at most one window of its layers; a member without layers runs
// none. The executor tracks which steps are in flight, and which window belongs to which round.
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
    const int *rounds;   // [windows.n] the round of each window, ascending; borrowed for open
    int n_rounds;        // k
    int n_layer;         // of the model
    int n_steps;         // most steps in flight at once
    kin_sum sum;         // the shard's; zeros: whole layers
} kin_stage_executor_options;

int kin_stage_executor_open(kin_stage_executor **out, const kin_stage_executor_options *options, kin_err *err);
void kin_stage_executor_close(kin_stage_executor *executor);

// Begins a step that arrives for the first time. Its changes of the KV cache are applied first; they end steps in flight whose
// tokens they forget. Fails if too many steps are in flight, or if the context is full.
int kin_stage_executor_begin(kin_stage_executor *executor, uint64_t step, const kin_batch *batch, kin_err *err);

// Applies changes of the KV cache as above, then processes a request for pages instead of a step (kin_shard_pages). Returns the
// number of leading pages that are stored or loaded; 0 if there is no request, only changes.
int kin_stage_executor_pages(kin_stage_executor *executor, const kin_batch *batch, kin_err *err);

// Runs the second half of a request that recomputes (kin_shard_recompute); at the head when the request has come back.
int kin_stage_executor_recompute(kin_stage_executor *executor, const kin_page_request *request, kin_err *err);

// True if the step is in flight here; false if its tokens were forgotten since it began.
bool kin_stage_executor_has(kin_stage_executor *executor, uint64_t step);

// Checks that a later round has the same number of tokens and wanted rows as the step's beginning. Else fails, and ends the step.
int kin_stage_executor_match(kin_stage_executor *executor, uint64_t step, uint32_t n_tokens, uint32_t n_out, kin_err *err);

// Checks that the step is in that round and has n_rows rows. Else fails, and ends the step.
int kin_stage_executor_check(kin_stage_executor *executor, uint64_t step, int round, int n_rows, kin_err *err);

// Returns the numbers of a row before this round's window, or after it (model/border.h); 0: there is no window, so rows pass
// unchanged.
int kin_stage_executor_row_width(const kin_stage_executor *executor, int round, bool is_after);

// Ends the step, and forgets its tokens.
void kin_stage_executor_abandon(kin_stage_executor *executor, uint64_t step);

// Runs the step's window of this round: x // f32 [n_rows, row width] before the window -> after it, in place. Returns the number
// of rows left (fewer after the model's last layer, where only the wanted ones remain), or KIN_FAIL. A failed step is over. Also
// fails if rounds are skipped or repeated, or if n_rows does not match the step.
int kin_stage_executor_run(kin_stage_executor *executor, uint64_t step, int round, int n_rows, float *x, kin_err *err);

// Ends a step that was not computed; its tokens keep their cells, as on members that computed it. Ignores unknown steps.
void kin_stage_executor_drop(kin_stage_executor *executor, uint64_t step);

// Resets to the state after open: no step, an empty KV cache.
void kin_stage_executor_reset(kin_stage_executor *executor);
