// exaone4: EXAONE 4.0. The outputs of blocks are normalised, not their inputs, and so are the heads of queries and keys. In the
// 32B model three of four layers are windowed, and only these have a rope.
#include "model/arch.h"

enum {
    LAYERS_32B = 64, // the 32B model, whose older files do not say that it has windows
    WINDOW_32B = 4096,
    PERIOD = 4, // of every PERIOD layers the last one is not windowed, if the file has no list
};

static void read_exaone4_keys(kin_hparams *hp, kin_meta *k) {
    hp->window = kin_meta_int(k, "attention.sliding_window", hp->n_layer == LAYERS_32B ? WINDOW_32B : 0, 0, 1 << 27);
    hp->ropes[1].base = (double)kin_meta_float(k, "rope.freq_base_swa", (float)hp->ropes[0].base, 1, 1e12f);
    for (int il = 0; il < hp->n_layer && hp->window > 0 && !k->failed; il++)
        hp->layers[il].is_windowed = kin_meta_int_at(k, "attention.sliding_window_pattern", il, il % PERIOD < PERIOD - 1, 0, 1);
    if (!k->failed && hp->n_expert > 0) kin_meta_fail(k, "an exaone4 model with experts");
}

static void describe_exaone4_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    (void)il;
    if (hp->window > 0) layer->rope = layer->is_windowed ? 1 : KIN_ROPE_NONE;
}

static kin_weight_set require_exaone4_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_W_ATTN_Q, KIN_W_ATTN_K, KIN_W_ATTN_V, KIN_W_ATTN_OUT, KIN_WEIGHTS_QK_NORM, KIN_W_FFN_GATE,
                          KIN_W_FFN_UP, KIN_W_FFN_DOWN, KIN_WEIGHTS_OUT_NORM);
}

const kin_arch kin_arch_exaone4 = {
    .name = "exaone4",
    .title = "EXAONE 4.0",
    .rope_neox = true,
    .read = read_exaone4_keys,
    .layer = describe_exaone4_layer,
    .required = require_exaone4_weights,
};
