// Pages on disks: loading the beginnings of sequences, storing and dropping them.
//
// Owner and thread: the scheduler's.
#pragma once

#include "pipeline/scheduling.h"

// If the disks have more of the sequence than the cache, arranges to load it, from the last full block on. Returns how many of
// its tokens the disks have, with or without the states that it needs to continue after them.
int kin_scheduler_find_pages(kin_scheduler *s, kin_generation *g);

// True if a sequence has pages to load, and must wait for steps in flight: they may still read the blocks of windowed layers, or
// write the states, that the sequence gets. No step is sent meanwhile.
bool kin_scheduler_waits_to_load(const kin_scheduler *s);

// Requests the next pages for each sequence that has pages to load and no step in flight.
int kin_scheduler_send_loads(kin_scheduler *s, kin_err *err);
// Handles the answer to such a request.
int kin_scheduler_handle_load(kin_scheduler *s, const kin_flight *f, kin_err *err);

// Removes what was computed of the sequence: from the head's disk at once, from all disks by kin_scheduler_send_drops,
// which goes on at the next step if pages cannot be named.
void kin_scheduler_distrust_pages(kin_scheduler *s, kin_generation *g);

int kin_scheduler_send_drops(kin_scheduler *s, kin_err *err);

// True if blocks are stored as soon as steps contain them: the request follows the last of these steps round the ring. On one
// machine there is no failure to protect against, so pages are written later, and the first token does not wait for them.
bool kin_scheduler_keeps_at_once(const kin_scheduler *s);

// *sent: there was something to store.
int kin_scheduler_send_keep(kin_scheduler *s, bool *sent, kin_err *err);
