// nemotron_h: Nemotron-H, Nemotron Nano 2. A layer is one block: a state space (Mamba-2), attention without a rope, or a
// feed-forward block without a gate, whose activation is the square of the positive part. nemotron_h_moe: Nemotron 3. The same
// with experts instead of that block, which are chosen by sigmoids and may work on a latent, and a shared expert. Its draft block
// is attention and experts in one layer.
#include "model/arch.h"

static const char *const obeyed[] = {"nextn_predict_layers", NULL};

static void read_state_space(kin_hparams *hp, kin_meta *k) {
    kin_delta_net *d = &hp->delta;
    d->is_state_space = d->is_grouped = true;
    d->n_taps = kin_meta_int(k, "ssm.conv_kernel", KIN_KEY_REQUIRED, 2, KIN_CONVOLUTION_TAPS);
    d->key_dim = kin_meta_int(k, "ssm.state_size", KIN_KEY_REQUIRED, 16, KIN_DELTA_KEYS);
    d->n_key_heads = kin_meta_int(k, "ssm.group_count", KIN_KEY_REQUIRED, 1, 4096);
    d->n_value_heads = kin_meta_int(k, "ssm.time_step_rank", KIN_KEY_REQUIRED, 1, 4096);
    const int n_values = kin_meta_int(k, "ssm.inner_size", KIN_KEY_REQUIRED, 1, 1 << 20);
    if (k->failed) return;
    d->head_dim = n_values / d->n_value_heads;
    if (d->key_dim % 16 || d->head_dim % 16 || n_values % d->n_value_heads || d->n_value_heads % d->n_key_heads)
        kin_meta_fail(k, "state spaces of %d groups with %d numbers, and of %d heads with %d values in total, are not supported",
                      d->n_key_heads, d->key_dim, d->n_value_heads, n_values);
}

static void read_nemotron_experts(kin_hparams *hp, kin_meta *k) {
    hp->n_ff_shared = kin_meta_int(k, "expert_shared_feed_forward_length", 0, 0, 1 << 20);
    hp->n_expert_latent = kin_meta_int(k, "moe_latent_size", 0, 0, 1 << 20);
    kin_meta_routing(k, &hp->routing, KIN_GATING_SIGMOID, false);
    if (!k->failed && hp->n_expert == 0) kin_meta_fail(k, "a nemotron_h_moe model without experts");
    if (!k->failed && hp->n_expert_latent % 16 != 0) // their sums are computed in vectors
        kin_meta_fail(k, "a latent of experts must be a multiple of 16 numbers, not %d", hp->n_expert_latent);
}

// A layer without a feed-forward block is attention, or, without key and value heads, a state space.
static void read_layers(kin_hparams *hp, kin_meta *k) {
    read_state_space(hp, k);
    hp->has_no_rope = true;
    hp->attn_scale = kin_meta_float(k, "attention.scale", 0, 0, 1e6f);
    bool has_states = false;
    for (int il = 0; il < hp->n_layer && !k->failed; il++) {
        kin_layer *layer = &hp->layers[il];
        layer->has_no_attention = kin_meta_int_at(k, "feed_forward_length", il, 0, 0, 1 << 20) > 0;
        layer->has_no_ff = !layer->has_no_attention;
        layer->is_recurrent = layer->has_no_ff && kin_meta_int_at(k, "attention.head_count_kv", il, 1, 0, 1 << 16) == 0;
        has_states = has_states || layer->is_recurrent;
    }
    if (!has_states) kin_meta_fail(k, "a %s model without state spaces", k->family); // ggml has no block without a gate
}

static void read_nemotron_h_keys(kin_hparams *hp, kin_meta *k) {
    read_layers(hp, k);
    if (!k->failed && hp->n_expert > 0) kin_meta_fail(k, "a nemotron_h model with experts");
}

static void read_nemotron_h_moe_keys(kin_hparams *hp, kin_meta *k) {
    read_layers(hp, k);
    if (!k->failed) read_nemotron_experts(hp, k);
}

static bool is_draft(const kin_layer *layer) {
    return !layer->has_no_attention && !layer->has_no_ff;
}

static void read_nemotron_draft(kin_hparams *hp, kin_meta *k, int i_block) {
    hp->layers[0].n_head = kin_meta_int_at(k, "attention.head_count", i_block, KIN_KEY_REQUIRED, 1, 1 << 12);
    hp->layers[0].n_head_kv = kin_meta_int_at(k, "attention.head_count_kv", i_block, 0, 0, 1 << 12); // 0: as the model's
}

static void describe_nemotron_h_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    (void)il;
    layer->has_experts = hp->n_expert > 0 && (layer->has_no_attention || is_draft(layer));
}

static kin_weight_set require_experts(const kin_hparams *hp) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_W_FFN_ROUTER, KIN_W_FFN_UP_EXPS, KIN_W_FFN_DOWN_EXPS);
    const kin_weight_set shared = KIN_WEIGHT_SET(KIN_W_FFN_SHARED_UP, KIN_W_FFN_SHARED_DOWN);
    const kin_weight_set latent = KIN_WEIGHT_SET(KIN_W_FFN_LATENT_DOWN, KIN_W_FFN_LATENT_UP);
    if (hp->n_ff_shared > 0) kin_weight_set_join(&set, &shared);
    if (hp->n_expert_latent > 0) kin_weight_set_join(&set, &latent);
    return set;
}

static kin_weight_set require_nemotron_h_weights(const kin_hparams *hp, const kin_layer *layer) {
    if (layer->has_experts) {
        kin_weight_set set = require_experts(hp), norm = KIN_WEIGHT_SET(KIN_W_FFN_NORM_ATTN);
        const kin_weight_set draft = KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_W_FFN_NORM_2);
        kin_weight_set_join(&set, is_draft(layer) ? &draft : &norm);
        return set;
    }
    if (layer->has_no_attention) return KIN_WEIGHT_SET(KIN_W_FFN_NORM_ATTN, KIN_W_FFN_UP, KIN_W_FFN_DOWN);
    if (!layer->is_recurrent) return KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION);
    return KIN_WEIGHT_SET(KIN_W_ATTN_NORM, KIN_W_STATE_IN, KIN_W_DELTA_CONV, KIN_W_STATE_CONV_BIAS, KIN_W_DELTA_DT, KIN_W_STATE_A,
                          KIN_W_STATE_D, KIN_W_STATE_NORM, KIN_W_DELTA_OUT);
}

static kin_weight_set allow_nemotron_h_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp;
    if (layer->has_experts && is_draft(layer))
        return KIN_WEIGHT_SET(KIN_W_FFN_CHOICE_BIAS, KIN_WEIGHTS_QKV_BIAS, KIN_W_ATTN_OUT_BIAS);
    if (layer->has_experts) return KIN_WEIGHT_SET(KIN_W_FFN_CHOICE_BIAS);
    if (layer->has_no_attention || layer->is_recurrent) return (kin_weight_set){{0}};
    return KIN_WEIGHT_SET(KIN_WEIGHTS_QKV_BIAS, KIN_W_ATTN_OUT_BIAS);
}

const kin_arch kin_arch_nemotron_h = {
    .name = "nemotron_h",
    .title = "Nemotron-H, Nemotron Nano 2",
    .mixes_layers = true,
    .read = read_nemotron_h_keys,
    .required = require_nemotron_h_weights,
    .optional = allow_nemotron_h_weights,
};

const kin_arch kin_arch_nemotron_h_moe = {
    .name = "nemotron_h_moe",
    .title = "Nemotron 3",
    .mixes_layers = true,
    .drafts = true,
    .centers_drafts = true,
    .keys = obeyed,
    .read = read_nemotron_h_moe_keys,
    .layer = describe_nemotron_h_layer,
    .draft_layer = read_nemotron_draft,
    .required = require_nemotron_h_weights,
    .optional = allow_nemotron_h_weights,
};
