// llama: Llama 1, 2, 3 and 3.x, Mistral, Yi, DeepSeek-R1-Distill-Llama; with experts: Mixtral.
#include "model/arch.h"
#include "model/blocks.h"

static kin_weight_set required(const kin_hparams *hp) {
    return hp->n_expert ? KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_EXPERTS)
                        : KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_DENSE);
}

static kin_weight_set optional(const kin_hparams *hp) {
    (void)hp;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_QKV_BIAS, KIN_W_ATTN_OUT_BIAS);
}

static struct ggml_tensor *ffn(kin_graph *g, int il, struct ggml_tensor *x) {
    return g->hp->n_expert ? kin_block_ffn_experts(g, il, x) : kin_block_ffn_dense(g, il, x);
}

const kin_arch kin_arch_llama = {
    .name = "llama",
    .title = "Llama 1/2/3/3.x, Mistral, Yi, DeepSeek-R1-Distill-Llama, Mixtral",
    .rope_type = GGML_ROPE_TYPE_NORMAL,
    .required = required,
    .optional = optional,
    .attn = kin_block_attention,
    .ffn = ffn,
    .ffn_in = kin_block_ffn_dense_in,
    .ffn_out = kin_block_ffn_dense_out,
    .route = kin_block_route,
};
