// phi3: Phi 3, 3.5, 4 and 4-mini. Query, key and value are one matrix, gate and up another; the rope factors depend on the size
// of the context. A window in the file is ignored, as in llama.cpp: these models were published with full attention.
#include "model/arch.h"

static void read_phi3_keys(kin_hparams *hp, kin_meta *k) {
    hp->has_long_factors = kin_gguf_find_tensor(k->gguf, "rope_factors_long.weight") != NULL;
}

static kin_weight_set require_phi3_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_W_ATTN_NORM, KIN_W_ATTN_OUT, KIN_W_FFN_NORM, KIN_W_FFN_GATE_UP, KIN_W_FFN_DOWN);
}

static kin_weight_set allow_phi3_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_W_ATTN_QKV, KIN_W_ATTN_QKV_BIAS, KIN_W_ATTN_Q, KIN_W_ATTN_K, KIN_W_ATTN_V, KIN_WEIGHTS_QKV_BIAS);
}

const kin_arch kin_arch_phi3 = {
    .name = "phi3",
    .title = "Phi 3, 3.5, 4, 4-mini",
    .rope_neox = true,
    .read = read_phi3_keys,
    .required = require_phi3_weights,
    .optional = allow_phi3_weights,
};
