// gemma3: Gemma 3, text only. Like Gemma 2, but with head norms instead of soft caps; five of six layers are windowed and use a
// rope of their own.
#include <math.h>

#include "model/arch.h"

enum {
    LAYERS_27B = 62, // the 27B model, whose attention scale is that of a narrower head
    PERIOD = 6,      // of every PERIOD layers the last one is not windowed
};

static void read_gemma3_keys(kin_hparams *hp, kin_meta *k) {
    hp->window = kin_meta_int(k, "attention.sliding_window", 0, 0, 1 << 27);
    hp->logit_softcap = kin_meta_float(k, "final_logit_softcapping", 0, 0, 1e6f);
    hp->ropes[1].base = (double)kin_meta_float(k, "rope.freq_base_swa", 10000, 1, 1e12f);
    hp->ropes[1].freq_scale = 1;
    hp->embedding_scale = sqrtf((float)hp->n_embd);
}

static void describe_gemma3_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->is_windowed = hp->window > 0 && il % PERIOD < PERIOD - 1;
    layer->rope = layer->is_windowed;
    layer->gate = KIN_GATE_GELU;
    if (hp->n_layer == LAYERS_27B) layer->attn_scale = 1.0f / sqrtf((float)(hp->n_embd / hp->n_head));
}

static kin_weight_set require_gemma3_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QK_NORM, KIN_WEIGHTS_DENSE, KIN_WEIGHTS_OUT_NORM);
}

const kin_arch kin_arch_gemma3 = {
    .name = "gemma3",
    .title = "Gemma 3 (text)",
    .rope_neox = true,
    .read = read_gemma3_keys,
    .layer = describe_gemma3_layer,
    .required = require_gemma3_weights,
};
