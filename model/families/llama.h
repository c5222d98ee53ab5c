// The weights of llama's layers, for the families that have the same ones.
#pragma once

#include "model/arch.h"

kin_weight_set kin_llama_required(const kin_hparams *hp, const kin_layer *layer);
kin_weight_set kin_llama_optional(const kin_hparams *hp, const kin_layer *layer);
