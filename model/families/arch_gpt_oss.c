// gpt-oss: gpt-oss 20b and 120b. Every second layer is windowed; each head has a sink; experts have biases and a clamped gate.
#include "model/arch.h"

static void read_gpt_oss_keys(kin_hparams *hp, kin_meta *k) {
    hp->window = kin_meta_int(k, "attention.sliding_window", KIN_KEY_REQUIRED, 1, 1 << 27);
    // The publisher's code does not round YaRN's corners (its config says truncate: false); llama.cpp does.
    hp->ropes[0].exact_corners = hp->ropes[1].exact_corners = true;
    hp->ropes[1].base = (double)kin_meta_float(k, "rope.freq_base_swa", (float)hp->ropes[0].base, 1, 1e12f);
}

static void describe_gpt_oss_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    (void)hp;
    layer->is_windowed = il % 2 == 0;
    layer->rope = layer->is_windowed;
    layer->has_experts = true;
    layer->gate = KIN_GATE_OAI;
}

static kin_weight_set require_gpt_oss_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QKV_BIAS, KIN_W_ATTN_OUT_BIAS, KIN_W_ATTN_SINKS, KIN_W_FFN_NORM_2,
                          KIN_WEIGHTS_ROUTED, KIN_W_FFN_ROUTER_BIAS, KIN_W_FFN_GATE_EXPS_BIAS, KIN_W_FFN_UP_EXPS_BIAS,
                          KIN_W_FFN_DOWN_EXPS_BIAS);
}

const kin_arch kin_arch_gpt_oss = {
    .name = "gpt-oss",
    .title = "gpt-oss 20b, 120b",
    .rope_neox = true,
    .read = read_gpt_oss_keys,
    .layer = describe_gpt_oss_layer,
    .required = require_gpt_oss_weights,
};
