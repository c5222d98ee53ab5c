// step35: Step 3.5 Flash, Step 3.7 Flash (text). Each head's result has a gate; windowed layers have another number of heads and
// a rope of their own; the first layers are dense, the others have experts chosen by sigmoids and a shared expert, some with
// limits.
#include "model/arch.h"
#include "model/families/moe.h"

static const char *const obeyed[] = {"nextn_predict_layers", "expert_group_count", NULL};

static float read_limit(kin_meta *k, const char *key, int il) {
    const float limit = kin_meta_float_at(k, key, il, 0, 0, 1e6f);
    return limit < 1e-6f ? 0 : limit;
}

// Half as many dimensions of a head rotate in layers without a window as the file says. Rope factors are as many as the wider
// rope needs.
static void read_ropes(kin_hparams *hp, kin_meta *k) {
    kin_rope *full = &hp->ropes[0], *windowed = &hp->ropes[1];
    windowed->base = (double)kin_meta_float(k, "rope.freq_base_swa", (float)full->base, 1, 1e12f);
    windowed->freq_scale = windowed->attn_factor = 1;
    windowed->ext_factor = 0;
    hp->ignores_factors[1] = true;
    full->n_rot /= 2;
    hp->n_rope_factors = (full->n_rot > windowed->n_rot ? full->n_rot : windowed->n_rot) / 2;
    if (!k->failed && full->n_rot % 2 != 0) kin_meta_fail(k, "cannot rotate half of a head's %d dimensions", 2 * full->n_rot);
}

static void read_layer(kin_layer *layer, kin_meta *k, int il) {
    layer->is_windowed = kin_meta_int_at(k, "attention.sliding_window_pattern", il, KIN_KEY_REQUIRED, 0, 1);
    layer->limit_exps = read_limit(k, "swiglu_clamp_exp", il);
    layer->limit_shared = read_limit(k, "swiglu_clamp_shexp", il);
    layer->n_head_gate = 1;
}

static void read_step35_keys(kin_hparams *hp, kin_meta *k) {
    hp->window = kin_meta_int(k, "attention.sliding_window", KIN_KEY_REQUIRED, 1, 1 << 27);
    hp->n_ff_shared = kin_meta_int(k, "expert_shared_feed_forward_length", hp->n_ff_exp, 0, 1 << 20);
    kin_meta_routing(k, &hp->routing, KIN_GATING_SIGMOID, true);
    hp->n_dense = kin_moe_count_dense(hp, k);
    read_ropes(hp, k);
    for (int il = 0; il < hp->n_layer && !k->failed; il++) read_layer(&hp->layers[il], k, il);
}

static void read_step35_draft(kin_hparams *hp, kin_meta *k, int i_block) {
    hp->n_dense = !kin_moe_has_router(k, i_block);
    kin_hparams_read_widths(&hp->layers[0], k, i_block);
    read_layer(&hp->layers[0], k, i_block);
}

static void describe_step35_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->rope = layer->is_windowed;
    layer->has_experts = hp->n_expert > 0 && il >= hp->n_dense;
    layer->head_gate = KIN_HEAD_GATE_SIGMOID;
}

static kin_weight_set require_step35_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_W_ATTN_GATE);
    kin_moe_join_required(&set, hp, layer);
    return set;
}

static kin_weight_set allow_step35_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp;
    return layer->has_experts ? KIN_WEIGHT_SET(KIN_WEIGHTS_QK_NORM, KIN_W_FFN_CHOICE_BIAS) : KIN_WEIGHT_SET(KIN_WEIGHTS_QK_NORM);
}

const kin_arch kin_arch_step35 = {
    .name = "step35",
    .title = "Step 3.5 Flash, Step 3.7 Flash (text)",
    .rope_neox = true,
    .drafts = true,
    .drafts_unnormed = true,
    .keys = obeyed,
    .read = read_step35_keys,
    .layer = describe_step35_layer,
    .draft_layer = read_step35_draft,
    .required = require_step35_weights,
    .optional = allow_step35_weights,
};
