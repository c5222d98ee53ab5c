// Whether the cache file's blocks can be trusted (engine/packed.h says when they must be checked). Threads: see data.h.
#pragma once

#include "engine/weights/data.h"

// True if a block of the cache file can be used, before it is mapped: it was made from the model file's present content, and its
// own content is sound, unless that check is left for its first use.
bool kin_weights_trust(kin_weights *w, kin_weights_block *b);

// Checks a block when it is acquired: `at` is where its packed bytes are now, in the streamer's ring or mapped. A damaged block
// is packed again, in the file and at `at`. Fails if another process prevents repairing the file.
int kin_weights_check(kin_weights *w, kin_weights_block *b, const uint8_t *at, kin_err *err);

// True if blocks that are never acquired, of experts, are still to be checked.
bool kin_weights_has_unchecked(const kin_weights *w);

// Checks these, on a background thread, until w->closing.
void kin_weights_check_behind(kin_weights *w);
