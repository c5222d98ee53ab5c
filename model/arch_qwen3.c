// qwen3: Qwen 3. Each query and key head is normed before it rotates.
#include "model/arch.h"
#include "model/blocks.h"

static kin_weight_set required(const kin_hparams *hp) {
    (void)hp;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QK_NORM, KIN_WEIGHTS_DENSE);
}

static kin_weight_set optional(const kin_hparams *hp) {
    (void)hp;
    return (kin_weight_set){0};
}

const kin_arch kin_arch_qwen3 = {
    .name = "qwen3",
    .title = "Qwen 3",
    .rope_type = GGML_ROPE_TYPE_NEOX,
    .required = required,
    .optional = optional,
    .attn = kin_block_attention,
    .ffn = kin_block_ffn_dense,
    .ffn_in = kin_block_ffn_dense_in,
    .ffn_out = kin_block_ffn_dense_out,
};
