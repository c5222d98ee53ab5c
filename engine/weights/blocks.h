// Assigns weights to blocks. Threads: see data.h.
#pragma once

#include "engine/weights/data.h"

// Describes a weight block of a layer, or a tile of the output, in the zeroed b. slots: where its tensors will be; NULL: unknown.
void kin_weights_add_layer_block(kin_weights_block *b, const kin_model *m, int il, kin_weight_block kind,
                                 const kin_slices *slices, struct ggml_tensor **slots, const kin_device *cpu);

void kin_weights_add_tile_block(kin_weights_block *b, const kin_model *m, int i_tile, struct ggml_tensor **slot,
                                const kin_device *cpu);

// Collects the blocks of all windows, in cyclic order: the layers, the output's tiles, then weights that are always in memory.
void kin_weights_collect_blocks(kin_weights *w);
