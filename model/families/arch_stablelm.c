// stablelm: StableLM 3B, StableLM 2 1.6B and 12B, Stable Code. Norms subtract the mean and have biases; a part of each head
// rotates. In 12B both blocks of a layer read the same normed input, and each head of queries and keys has a norm of its own.
#include <stdio.h>

#include "model/arch.h"

static bool has_tensor(const kin_meta *k, int il, const char *tensor) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", il, tensor);
    return kin_gguf_find_tensor(k->gguf, name) != NULL;
}

// A layer whose feed-forward block has no norm of its own reads attention's.
static void read_stablelm_keys(kin_hparams *hp, kin_meta *k) {
    hp->rms_eps = kin_meta_float(k, "attention.layer_norm_epsilon", KIN_KEY_REQUIRED, 0, 1);
    hp->centers_norms = true;
    for (int il = 0; il < hp->n_layer && !k->failed; il++) {
        hp->layers[il].is_parallel = !has_tensor(k, il, "ffn_norm.weight");
        if (has_tensor(k, il, "attn_q_norm.weight") != has_tensor(k, il, "attn_k_norm.weight"))
            kin_meta_fail(k, "layer %d has a norm of query heads or of key heads alone", il);
    }
    if (!k->failed && hp->n_expert > 0) kin_meta_fail(k, "a stablelm model with experts");
}

static kin_weight_set require_stablelm_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set =
        KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_W_ATTN_NORM_BIAS, KIN_W_FFN_GATE, KIN_W_FFN_UP, KIN_W_FFN_DOWN);
    const kin_weight_set own = KIN_WEIGHT_SET(KIN_W_FFN_NORM, KIN_W_FFN_NORM_BIAS);
    const kin_weight_set shared = KIN_WEIGHT_SET(KIN_W_FFN_NORM_ATTN, KIN_W_FFN_NORM_ATTN_BIAS);
    (void)hp;
    kin_weight_set_join(&set, layer->is_parallel ? &shared : &own);
    return set;
}

static kin_weight_set allow_stablelm_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_QKV_BIAS, KIN_W_ATTN_Q_NORM_EACH, KIN_W_ATTN_K_NORM_EACH);
}

const kin_arch kin_arch_stablelm = {
    .name = "stablelm",
    .title = "StableLM 3B, StableLM 2, Stable Code",
    .rope_neox = true,
    .biases_output_norm = true,
    .read = read_stablelm_keys,
    .required = require_stablelm_weights,
    .optional = allow_stablelm_weights,
};
