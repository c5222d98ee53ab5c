// lfm2, lfm2moe: LFM2 and LFM2.5, dense and with experts. Most layers are short convolutions, the others attention with norms of
// heads. With experts the first layers are dense, and sigmoids choose the experts.
#include "model/arch.h"

// A layer without key and value heads is a convolution.
static void read_kinds(kin_hparams *hp, kin_meta *k) {
    hp->conv.n_taps = kin_meta_int(k, "shortconv.l_cache", KIN_KEY_REQUIRED, 2, KIN_CONVOLUTION_TAPS);
    for (int il = 0; il < hp->n_layer && !k->failed; il++)
        hp->layers[il].is_recurrent = kin_meta_int_at(k, "attention.head_count_kv", il, 1, 0, 1 << 16) == 0;
}

static void read_dense(kin_hparams *hp, kin_meta *k) {
    if (hp->n_expert > 0) kin_meta_fail(k, "an lfm2 model with experts");
    hp->window = kin_meta_int(k, "attention.sliding_window", 0, 0, 1 << 27);
    read_kinds(hp, k);
}

static void read_lfm2_experts(kin_hparams *hp, kin_meta *k) {
    if (hp->n_expert == 0) kin_meta_fail(k, "an lfm2moe model without experts");
    if (kin_meta_int(k, "attention.sliding_window", 0, 0, 1 << 27) > 0)
        kin_meta_fail(k, "windows of attention are not supported for lfm2moe");
    hp->n_dense = kin_meta_int(k, "leading_dense_block_count", 0, 0, hp->n_layer);
    kin_meta_routing(k, &hp->routing, KIN_GATING_SIGMOID, true);
    read_kinds(hp, k);
}

static void describe_lfm2_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->is_windowed = hp->window > 0 && !layer->is_recurrent;
    layer->has_experts = hp->n_expert > 0 && il >= hp->n_dense;
}

static kin_weight_set require_lfm2_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_W_ATTN_NORM);
    const kin_weight_set attention = KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QK_NORM);
    const kin_weight_set convolution = KIN_WEIGHT_SET(KIN_W_CONV_IN, KIN_W_CONV_TAPS, KIN_W_CONV_OUT);
    const kin_weight_set dense = KIN_WEIGHT_SET(KIN_WEIGHTS_DENSE), experts = KIN_WEIGHT_SET(KIN_WEIGHTS_EXPERTS);
    (void)hp;
    kin_weight_set_join(&set, layer->is_recurrent ? &convolution : &attention);
    kin_weight_set_join(&set, layer->has_experts ? &experts : &dense);
    return set;
}

static kin_weight_set allow_lfm2_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp;
    return layer->has_experts ? KIN_WEIGHT_SET(KIN_W_FFN_CHOICE_BIAS) : (kin_weight_set){0};
}

const kin_arch kin_arch_lfm2 = {
    .name = "lfm2",
    .title = "LFM2, LFM2.5",
    .rope_neox = true,
    .mixes_layers = true,
    .output_norm = "token_embd_norm",
    .read = read_dense,
    .layer = describe_lfm2_layer,
    .required = require_lfm2_weights,
    .optional = allow_lfm2_weights,
};

const kin_arch kin_arch_lfm2moe = {
    .name = "lfm2moe",
    .title = "LFM2, LFM2.5 with experts",
    .rope_neox = true,
    .mixes_layers = true,
    .output_norm = "token_embd_norm",
    .read = read_lfm2_experts,
    .layer = describe_lfm2_layer,
    .required = require_lfm2_weights,
    .optional = allow_lfm2_weights,
};
