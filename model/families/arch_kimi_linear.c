// kimi-linear: Kimi Linear. Most layers are Kimi's delta attention (KDA): a gated delta net in which each number of a key has a
// decay of its own; the others are latent attention without a rope. The first layers are dense, the others have experts, which
// are chosen by sigmoids, and a shared one.
#include <math.h>

#include "model/families/deepseek2.h"
#include "model/families/kimi_linear.h"
#include "model/families/moe.h"

static const char *const obeyed[] = {"attention.value_length", "expert_group_count", NULL};

// As many heads as attention has; keys and values are equally wide.
void kin_kimi_linear_read_delta(kin_hparams *hp, kin_meta *k) {
    kin_delta_net *d = &hp->delta;
    d->decays_rows = d->gates_by_sigmoid = true;
    d->n_taps = kin_meta_int(k, "ssm.conv_kernel", KIN_KEY_REQUIRED, 2, KIN_CONVOLUTION_TAPS);
    d->head_dim = d->key_dim = kin_meta_int(k, "kda.head_dim", KIN_KEY_REQUIRED, 16, KIN_DELTA_KEYS);
    d->n_key_heads = d->n_value_heads = hp->n_head;
    if (!k->failed && d->head_dim % 16)
        kin_meta_fail(k, "recurrent layers with heads of %d dimensions are not supported", d->head_dim);
    for (int il = 0; il < hp->n_layer && !k->failed; il++) {
        hp->layers[il].is_recurrent = kin_meta_int_at(k, "attention.head_count_kv", il, hp->n_head, 0, 1 << 16) == 0;
        if (kin_layer_of(hp, il).n_head != hp->n_head) kin_meta_fail(k, "layers with unlike numbers of heads are not supported");
    }
}

// The rotary keys do not rotate. Files may hold another width in value_length, which llama.cpp does not read either.
void kin_kimi_linear_read_latents(kin_hparams *hp, kin_meta *k) {
    hp->has_no_rope = true;
    hp->v_dim = kin_meta_int(k, "attention.kv_lora_rank", KIN_KEY_REQUIRED, 16, 4096);
    if (!k->failed) kin_deepseek2_read_heads(hp, k);
    if (!k->failed && hp->latent.is_fused) kin_meta_fail(k, "the key '%s.attention.key_length_mla' is missing", k->family);
    hp->attn_scale = 1 / sqrtf((float)(hp->latent.k_dim + hp->latent.n_rot));
}

static void read_kimi_linear_keys(kin_hparams *hp, kin_meta *k) {
    kin_kimi_linear_read_delta(hp, k);
    if (!k->failed) kin_kimi_linear_read_latents(hp, k);
    if (!k->failed) kin_deepseek2_read_experts(hp, k, KIN_GATING_SIGMOID, true);
}

static void describe_kimi_linear_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->is_latent = !layer->is_recurrent;
    layer->has_experts = hp->n_expert > 0 && il >= hp->n_dense;
}

kin_weight_set kin_kimi_linear_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_W_ATTN_NORM);
    const kin_weight_set delta = KIN_WEIGHT_SET(
        KIN_W_KDA_Q, KIN_W_KDA_K, KIN_W_KDA_V, KIN_W_KDA_CONV_Q, KIN_W_KDA_CONV_K, KIN_W_KDA_CONV_V, KIN_W_KDA_DECAY_A,
        KIN_W_KDA_DECAY_B, KIN_W_KDA_DT, KIN_W_KDA_GATE_A, KIN_W_KDA_GATE_B, KIN_W_KDA_OUT, KIN_W_DELTA_BETA, KIN_W_DELTA_NORM);
    const kin_weight_set latent =
        KIN_WEIGHT_SET(KIN_W_LATENT_KV_A, KIN_W_LATENT_KV_A_NORM, KIN_W_LATENT_K_B, KIN_W_LATENT_V_B, KIN_W_LATENT_OUT);
    const kin_weight_set one = KIN_WEIGHT_SET(KIN_W_LATENT_Q);
    const kin_weight_set two = KIN_WEIGHT_SET(KIN_W_LATENT_Q_A, KIN_W_LATENT_Q_A_NORM, KIN_W_LATENT_Q_B);
    kin_weight_set_join(&set, layer->is_recurrent ? &delta : &latent);
    if (layer->is_latent) kin_weight_set_join(&set, hp->latent.n_query > 0 ? &two : &one);
    kin_moe_join_required(&set, hp, layer);
    return set;
}

static kin_weight_set require_kimi_linear_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = kin_kimi_linear_weights(hp, layer);
    if (layer->is_recurrent) kin_weight_set_add(&set, KIN_W_STATE_A);
    return set;
}

kin_weight_set kin_kimi_linear_optional_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp;
    return layer->has_experts ? KIN_WEIGHT_SET(KIN_W_FFN_CHOICE_BIAS) : (kin_weight_set){{0}};
}

const kin_arch kin_arch_kimi_linear = {
    .name = "kimi-linear",
    .title = "Kimi Linear",
    .mixes_layers = true,
    .keys = obeyed,
    .read = read_kimi_linear_keys,
    .layer = describe_kimi_linear_layer,
    .required = require_kimi_linear_weights,
    .optional = kin_kimi_linear_optional_weights,
};
