// What Granite's families have in common: llama plus scale factors on embedding, attention scores, residual and logits.
#pragma once

#include "model/arch.h"

void kin_granite_read(kin_hparams *hp, kin_meta *keys);
