// granite: Granite 3 and 4, dense. Llama plus scale factors on embedding, scores, residual and logits.
#include "model/families/granite.h"

static float factor_or(float factor, float fallback) {
    return factor != 0 ? factor : fallback;
}

void kin_granite_read(kin_hparams *hp, kin_meta *k) {
    hp->embedding_scale = factor_or(kin_meta_float(k, "embedding_scale", 0, 0, 1e6f), 1);
    hp->residual_scale = factor_or(kin_meta_float(k, "residual_scale", 0, 0, 1e6f), 1);
    hp->attn_scale = kin_meta_float(k, "attention.scale", 0, 0, 1e6f);
    hp->logit_scale = 1 / factor_or(kin_meta_float(k, "logit_scale", 1, 0, 1e6f), 1);
    hp->has_no_rope = !kin_meta_bool(k, "rope.scaling.finetuned", true);
}

static kin_weight_set require_granite_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_DENSE);
}

const kin_arch kin_arch_granite = {
    .name = "granite",
    .title = "Granite 3, 4 (dense)",
    .read = kin_granite_read,
    .required = require_granite_weights,
};
