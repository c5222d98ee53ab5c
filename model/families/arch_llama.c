// llama: Llama 1, 2, 3 and 3.x, Mistral, Yi, DeepSeek-R1-Distill-Llama; with experts: Mixtral.
#include "model/families/llama.h"

kin_weight_set kin_llama_required(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp;
    return layer->has_experts ? KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_EXPERTS)
                              : KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_DENSE);
}

kin_weight_set kin_llama_optional(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_QKV_BIAS, KIN_W_ATTN_OUT_BIAS);
}

const kin_arch kin_arch_llama = {
    .name = "llama",
    .title = "Llama 1/2/3/3.x, Mistral, Yi, DeepSeek-R1-Distill-Llama, Mixtral",
    .is_like_llama = true,
    .required = kin_llama_required,
    .optional = kin_llama_optional,
};
