// qwen3moe: Qwen 3 with experts in every layer.
#include "model/arch.h"

static kin_weight_set require_qwen3moe_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QK_NORM, KIN_WEIGHTS_EXPERTS);
}

static void describe_qwen3moe_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    (void)hp, (void)il;
    layer->has_experts = true;
}

const kin_arch kin_arch_qwen3moe = {
    .name = "qwen3moe",
    .title = "Qwen 3 with experts (30B-A3B, 235B-A22B)",
    .rope_neox = true,
    .is_like_llama = true,
    .layer = describe_qwen3moe_layer,
    .required = require_qwen3moe_weights,
};
