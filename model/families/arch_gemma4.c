// gemma4: Gemma 4, text only. Like Gemma 3, but layers without a window have wider heads and fewer of keys and values, which may
// be made of the same products; attention is not scaled; values are normalised. Some models have experts beside a dense block. In
// others the last layers read keys and values of an earlier one, and each layer is given an input made of the token itself.
#include <math.h>

#include "model/arch.h"

static const char *const obeyed[] = {"attention.key_length_swa", "attention.value_length_swa", NULL};

static void read_windowed_heads(kin_hparams *hp, kin_meta *k) {
    const int k_dim = kin_meta_int(k, "attention.key_length_swa", hp->head_dim, 1, 4096);
    const int v_dim = kin_meta_int(k, "attention.value_length_swa", hp->head_dim, 1, 4096);
    if (!k->failed && hp->ropes[1].n_rot > k_dim)
        kin_meta_fail(k, "%d of %d dimensions of a windowed layer's head cannot rotate", hp->ropes[1].n_rot, k_dim);
    for (int il = 0; il < hp->n_layer && !k->failed; il++) {
        kin_layer *layer = &hp->layers[il];
        layer->is_windowed = kin_meta_int_at(k, "attention.sliding_window_pattern", il, KIN_KEY_REQUIRED, 0, 1);
        if (layer->is_windowed) layer->head_dim = k_dim;
        if (layer->is_windowed) layer->v_dim = v_dim;
    }
}

// The last layers read the keys and values of the last layer of their kind that has its own.
static void read_shared(kin_hparams *hp, kin_meta *k) {
    const int n_shared = kin_meta_int(k, "attention.shared_kv_layers", 0, 0, hp->n_layer), n_own = hp->n_layer - n_shared;
    int last[2] = {-1, -1};
    for (int il = 0; il < hp->n_layer && !k->failed; il++) {
        kin_layer *layer = &hp->layers[il];
        if (il < n_own) {
            last[layer->is_windowed] = il;
        } else if (last[layer->is_windowed] >= 0) {
            layer->kv_back = il - last[layer->is_windowed];
            layer->n_head_kv = kin_layer_of(hp, last[layer->is_windowed]).n_head_kv;
            if (kin_layer_of(hp, il).n_head % layer->n_head_kv != 0)
                kin_meta_fail(k, "the heads of layer %d cannot share %d key/value heads evenly", il, layer->n_head_kv);
        } else {
            kin_meta_fail(k, "layer %d shares keys and values, but no layer of its kind has any", il);
        }
    }
}

static void read_gemma4_keys(kin_hparams *hp, kin_meta *k) {
    kin_rope *windowed = &hp->ropes[1];
    hp->window = kin_meta_int(k, "attention.sliding_window", KIN_KEY_REQUIRED, 1, 1 << 27);
    hp->logit_softcap = kin_meta_float(k, "final_logit_softcapping", 30, 0, 1e6f);
    windowed->base = (double)kin_meta_float(k, "rope.freq_base_swa", 10000, 1, 1e12f);
    windowed->freq_scale = windowed->attn_factor = 1;
    windowed->ext_factor = 0;
    hp->ignores_factors[1] = true;
    hp->attn_scale = 1;
    hp->embedding_scale = sqrtf((float)hp->n_embd);
    hp->router_scale = 1 / hp->embedding_scale;
    kin_meta_routing(k, &hp->routing, KIN_GATING_SOFTMAX, true);
    read_windowed_heads(hp, k);
    read_shared(hp, k);
    hp->n_input = kin_meta_int(k, "embedding_length_per_layer_input", 0, 0, 1 << 20);
    if (!k->failed && hp->n_input > 0 && hp->n_embd % 16 != 0)
        kin_meta_fail(k, "inputs of the layers need a width that is a multiple of 16, not %d", hp->n_embd);
}

static void describe_gemma4_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    (void)hp, (void)il;
    layer->rope = layer->is_windowed;
    layer->gate = KIN_GATE_GELU;
    layer->norms_values = true;
}

static kin_weight_set require_gemma4_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set =
        KIN_WEIGHT_SET(KIN_W_ATTN_NORM, KIN_W_ATTN_Q, KIN_W_ATTN_Q_NORM, KIN_W_ATTN_OUT, KIN_WEIGHTS_DENSE, KIN_WEIGHTS_OUT_NORM);
    const kin_weight_set own_keys = KIN_WEIGHT_SET(KIN_W_ATTN_K, KIN_W_ATTN_K_NORM);
    const kin_weight_set input = KIN_WEIGHT_SET(KIN_W_INPUT_GATE, KIN_W_INPUT_PROJ, KIN_W_INPUT_NORM);
    const kin_weight_set experts = KIN_WEIGHT_SET(KIN_W_FFN_ROUTER, KIN_W_FFN_ROUTER_NORM, KIN_W_FFN_EXPS_NORM,
                                                  KIN_W_FFN_DOWN_EXPS, KIN_W_FFN_EXPS_OUT_NORM, KIN_W_FFN_DENSE_OUT_NORM);
    if (layer->kv_back == 0) kin_weight_set_join(&set, &own_keys);
    if (hp->n_input > 0) kin_weight_set_join(&set, &input);
    if (layer->has_experts) kin_weight_set_join(&set, &experts);
    return set;
}

static kin_weight_set allow_gemma4_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_W_ATTN_V, KIN_W_LAYER_SCALE);
    const kin_weight_set unused = KIN_WEIGHT_SET(KIN_W_ATTN_K, KIN_W_ATTN_K_NORM); // of layers that read those of another one
    const kin_weight_set experts =
        KIN_WEIGHT_SET(KIN_W_FFN_GATE_UP_EXPS, KIN_W_FFN_GATE_EXPS, KIN_W_FFN_UP_EXPS, KIN_W_FFN_EXPS_SCALE);
    (void)hp;
    if (layer->kv_back > 0) kin_weight_set_join(&set, &unused);
    if (layer->has_experts) kin_weight_set_join(&set, &experts);
    return set;
}

const kin_arch kin_arch_gemma4 = {
    .name = "gemma4",
    .title = "Gemma 4 (text)",
    .rope_neox = true,
    .keys = obeyed,
    .read = read_gemma4_keys,
    .layer = describe_gemma4_layer,
    .required = require_gemma4_weights,
    .optional = allow_gemma4_weights,
};
