// The prepacked cache file of the weights: opening it, and moving packed blocks to it. Threads: see data.h.
#pragma once

#include "engine/weights/data.h"

// True if the budget does not hold all of the CPU's weights.
bool kin_weights_must_stream(const kin_weights *w);

// Opens the prepacked cache if it is useful. If it cannot, the log says why.
void kin_weights_try_cache(kin_weights *w);

// Maps the block from the cache file, in place of its pages.
int kin_weights_map_block(kin_weights *w, kin_weights_block *b, kin_err *err);

// Moves packed bytes to the cache file and maps it in their place: the same content, but reclaimable by the OS. Does nothing if
// an earlier move failed.
void kin_weights_try_move(kin_weights *w, kin_weights_block *b);

// Notes that the cache file has failed; logs why, once.
void kin_weights_warn_no_cache(kin_weights *w, const kin_err *err);

// Moves what was packed to the file, and seals it. Runs on a background thread, at the lowest priority from here on.
void kin_weights_finish_cache(kin_weights *w);
