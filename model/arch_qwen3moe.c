// qwen3moe: Qwen 3 with experts in every layer.
#include "model/arch.h"
#include "model/blocks.h"

static kin_weight_set required(const kin_hparams *hp) {
    (void)hp;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QK_NORM, KIN_WEIGHTS_EXPERTS);
}

static kin_weight_set optional(const kin_hparams *hp) {
    (void)hp;
    return (kin_weight_set){0};
}

const kin_arch kin_arch_qwen3moe = {
    .name = "qwen3moe",
    .title = "Qwen 3 with experts (30B-A3B, 235B-A22B)",
    .rope_type = GGML_ROPE_TYPE_NEOX,
    .required = required,
    .optional = optional,
    .attn = kin_block_attention,
    .ffn = kin_block_ffn_experts,
    .route = kin_block_route,
};
