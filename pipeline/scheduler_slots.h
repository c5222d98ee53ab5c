// The slots of the KV cache: which are free, which can be evicted, and room for blocks and states.
//
// Owner and thread: the scheduler's.
#pragma once

#include "pipeline/scheduling.h"

// Applies the operation to the block table, and passes it to the head. Without a head it does nothing: the cache is empty then.
// The head has memory for as many operations as there are slots.
int kin_scheduler_change(kin_scheduler *s, kin_kv_op op, kin_err *err);

// Frees a slot of an ended sequence or a branch, and forgets its tokens.
void kin_scheduler_free_slot(kin_scheduler *s, int i);

// Evicts the least recently used prefix other than that of slot `but`. Returns false if the cache has no such prefix.
bool kin_scheduler_evict(kin_scheduler *s, int but);

// Returns an unused slot, or -1.
int kin_scheduler_unused_slot(const kin_scheduler *s);

// Returns a free slot, after evicting a prefix if needed, or -1.
int kin_scheduler_find_free_slot(kin_scheduler *s, int but);

// Makes room for n_blocks blocks in the KV cache; evicts ended sequences other than that of slot `but` (-1: any) if needed.
// False: no room.
bool kin_scheduler_make_room(kin_scheduler *s, int n_blocks, int but);

// Makes room for up to n slots that share a sequence's blocks; evicts ended sequences if needed. Returns the number of slots for
// which there is room.
int kin_scheduler_make_branches(kin_scheduler *s, int n);

// True if a sequence may have lost what others need to begin with a part of it: a state, or a window's blocks.
bool kin_scheduler_forgets(const kin_scheduler *s);

// Makes room for one more sequence with a state; evicts ended sequences other than that of slot `but`. Models without recurrent
// layers always have room.
bool kin_scheduler_make_state(kin_scheduler *s, int but);

// Returns how many of the next n tokens of the sequence there is room for.
int kin_scheduler_fit(kin_scheduler *s, const kin_generation *g, int n);

// Returns the longest prefix of the n tokens of slot i that another sequence can begin with.
int kin_scheduler_reusable(const kin_scheduler *s, int i, int n);

// Returns how many of the first n tokens are also the sequence's, without its last one, which must be computed for its logits.
int kin_scheduler_common_prefix(const kin_generation *g, const int32_t *tokens, int n);
