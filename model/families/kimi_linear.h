// Shared by families whose layers are Kimi's delta attention (KDA), or latent attention without a rope, as Kimi Linear's.
#pragma once

#include "model/arch.h"

// Reads the delta net, and which layers are recurrent: those without key heads.
void kin_kimi_linear_read_delta(kin_hparams *hp, kin_meta *keys);

// Reads the widths of latents and heads, and the scale of scores. Called after the former.
void kin_kimi_linear_read_latents(kin_hparams *hp, kin_meta *keys);

// Returns the weights that such a layer must have, with those of its dense block or of its experts, but without KIN_W_STATE_A or
// KIN_W_DELTA_A, which are one tensor of different shapes.
kin_weight_set kin_kimi_linear_weights(const kin_hparams *hp, const kin_layer *layer);
kin_weight_set kin_kimi_linear_optional_weights(const kin_hparams *hp, const kin_layer *layer);
