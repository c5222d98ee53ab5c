// Keys that qwen35 shares with the families after it.
#pragma once

#include "model/arch.h"

// Reads the shape of the gated delta nets.
void kin_qwen35_read_delta_net(kin_hparams *hp, kin_meta *keys);

// Reads which layers are recurrent: the file lists them, or says that every n-th layer is attention.
void kin_qwen35_read_kinds(kin_hparams *hp, kin_meta *keys);
