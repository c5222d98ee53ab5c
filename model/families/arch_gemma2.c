// gemma2: Gemma 2. The output of both blocks is normalised before it is added; scores and logits have soft caps; every second
// layer is windowed.
#include <math.h>

#include "model/arch.h"

enum { LAYERS_27B = 46 }; // the 27B model, whose attention scale is that of a narrower head

static void read_gemma2_keys(kin_hparams *hp, kin_meta *k) {
    hp->window = kin_meta_int(k, "attention.sliding_window", 4096, 1, 1 << 27);
    hp->logit_softcap = kin_meta_float(k, "final_logit_softcapping", 30, 0, 1e6f);
    hp->score_softcap = kin_meta_float(k, "attn_logit_softcapping", 50, 0, 1e6f);
    hp->ropes[1].base = (double)kin_meta_float(k, "rope.freq_base_swa", (float)hp->ropes[0].base, 1, 1e12f);
    hp->embedding_scale = sqrtf((float)hp->n_embd);
}

static void describe_gemma2_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->is_windowed = il % 2 == 0;
    layer->rope = layer->is_windowed;
    layer->gate = KIN_GATE_GELU;
    if (hp->n_layer == LAYERS_27B) layer->attn_scale = 1.0f / sqrtf((float)(hp->n_embd / hp->n_head));
}

static kin_weight_set require_gemma2_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_DENSE, KIN_WEIGHTS_OUT_NORM);
}

const kin_arch kin_arch_gemma2 = {
    .name = "gemma2",
    .title = "Gemma 2",
    .rope_neox = true,
    .read = read_gemma2_keys,
    .layer = describe_gemma2_layer,
    .required = require_gemma2_weights,
};
