// States on disks, at which sequences that are loaded can go on.
//
// Owner and thread: the scheduler's.
#pragma once

#include "pipeline/scheduling.h"

// Returns the blocks before the last checkpoint of a sequence within its first n_blocks blocks; 0 without a checkpoint.
int kin_scheduler_last_checkpoint(const kin_scheduler *s, const int32_t *tokens, int n_blocks);

// Requests that the states of a mark are stored, or those of an old checkpoint dropped. *sent: there was such a mark.
int kin_scheduler_send_states(kin_scheduler *s, bool *sent, kin_err *err);

void kin_scheduler_handle_states(kin_scheduler *s, const kin_flight *f);
