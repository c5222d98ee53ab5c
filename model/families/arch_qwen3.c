// qwen3: Qwen 3. Each query and key head is normalised before it is rotated.
#include "model/arch.h"

static kin_weight_set require_qwen3_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QK_NORM, KIN_WEIGHTS_DENSE);
}

const kin_arch kin_arch_qwen3 = {
    .name = "qwen3",
    .title = "Qwen 3",
    .rope_neox = true,
    .is_like_llama = true,
    .required = require_qwen3_weights,
};
