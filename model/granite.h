// What Granite's families have in common: llama with factors on embedding, scores, residual and logits.
#pragma once

#include "model/arch.h"

void kin_granite_read(kin_hparams *hp, kin_meta *keys);
