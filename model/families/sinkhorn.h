// Shared by families with several residual streams that Sinkhorn's iteration mixes.
#pragma once

#include "model/arch.h"

// Reads the number of streams and the iteration.
void kin_sinkhorn_read(kin_hparams *hp, kin_meta *keys, kin_streams_kind kind);

// Reads the limits of experts of block i_block, and of shared ones, which by default are the same.
void kin_sinkhorn_read_limits(kin_layer *layer, kin_meta *keys, int i_block);

// The weights of a layer's two blocks, as a list.
#define KIN_WEIGHTS_SINKHORN                                                                                                     \
    KIN_W_SINKHORN_ATTN_FN, KIN_W_SINKHORN_ATTN_BASE, KIN_W_SINKHORN_ATTN_SCALE, KIN_W_SINKHORN_FF_FN, KIN_W_SINKHORN_FF_BASE,   \
        KIN_W_SINKHORN_FF_SCALE
