// hy_v3: Hunyuan 3 (Hy3). The first layers are dense; the others have experts chosen by sigmoids, and a shared expert.
#include "model/arch.h"
#include "model/families/moe.h"

static const char *const obeyed[] = {"nextn_predict_layers", NULL};

static void read_hy_v3_keys(kin_hparams *hp, kin_meta *k) {
    hp->n_dense = kin_moe_count_dense(hp, k);
    hp->n_ff_shared = kin_meta_int(k, "expert_shared_feed_forward_length", hp->n_ff_exp, 1, 1 << 20);
    kin_meta_routing(k, &hp->routing, KIN_GATING_SIGMOID, false);
}

static void describe_hy_v3_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->has_experts = hp->n_expert > 0 && il >= hp->n_dense;
}

static kin_weight_set require_hy_v3_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_W_ATTN_NORM, KIN_W_ATTN_OUT, KIN_WEIGHTS_QK_NORM);
    const kin_weight_set dense = KIN_WEIGHT_SET(KIN_WEIGHTS_DENSE), shared = KIN_WEIGHT_SET(KIN_WEIGHTS_SHARED);
    const kin_weight_set experts = KIN_WEIGHT_SET(KIN_W_FFN_NORM, KIN_W_FFN_ROUTER, KIN_W_FFN_DOWN_EXPS);
    (void)hp;
    kin_weight_set_join(&set, layer->has_experts ? &experts : &dense);
    if (layer->has_experts) kin_weight_set_join(&set, &shared);
    return set;
}

static kin_weight_set allow_hy_v3_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_W_ATTN_QKV, KIN_W_ATTN_Q, KIN_W_ATTN_K, KIN_W_ATTN_V);
    const kin_weight_set experts =
        KIN_WEIGHT_SET(KIN_W_FFN_CHOICE_BIAS_2, KIN_W_FFN_GATE_EXPS, KIN_W_FFN_UP_EXPS, KIN_W_FFN_GATE_UP_EXPS);
    (void)hp;
    if (layer->has_experts) kin_weight_set_join(&set, &experts);
    return set;
}

const kin_arch kin_arch_hy_v3 = {
    .name = "hy_v3",
    .title = "Hunyuan 3",
    .rope_neox = true,
    .drafts = true,
    .keys = obeyed,
    .read = read_hy_v3_keys,
    .layer = describe_hy_v3_layer,
    .required = require_hy_v3_weights,
    .optional = allow_hy_v3_weights,
};
