// The scheduler: generates many sequences at once through one head, by continuous batching.
//
// Each step takes the next token of every decoding sequence, and fills up with pieces of prompts, in turn. The pieces are sized
// so that the step takes about 1.4 times as long as one without them (pure/plan/prefill.h). In a ring of several members several
// steps are in flight.
//
// Sequences share one budget of context (engine/kv/blocks.h). A prefix that another sequence has, or had, is not computed again:
// sequences that have ended stay in the KV cache until their room is needed; the least recently used is evicted first. If several
// sequences begin with a prefix that is just being computed, the others wait for it. If the disks hold a longer prefix
// (engine/kv/store.h), it is loaded from there in pages while other sequences continue; each block that becomes full is stored
// there. When the budget is full, the youngest sequence is preempted and recomputed later. So load changes when a token arrives,
// but never which token it is, as long as the kernels compute a row alike in every batch (kernels/kernels.h).
//
// A sequence may have a draft source (pure/sampling/draft.h) and use the shared draft model (pipeline/draft_model.h) or the
// model's own draft block (pipeline/mtp_drafter.h), which compute on this thread before a step. The step then has drafted tokens
// after the sequence's last one, as many as pay off (pure/plan/speculation.h). next() is called for row after row while it
// returns what was drafted; the next step removes the rejected tokens from the KV cache. So next() sees the same logits, in the
// same order, as without drafts.
//
//   kin_scheduler_submit ─► kin_scheduler_step, repeatedly ─► next() for each token ─► ended()
//
// Owner: the caller. Thread: the head's, for every function and callback.
#pragma once

#include "pipeline/generation.h"

int kin_scheduler_open(kin_scheduler **out, const kin_scheduler_options *options, kin_err *err);
void kin_scheduler_close(kin_scheduler *scheduler); // does not call `ended`. NULL is allowed

// Sets the head to compute with: at first, after a step has failed, or when the ring has changed. The contents of the KV cache
// are recomputed. No step may be in flight.
int kin_scheduler_set_head(kin_scheduler *scheduler, kin_head *head, kin_err *err);

// Sets the number of steps in flight while n_sequences (1 to KIN_SCHEDULER_MAX_PARALLEL) sequences decode. 0 (the default): as
// many as the ring has members. pure/plan/batching.h chooses; where weights are streamed it is often 1, since every pass reads
// them once.
void kin_scheduler_set_in_flight(kin_scheduler *scheduler, int n_sequences, int n_steps);

// Fails if the prompt is empty or longer than the context. *out lives until `ended`.
int kin_scheduler_submit(kin_scheduler *scheduler, const kin_generation_options *options, kin_generation **out, kin_err *err);

// Ends the sequence, at once or when the steps that contain it have come back. Steps of a failed ring do not come back.
void kin_scheduler_cancel(kin_scheduler *scheduler, kin_generation *generation);

// Removes ended sequences with this tag from the prefix cache and from the disks. Returns the number of their tokens.
int kin_scheduler_erase(kin_scheduler *scheduler, int tag);
// Copies the tokens of the most recently used ended sequence with this tag; the caller frees them. Returns their number; 0 and
// NULL if there is no such sequence, or no memory.
int kin_scheduler_read_sequence(const kin_scheduler *scheduler, int tag, int32_t **tokens);

// Ends all sequences as failed.
void kin_scheduler_fail(kin_scheduler *scheduler, const kin_err *why);

// Sends what can be sent, then waits until a step comes back or the thread is woken (kin_head_receive). *busy: there is more to
// do. On failure the contents of the KV cache are lost but the sequences remain: set a head again, or fail them.
int kin_scheduler_step(kin_scheduler *scheduler, bool *busy, kin_err *err);

// Waits for the steps in flight; sends nothing but requests to store pages. Afterwards the ring may be left.
int kin_scheduler_settle(kin_scheduler *scheduler, kin_err *err);

// Returns the number of tokens of running sequences in partial pages, which another ring would recompute; 0 if pages are not
// stored.
int kin_scheduler_n_beyond_pages(const kin_scheduler *scheduler);

kin_scheduler_stats kin_scheduler_get_stats(const kin_scheduler *scheduler);
