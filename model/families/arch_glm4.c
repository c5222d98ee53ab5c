// glm4: GLM-4-0414. The output of both blocks is normalised before it is added; gate and up are one matrix.
#include "model/arch.h"

// Vision models rotate by sections of positions. In text all sections have the same position, which is the same as NEOX pairs.
static const char *const obeyed[] = {"nextn_predict_layers", NULL};

static void read_glm4_keys(kin_hparams *hp, kin_meta *k) {
    kin_gguf_array sections;
    kin_err ignored;
    if (kin_gguf_get_array(k->gguf, "glm4.rope.dimension_sections", &sections, &ignored) == 0) hp->rope_neox = true;
}

static kin_weight_set require_glm4_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_W_FFN_NORM, KIN_W_FFN_GATE_UP, KIN_W_FFN_DOWN, KIN_WEIGHTS_OUT_NORM);
}

static kin_weight_set allow_glm4_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_QKV_BIAS);
}

const kin_arch kin_arch_glm4 = {
    .name = "glm4",
    .title = "GLM-4-0414 (9B, 32B)",
    .keys = obeyed,
    .read = read_glm4_keys,
    .required = require_glm4_weights,
    .optional = allow_glm4_weights,
};
