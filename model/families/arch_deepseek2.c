// deepseek2: DeepSeek V2, V2-Lite, V3, R1; Kimi K2; GLM-4.7-Flash; Mistral Large 3. mistral4 is the same under another name.
// deepseek32 (DeepSeek V3.2) and glm-dsa (GLM-5) are the same with an indexer, which chooses the tokens that attention sees if
// there are more than its number; in GLM-5.2 and 5.3 most layers share the choice of an earlier one. Attention is latent; the
// first layers are dense, the others have experts, often chosen by sigmoids within groups, and shared experts.
#include <math.h>
#include <stdio.h>

#include "model/border.h"
#include "model/families/deepseek2.h"
#include "model/families/moe.h"

static const char *const obeyed[] = {"attention.value_length", "expert_group_count", "nextn_predict_layers", NULL};

// Weights of the indexer. Layers without an indexer of their own do not need them.
static const char *const indexer[] = {"indexer.k_norm.weight", "indexer.k_norm.bias",     "indexer.proj.weight",
                                      "indexer.attn_k.weight", "indexer.attn_q_b.weight", NULL};

static bool has_key(const kin_meta *k, const char *key) {
    char name[64];
    uint32_t value;
    kin_err ignored;
    snprintf(name, sizeof name, "%s.%s", k->family, key);
    return kin_gguf_get_u32(k->gguf, name, &value, &ignored) == 0;
}

// In newer files the common keys describe the cache, and others the heads. In older ones the common keys describe the heads, and
// the matrices of keys and values are one.
void kin_deepseek2_read_heads(kin_hparams *hp, kin_meta *k) {
    kin_latent *l = &hp->latent;
    l->n_latent = kin_meta_int(k, "attention.kv_lora_rank", KIN_KEY_REQUIRED, 16, 4096);
    l->n_query = kin_meta_int(k, "attention.q_lora_rank", 0, 0, 1 << 16);
    l->n_rot = hp->ropes[0].n_rot;
    l->is_fused = !has_key(k, "attention.key_length_mla");
    l->k_dim = kin_meta_int(k, "attention.key_length_mla", hp->head_dim, l->n_rot + 1, 4096) - l->n_rot;
    l->v_dim = kin_meta_int(k, "attention.value_length_mla", hp->v_dim, 1, 4096);
    if (!k->failed && l->k_dim < 1) kin_meta_fail(k, "all %d dimensions of a head rotate", l->n_rot);
    if (k->failed) return;
    const int n_cached = l->n_latent + l->n_rot;
    if (!l->is_fused && (hp->n_head_kv != 1 || hp->head_dim != n_cached || hp->v_dim != l->n_latent))
        kin_meta_fail(k, "%d key heads of %d and values of %d dimensions do not fit a latent of %d and a rotary key of %d",
                      hp->n_head_kv, hp->head_dim, hp->v_dim, l->n_latent, l->n_rot);
    hp->n_head_kv = 1;
    hp->head_dim = n_cached;
    hp->v_dim = l->n_latent;
    for (int il = 0; il < hp->n_layer; il++) hp->layers[il].n_head_kv = 0; // the model's
}

// With YaRN's factor f and m = mscale_all_dim of the publisher, which the file has as log_multiplier = m / 10: the rope keeps its
// length, and scores are scaled by (1 + m / 10 ln f)^2.
static void read_scale(kin_hparams *hp, kin_meta *k) {
    kin_rope *r = &hp->ropes[0];
    const float log_multiplier = kin_meta_float(k, "rope.scaling.yarn_log_multiplier", 0, 0, 1e3f);
    const kin_rope plain = {.ext_factor = r->ext_factor, .freq_scale = r->freq_scale, .attn_factor = 1};
    const double tenth_log = kin_rope_length(&plain) - 1; // 0.1 ln f
    if (k->failed) return;
    if (r->freq_scale != 1 && (r->ext_factor == 0 || log_multiplier == 0))
        kin_meta_fail(k, "rope scaling without YaRN, or without '%s.rope.scaling.yarn_log_multiplier', is not supported",
                      k->family);
    const double length = r->attn_factor * (1 + 10 * (double)log_multiplier * tenth_log);
    r->attn_factor /= 1 + tenth_log;
    hp->attn_scale = (float)(length * length / sqrt(hp->latent.k_dim + hp->latent.n_rot));
}

static void read_temperature(kin_hparams *hp, kin_meta *k) {
    hp->query_temperature = kin_meta_float(k, "attention.temperature_scale", 0, 0, 1e3f);
    hp->temperature_length = kin_meta_int(k, "attention.temperature_length", hp->ropes[0].n_ctx_orig, 1, 1 << 27);
}

// GLM-4.7-Flash's first files do not say that its experts are chosen by sigmoids.
static kin_gating default_gating(const kin_hparams *hp) {
    const int n_block = hp->n_layer + hp->n_draft_layer;
    return (n_block == 47 || n_block == 48) && hp->n_vocab == 154880 ? KIN_GATING_SIGMOID : KIN_GATING_SOFTMAX;
}

// The publisher and llama.cpp rank groups differently if probabilities are a softmax: by their best expert, or by the best two.
void kin_deepseek2_read_experts(kin_hparams *hp, kin_meta *k, kin_gating gating, bool normalizes) {
    const int n_shared = kin_meta_int(k, "expert_shared_count", 0, 0, 64);
    hp->n_dense = kin_meta_int(k, "leading_dense_block_count", 0, 0, hp->n_layer);
    hp->n_ff_shared = hp->n_ff_exp * n_shared;
    kin_meta_routing(k, &hp->routing, gating, normalizes);
    if (!k->failed && hp->routing.n_group > 1 && hp->routing.gating != KIN_GATING_SIGMOID)
        kin_meta_fail(k, "groups of experts that are not chosen by sigmoids are not supported");
}

static void read_latents(kin_hparams *hp, kin_meta *k) {
    kin_deepseek2_read_heads(hp, k);
    if (!k->failed) read_scale(hp, k);
    if (!k->failed) read_temperature(hp, k);
}

static void read_deepseek2_keys(kin_hparams *hp, kin_meta *k) {
    read_latents(hp, k);
    if (!k->failed) kin_deepseek2_read_experts(hp, k, default_gating(hp), false);
}

static void read_indexer(kin_hparams *hp, kin_meta *k, bool rope_neox) {
    kin_indexer *x = &hp->indexer;
    x->n_head = kin_meta_int(k, "attention.indexer.head_count", KIN_KEY_REQUIRED, 1, 1024);
    x->key_dim = kin_meta_int(k, "attention.indexer.key_length", KIN_KEY_REQUIRED, 1, KIN_KV_DIM);
    x->n_chosen = kin_meta_int(k, "attention.indexer.top_k", KIN_KEY_REQUIRED, 1, 1 << 27);
    x->eps = kin_meta_float(k, "attention.layer_norm_epsilon", 1e-6f, 0, 1);
    x->rope_neox = rope_neox;
    if (k->failed) return;
    if (x->key_dim % 16 != 0 || x->key_dim < hp->latent.n_rot)
        kin_meta_fail(k, "an indexer's keys of %d numbers, of which %d rotate, are not supported", x->key_dim, hp->latent.n_rot);
    else if (hp->latent.n_query == 0)
        kin_meta_fail(k, "an indexer without a latent of the queries is not supported");
    else if (x->n_chosen > KIN_CHOSEN_MAX)
        kin_hparams_limit_context(hp, x->n_chosen);
}

// Finds the layers that use the choice of the last layer that makes one. In files without the key these are three of four layers
// from the fourth on, if the context is as long as GLM-5.2's.
static void read_shared_choices(kin_hparams *hp, kin_meta *k) {
    const bool is_long = hp->n_ctx_train >= 1 << 20;
    int last = -1;
    for (int il = 0; il < hp->n_layer && !k->failed; il++) {
        if (kin_meta_int_at(k, "attention.indexer.types", il, !is_long || il < 2 || il % 4 == 2, 0, 1) != 0) last = il;
        if (!k->failed && last < 0) kin_meta_fail(k, "layer %d shares a choice of tokens, but no layer before it makes one", il);
        hp->layers[il].choice_back = il - last;
    }
}

// With as many tokens as an indexer chooses, no layer needs a choice.
static void drop_indexer(kin_hparams *hp) {
    for (int il = 0; il < hp->n_layer; il++) hp->layers[il].choice_back = 0;
    hp->indexer = (kin_indexer){0};
}

static void read_deepseek32_keys(kin_hparams *hp, kin_meta *k) {
    read_latents(hp, k);
    if (!k->failed) kin_deepseek2_read_experts(hp, k, KIN_GATING_SIGMOID, false);
    read_indexer(hp, k, true);
}

static void read_glm_dsa_keys(kin_hparams *hp, kin_meta *k) {
    read_latents(hp, k);
    if (!k->failed) kin_deepseek2_read_experts(hp, k, KIN_GATING_SIGMOID, false);
    read_indexer(hp, k, false);
    if (!k->failed) read_shared_choices(hp, k);
    if (k->failed || !kin_hparams_shares_choices(hp)) return;
    if (hp->n_ctx_max > 0)
        drop_indexer(hp);
    else
        kin_hparams_limit_context(hp, KIN_CHOICE_POSITIONS);
}

static bool has_tensor(const kin_meta *k, int i_block, const char *what) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", i_block, what);
    return kin_gguf_find_tensor(k->gguf, name) != NULL;
}

// A draft block without an indexer of its own sees all tokens.
static void read_glm_dsa_draft(kin_hparams *hp, kin_meta *k, int i_block) {
    if (has_tensor(k, i_block, "nextn.eh_proj.weight") && !has_tensor(k, i_block, "indexer.attn_k.weight"))
        hp->indexer = (kin_indexer){0};
}

static void describe_deepseek2_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->is_latent = true;
    layer->n_index_key = hp->layers[il].choice_back > 0 ? 0 : hp->indexer.key_dim;
    layer->has_experts = hp->n_expert > 0 && il >= hp->n_dense;
}

static kin_weight_set require_deepseek2_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_W_ATTN_NORM, KIN_W_LATENT_KV_A, KIN_W_LATENT_KV_A_NORM, KIN_W_LATENT_OUT);
    const kin_weight_set one = KIN_WEIGHT_SET(KIN_W_LATENT_Q);
    const kin_weight_set two = KIN_WEIGHT_SET(KIN_W_LATENT_Q_A, KIN_W_LATENT_Q_A_NORM, KIN_W_LATENT_Q_B);
    const kin_weight_set fused = KIN_WEIGHT_SET(KIN_W_LATENT_KV_B);
    const kin_weight_set apart = KIN_WEIGHT_SET(KIN_W_LATENT_K_B, KIN_W_LATENT_V_B);
    const kin_weight_set dense = KIN_WEIGHT_SET(KIN_WEIGHTS_DENSE), shared = KIN_WEIGHT_SET(KIN_WEIGHTS_SHARED);
    const kin_weight_set experts = KIN_WEIGHT_SET(KIN_W_FFN_NORM, KIN_W_FFN_ROUTER, KIN_W_FFN_DOWN_EXPS);
    const kin_weight_set indexer =
        KIN_WEIGHT_SET(KIN_W_INDEX_K, KIN_W_INDEX_K_NORM, KIN_W_INDEX_K_NORM_BIAS, KIN_W_INDEX_Q_B, KIN_W_INDEX_PROJ);
    kin_weight_set_join(&set, hp->latent.n_query > 0 ? &two : &one);
    kin_weight_set_join(&set, hp->latent.is_fused ? &fused : &apart);
    kin_weight_set_join(&set, layer->has_experts ? &experts : &dense);
    if (layer->has_experts && hp->n_ff_shared > 0) kin_weight_set_join(&set, &shared);
    if (layer->n_index_key > 0) kin_weight_set_join(&set, &indexer);
    return set;
}

static kin_weight_set allow_deepseek2_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp;
    return layer->has_experts
               ? KIN_WEIGHT_SET(KIN_W_FFN_CHOICE_BIAS, KIN_W_FFN_GATE_EXPS, KIN_W_FFN_UP_EXPS, KIN_W_FFN_GATE_UP_EXPS)
               : (kin_weight_set){0};
}

const kin_arch kin_arch_deepseek2 = {
    .name = "deepseek2",
    .title = "DeepSeek V2, V3, R1; Kimi K2; GLM-4.7-Flash; Mistral Large 3",
    .drafts = true,
    .keys = obeyed,
    .read = read_deepseek2_keys,
    .layer = describe_deepseek2_layer,
    .required = require_deepseek2_weights,
    .optional = allow_deepseek2_weights,
};

const kin_arch kin_arch_mistral4 = {
    .name = "mistral4",
    .title = "Mistral Small 4",
    .keys = obeyed,
    .read = read_deepseek2_keys,
    .layer = describe_deepseek2_layer,
    .required = require_deepseek2_weights,
    .optional = allow_deepseek2_weights,
};

const kin_arch kin_arch_deepseek32 = {
    .name = "deepseek32",
    .title = "DeepSeek V3.2",
    .drafts = true,
    .keys = obeyed,
    .read = read_deepseek32_keys,
    .layer = describe_deepseek2_layer,
    .required = require_deepseek2_weights,
    .optional = allow_deepseek2_weights,
};

const kin_arch kin_arch_glm_dsa = {
    .name = "glm-dsa",
    .title = "GLM-5, 5.1, 5.2, 5.3",
    .drafts = true,
    .keys = obeyed,
    .ignored = indexer,
    .read = read_glm_dsa_keys,
    .layer = describe_deepseek2_layer,
    .draft_layer = read_glm_dsa_draft,
    .required = require_deepseek2_weights,
    .optional = allow_deepseek2_weights,
};
