// The scheduler's sequences: those that wait and those that run, their tokens, their progress and their end.
//
// Owner and thread: the scheduler's.
#pragma once

#include "pipeline/scheduling.h"

// Appends n tokens to the sequence. Fails only without memory.
int kin_scheduler_append(kin_generation *g, const int32_t *tokens, int n, kin_err *err);

void kin_scheduler_free_generation(kin_generation *g);

// Puts a sequence without a slot among those that wait, in order of submission; takes it out.
void kin_scheduler_wait_in_line(kin_scheduler *s, kin_generation *g);
void kin_scheduler_leave_line(kin_scheduler *s, kin_generation *g);

// Puts a sequence with a slot among those that run.
void kin_scheduler_start_running(kin_scheduler *s, kin_generation *g);

// Takes a running sequence out of the KV cache, and lets it wait: it is computed again.
void kin_scheduler_queue_again(kin_scheduler *s, kin_generation *g);

// Ends the sequence, and frees it.
void kin_scheduler_end(kin_scheduler *s, kin_generation *g, kin_generation_end how, const kin_err *why);

// Counts n more tokens of the sequence in the KV cache. computed: by a step, in all layers.
void kin_scheduler_count_done(kin_scheduler *s, kin_generation *g, int n, bool computed);

// Reports progress, while the sequence is still in its prompt; not when a prompt is recomputed after decoding began.
void kin_scheduler_report_progress(const kin_generation *g);

// True if it decodes: one token to compute, and no step in flight. All others have a prompt, or a history, to be computed.
bool kin_scheduler_is_ready(const kin_generation *g);

// Returns the number of prompt tokens to compute, in steps of this kind (hidden states or logits).
int kin_scheduler_n_pending(const kin_generation *g, bool hidden);

// True if a running sequence has prompt tokens to compute, for logits.
bool kin_scheduler_has_prompts(const kin_scheduler *s);
