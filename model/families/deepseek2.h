// Shared by DeepSeek V2 and later families that have latent attention, or choose experts as it does.
#pragma once

#include "model/arch.h"

// Reads the widths of latents and heads, and makes the layers' key heads those of the cache. Called after the rope is read.
void kin_deepseek2_read_heads(kin_hparams *hp, kin_meta *keys);

// Reads the number of dense layers, the width of the shared experts and the routing; gating and normalizes: as in files that do
// not say.
void kin_deepseek2_read_experts(kin_hparams *hp, kin_meta *keys, kin_gating gating, bool normalizes);
