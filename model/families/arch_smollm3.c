// smollm3: SmolLM3. Llama without a rope in every fourth layer.
#include "model/arch.h"

enum { PERIOD = 4 };

static void describe_smollm3_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    (void)hp;
    if (il % PERIOD == PERIOD - 1) layer->rope = KIN_ROPE_NONE;
}

static kin_weight_set require_smollm3_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_DENSE);
}

const kin_arch kin_arch_smollm3 = {
    .name = "smollm3",
    .title = "SmolLM3",
    .layer = describe_smollm3_layer,
    .required = require_smollm3_weights,
};
