// glm4moe: GLM-4.5-Air, 4.5, 4.6, 4.7. The first layers are dense; the others have experts chosen by sigmoids, and a shared
// expert.
#include "model/arch.h"

static const char *const obeyed[] = {"nextn_predict_layers", "expert_group_count", NULL};

static void read_glm4moe_keys(kin_hparams *hp, kin_meta *k) {
    hp->n_dense = kin_meta_int(k, "leading_dense_block_count", 0, 0, hp->n_layer);
    hp->n_ff_shared = hp->n_ff_exp * kin_meta_int(k, "expert_shared_count", 1, 0, 64);
    kin_meta_routing(k, &hp->routing, KIN_GATING_SIGMOID, true);
}

static void describe_glm4moe_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->has_experts = il >= hp->n_dense;
}

static kin_weight_set require_glm4moe_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_W_FFN_NORM_2);
    kin_weight_set dense = KIN_WEIGHT_SET(KIN_W_FFN_GATE, KIN_W_FFN_UP, KIN_W_FFN_DOWN);
    kin_weight_set experts = KIN_WEIGHT_SET(KIN_WEIGHTS_ROUTED), shared = KIN_WEIGHT_SET(KIN_WEIGHTS_SHARED);
    kin_weight_set_join(&set, layer->has_experts ? &experts : &dense);
    if (layer->has_experts && hp->n_ff_shared > 0) kin_weight_set_join(&set, &shared);
    return set;
}

static kin_weight_set allow_glm4moe_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp;
    return layer->has_experts ? KIN_WEIGHT_SET(KIN_WEIGHTS_QKV_BIAS, KIN_WEIGHTS_QK_NORM, KIN_W_FFN_CHOICE_BIAS)
                              : KIN_WEIGHT_SET(KIN_WEIGHTS_QKV_BIAS, KIN_WEIGHTS_QK_NORM);
}

const kin_arch kin_arch_glm4moe = {
    .name = "glm4moe",
    .title = "GLM-4.5-Air, 4.5, 4.6, 4.7",
    .rope_neox = true,
    .drafts = true,
    .keys = obeyed,
    .read = read_glm4moe_keys,
    .layer = describe_glm4moe_layer,
    .required = require_glm4moe_weights,
    .optional = allow_glm4moe_weights,
};
