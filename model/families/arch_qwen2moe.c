// qwen2moe: Qwen 1.5 MoE (A2.7B), Qwen 2 with experts (57B-A14B). The experts' shares are not normalized; a shared expert has a
// gate.
#include "model/arch.h"

static void read_qwen2moe_keys(kin_hparams *hp, kin_meta *k) {
    hp->routing.gating = KIN_GATING_SOFTMAX;
    hp->n_ff_exp =
        kin_meta_int(k, "expert_feed_forward_length", hp->n_ff / (hp->n_expert_used > 0 ? hp->n_expert_used : 1), 1, 1 << 20);
    hp->n_ff_shared = kin_meta_int(k, "expert_shared_feed_forward_length", hp->n_ff, 1, 1 << 20);
    if (!k->failed && hp->n_expert == 0) kin_meta_fail(k, "qwen2moe models without experts are not supported");
}

static kin_weight_set require_qwen2moe_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QKV_BIAS, KIN_WEIGHTS_EXPERTS, KIN_WEIGHTS_SHARED,
                          KIN_W_FFN_SHARED_ROUTER);
}

const kin_arch kin_arch_qwen2moe = {
    .name = "qwen2moe",
    .title = "Qwen 1.5 MoE, Qwen 2 57B-A14B",
    .rope_neox = true,
    .read = read_qwen2moe_keys,
    .required = require_qwen2moe_weights,
};
