// Decides where the weight blocks' bytes are: the prepacked cache file, memory, the model file's mapping, the GPU. Threads: see
// data.h.
#pragma once

#include "engine/weights/data.h"

// Places all blocks, and fills those that are not `later`.
int kin_weights_place_cpu(kin_weights *w, kin_err *err);

int kin_weights_place_gpu(kin_weights *w, kin_err *err);

// Packs all packed blocks except those of the layers in `but` into the cache file, and seals them.
int kin_weights_pack_ahead(kin_weights *w, const kin_windows *but, const atomic_bool *stop, kin_err *err);

// True if some block was packed, or will be.
bool kin_weights_has_dirty(const kin_weights *w);

// Fills the CPU's blocks that are `later`. Any thread.
void kin_weights_fill_later(kin_weights *w);

// Copies the GPU's blocks within [begin, end) that are, or are not, `later`.
int kin_weights_copy_blocks(kin_weights *w, size_t begin, size_t end, bool later, kin_err *err);

// Called before streaming: a block that found no room in the cache file is used from the model file instead.
int kin_weights_unpack_if_lost(kin_weights *w, kin_weights_block *b, kin_err *err);

// The same for all blocks; counts them.
int kin_weights_settle_cpu(kin_weights *w, kin_err *err);
