// Which beginnings of sequences are kept for others, where sequences forget what they have passed.
//
// Owner and thread: the scheduler's.
#pragma once

#include "pipeline/scheduling.h"

// Returns how many sequences can run at once.
int kin_scheduler_n_parallel(const kin_scheduler *s);

// Returns the length of the longest prefix that a running sequence has in common with this one and will leave while its prompt is
// computed: an upper bound if nothing of it is forgotten.
int kin_scheduler_soon_reusable(const kin_scheduler *s, const kin_generation *g, const kin_generation *running);

// Chooses the positions at which a sequence that starts is kept. n_known: tokens that it has in common with one on the disks.
void kin_scheduler_choose_marks(const kin_scheduler *s, kin_generation *g, int n_known);

// Returns how many of the next n tokens of the sequence a step may have, so that it ends at a mark.
int kin_scheduler_up_to_mark(const kin_generation *g, int n);

// After a step was sent: keeps the sequences that stand at a mark.
void kin_scheduler_keep_marks(kin_scheduler *s, const kin_flight *f);
