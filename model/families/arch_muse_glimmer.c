// muse-glimmer: Muse Glimmer 30B. The embedding is normalised; so are the outputs of both blocks, and queries and keys; each
// value of the heads' results has a gate. Three of four layers are windowed, and only these rotate.
#include "model/arch.h"

enum { PERIOD = 4 }; // of every PERIOD layers the last one is not windowed

static void read_muse_glimmer_keys(kin_hparams *hp, kin_meta *k) {
    hp->window = kin_meta_int(k, "attention.sliding_window", KIN_KEY_REQUIRED, 1, 1 << 27);
    hp->ropes[1].base = (double)kin_meta_float(k, "rope.freq_base_swa", (float)hp->ropes[0].base, 1, 1e12f);
    hp->logit_scale = kin_meta_float(k, "logit_scale", 1, 0, 1e6f);
    if (hp->logit_scale == 0) hp->logit_scale = 1;
    hp->logit_softcap = kin_meta_float(k, "final_logit_softcapping", 0, 0, 1e6f);
    hp->norms_embedding = true;
    hp->out_norm_eps = 1e-8f;
}

static void describe_muse_glimmer_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->is_windowed = il % PERIOD < PERIOD - 1;
    layer->rope = layer->is_windowed ? 1 : KIN_ROPE_NONE;
    layer->n_head_gate = hp->head_dim;
    layer->head_gate = KIN_HEAD_GATE_SIGMOID;
}

static kin_weight_set require_muse_glimmer_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QK_NORM, KIN_W_ATTN_GATE, KIN_WEIGHTS_DENSE, KIN_WEIGHTS_OUT_NORM);
}

const kin_arch kin_arch_muse_glimmer = {
    .name = "muse-glimmer",
    .title = "Muse Glimmer 30B",
    .read = read_muse_glimmer_keys,
    .layer = describe_muse_glimmer_layer,
    .required = require_muse_glimmer_weights,
};
