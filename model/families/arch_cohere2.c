// cohere2: Command R7B, Command A. Attention and the feed-forward block read the same normed input, and both are added to it;
// norms subtract the mean. Three of four layers are windowed, and only these rotate.
#include "model/arch.h"

enum { PERIOD = 4 }; // of every PERIOD layers the last one is not windowed

static void read_cohere2_keys(kin_hparams *hp, kin_meta *k) {
    hp->window = kin_meta_int(k, "attention.sliding_window", KIN_KEY_REQUIRED, 1, 1 << 27);
    hp->rms_eps = kin_meta_float(k, "attention.layer_norm_epsilon", KIN_KEY_REQUIRED, 0, 1);
    hp->logit_scale = kin_meta_float(k, "logit_scale", KIN_KEY_REQUIRED, 0, 1e6f);
    hp->centers_norms = true;
    if (!k->failed && hp->n_expert > 0) kin_meta_fail(k, "cohere2 models with experts are not supported");
}

static void describe_cohere2_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    (void)hp;
    layer->is_parallel = true;
    layer->is_windowed = il % PERIOD < PERIOD - 1;
    layer->rope = layer->is_windowed ? 1 : KIN_ROPE_NONE;
}

static kin_weight_set require_cohere2_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_W_FFN_NORM_ATTN, KIN_W_FFN_GATE, KIN_W_FFN_UP, KIN_W_FFN_DOWN);
}

static kin_weight_set allow_cohere2_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_QKV_BIAS);
}

const kin_arch kin_arch_cohere2 = {
    .name = "cohere2",
    .title = "Command R7B, Command A",
    .read = read_cohere2_keys,
    .layer = describe_cohere2_layer,
    .required = require_cohere2_weights,
    .optional = allow_cohere2_weights,
};
