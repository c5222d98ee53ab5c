// qwen2: Qwen 2 and 2.5, QwQ, DeepSeek-R1-Distill-Qwen. Biases on query, key and value.
#include "model/arch.h"

static kin_weight_set require_qwen2_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QKV_BIAS, KIN_WEIGHTS_DENSE);
}

const kin_arch kin_arch_qwen2 = {
    .name = "qwen2",
    .title = "Qwen 2 and 2.5, QwQ, DeepSeek-R1-Distill-Qwen",
    .rope_neox = true,
    .is_like_llama = true,
    .required = require_qwen2_weights,
};
