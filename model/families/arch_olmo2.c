// olmo2: OLMo 2 and 3. The outputs of blocks are normalised, not their inputs; queries and keys over all heads at once. In OLMo 3
// three of four layers are windowed, and their rope is not scaled.
#include "model/arch.h"

enum { PERIOD = 4 }; // of every PERIOD layers the last one is not windowed

static void read_olmo2_keys(kin_hparams *hp, kin_meta *k) {
    hp->window = kin_meta_int(k, "attention.sliding_window", 0, 0, 1 << 27);
    hp->ropes[1].freq_scale = hp->ropes[1].attn_factor = 1;
    hp->ropes[1].ext_factor = 0;
}

static void describe_olmo2_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->is_windowed = hp->window > 0 && il % PERIOD < PERIOD - 1;
    layer->rope = layer->is_windowed;
}

static kin_weight_set require_olmo2_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_W_ATTN_Q, KIN_W_ATTN_K, KIN_W_ATTN_V, KIN_W_ATTN_OUT, KIN_WEIGHTS_QK_NORM_ALL, KIN_W_FFN_GATE,
                          KIN_W_FFN_UP, KIN_W_FFN_DOWN, KIN_WEIGHTS_OUT_NORM);
}

const kin_arch kin_arch_olmo2 = {
    .name = "olmo2",
    .title = "OLMo 2, 3",
    .rope_neox = true,
    .read = read_olmo2_keys,
    .layer = describe_olmo2_layer,
    .required = require_olmo2_weights,
};
