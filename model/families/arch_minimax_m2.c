// minimax-m2: MiniMax M2, M2.1. Queries and keys are normalised over all heads at once; experts are chosen by sigmoids.
#include "model/arch.h"

static void read_minimax_m2_keys(kin_hparams *hp, kin_meta *k) {
    if (hp->n_ff_exp == 0) hp->n_ff_exp = hp->n_ff;
    kin_meta_routing(k, &hp->routing, KIN_GATING_SIGMOID, true);
    hp->routing.normalize = true;
}

static kin_weight_set require_minimax_m2_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QK_NORM_ALL, KIN_WEIGHTS_EXPERTS, KIN_W_FFN_CHOICE_BIAS);
}

const kin_arch kin_arch_minimax_m2 = {
    .name = "minimax-m2",
    .title = "MiniMax M2, M2.1",
    .rope_neox = true,
    .read = read_minimax_m2_keys,
    .required = require_minimax_m2_weights,
};
