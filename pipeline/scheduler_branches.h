// Drafted tokens that are in the KV cache or in flight: what becomes of them when a row has come back, or the sequence leaves.
//
// Owner and thread: the scheduler's.
#pragma once

#include "pipeline/scheduling.h"

// Drafted token i was right. If it is in a branch, the branch becomes the sequence.
void kin_scheduler_follow_branch(kin_scheduler *s, kin_generation *g, int i);

// Removes the sequence's other branches, with all their tokens, from the KV cache.
void kin_scheduler_forget_branches(kin_scheduler *s, const kin_generation *g);

// Removes rejected drafted tokens from the KV cache. Their blocks are not shared, so this cannot fail.
void kin_scheduler_forget_rejected(kin_scheduler *s, const kin_generation *g);

// Detaches the sequence from the steps after its last token: their guesses were wrong, or are not wanted.
void kin_scheduler_drop_ahead(kin_scheduler *s, kin_generation *g);
