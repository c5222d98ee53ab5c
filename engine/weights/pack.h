// Packs weight blocks into the layout of the kernels, or gathers their slices. Threads: see data.h.
#pragma once

#include "engine/weights/data.h"

// Packs the block to `base` // [packed_bytes] and points its tensors there. Fails if the model's files were written to since they
// were opened: otherwise a cache of other weights would be trusted once the right file is back.
int kin_weights_pack(const kin_weights *w, kin_weights_block *b, uint8_t *base, kin_err *err);

// Packs experts to the cache file, a few at a time at `base` // [packed_bytes], whose pages are given back.
int kin_weights_pack_experts(kin_weights *w, kin_weights_block *b, uint8_t *base, kin_err *err);
