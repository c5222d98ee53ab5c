// mimo2: MiMo-V2-Flash, V2.5 (text). Values are narrower than keys and scaled; windowed layers have sinks, a rope and numbers of
// heads of their own; the first layers are dense, the others have experts chosen by sigmoids. Draft blocks are dense.
#include "model/arch.h"
#include "model/families/moe.h"

static const char *const obeyed[] = {"attention.value_length", "expert_group_count", "nextn_predict_layers", NULL};

static void read_mimo2_keys(kin_hparams *hp, kin_meta *k) {
    kin_rope *windowed = &hp->ropes[1];
    hp->value_scale = kin_meta_float(k, "attention.value_scale", 0, 0, 1e6f);
    hp->window = kin_meta_int(k, "attention.sliding_window", KIN_KEY_REQUIRED, 1, 1 << 27);
    windowed->base = (double)kin_meta_float(k, "rope.freq_base_swa", (float)hp->ropes[0].base, 1, 1e12f);
    hp->n_dense = kin_moe_count_dense(hp, k);
    kin_meta_routing(k, &hp->routing, KIN_GATING_SIGMOID, true);
    hp->routing.normalize = true;
    for (int il = 0; il < hp->n_layer && !k->failed; il++)
        hp->layers[il].is_windowed = kin_meta_int_at(k, "attention.sliding_window_pattern", il, KIN_KEY_REQUIRED, 0, 1);
}

static void read_mimo2_draft(kin_hparams *hp, kin_meta *k, int i_block) {
    hp->n_dense = !kin_moe_has_router(k, i_block);
    kin_hparams_read_widths(&hp->layers[0], k, i_block);
    hp->layers[0].is_windowed = kin_meta_int_at(k, "attention.sliding_window_pattern", i_block, KIN_KEY_REQUIRED, 0, 1);
}

static void describe_mimo2_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->rope = layer->is_windowed;
    layer->has_experts = hp->n_expert > 0 && il >= hp->n_dense;
}

static kin_weight_set require_mimo2_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_W_ATTN_NORM, KIN_W_ATTN_OUT);
    kin_moe_join_required(&set, hp, layer);
    return set;
}

static kin_weight_set allow_mimo2_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_W_ATTN_QKV, KIN_W_ATTN_Q, KIN_W_ATTN_K, KIN_W_ATTN_V, KIN_W_ATTN_SINKS);
    const kin_weight_set bias = KIN_WEIGHT_SET(KIN_W_FFN_CHOICE_BIAS);
    (void)hp;
    if (layer->has_experts) kin_weight_set_join(&set, &bias);
    return set;
}

const kin_arch kin_arch_mimo2 = {
    .name = "mimo2",
    .title = "MiMo-V2-Flash, V2.5 (text)",
    .rope_neox = true,
    .drafts = true,
    .drafts_unnormed = true,
    .keys = obeyed,
    .read = read_mimo2_keys,
    .layer = describe_mimo2_layer,
    .draft_layer = read_mimo2_draft,
    .required = require_mimo2_weights,
    .optional = allow_mimo2_weights,
};
