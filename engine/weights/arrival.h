// Blocks that arrive after open, and the background work after it. Threads: see data.h.
#pragma once

#include "engine/weights/data.h"

// Starts the background work after open: the lazy load, if blocks come later; completing the cache file.
int kin_weights_start_packer(kin_weights *w, kin_err *err);

// Ends waits for blocks that did not come; waits for the cache file.
void kin_weights_stop_packer(kin_weights *w);

// Replace the streamer's functions while w->is_arriving. Blocks are used in their mapping.
int kin_weights_acquire_arriving(kin_weights *w, int i_compute_block, kin_err *err);

void kin_weights_release_arriving(kin_weights *w, int i_compute_block);
