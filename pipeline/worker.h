// A worker: a device's side of the steps. It receives a frame from the previous member, computes the device's layers, and hands
// out a frame for the next member.
//
// Owner: the device's driver. Thread: the computing one, which is the shard's.
#pragma once

#include "pipeline/stage_executor.h"
#include "pipeline/steps.h"

typedef struct kin_worker kin_worker;

// The executor and the pool are borrowed until close.
int kin_worker_open(kin_worker **out, kin_stage_executor *executor, const kin_steps *steps, kin_message_pool *pool, kin_err *err);
void kin_worker_close(kin_worker *worker);

// Returns kin_steps.ends_tokens of a member with these windows. token_layers: kin_hparams_token_layers. Windows follow each other
// within a round and from round to round, so after a window of the first round that ends there no member has such layers.
bool kin_worker_ends_tokens(const kin_member_windows *windows, int token_layers);

// For a member of a group that shares each layer, but not its last member: `pass` forwards each step to the next member
// unchanged, before it is computed here. All members of the group compute the same result, and the last one passes it on.
void kin_worker_pass_early(kin_worker *worker, void (*pass)(void *user, kin_message_buffer *buffer), void *user);

// Sets the queue of the frames that follow, borrowed. If a later frame there forgets the tokens of a step (a drafted token was
// wrong), the step is passed on without being computed, and pages with such tokens are not stored. Not for a member of a group,
// since the others wait for it.
void kin_worker_set_queue(kin_worker *worker, kin_message_queue *in);

// Processes a STEP or PAGES in *buffer; afterwards *buffer is for the next member, or NULL if it was passed on early. On failure
// it is NULL, too; the buffer is back in the pool unless it was passed on.
int kin_worker_handle(kin_worker *worker, kin_message_buffer **buffer, kin_err *err);

// True if the last failure was caused by the input, not by computing: the previous member sent an invalid frame.
bool kin_worker_got_wrong(const kin_worker *worker);

// Counters since open.
typedef struct kin_worker_stats {
    uint64_t n_steps, n_tokens; // steps count once per round
    uint64_t n_dropped;         // steps that were not computed, because their tokens were forgotten
    uint64_t compute_ns;
} kin_worker_stats;

kin_worker_stats kin_worker_get_stats(const kin_worker *worker);
