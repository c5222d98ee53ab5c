// deepseek4: DeepSeek V4 Flash and Pro. Attention sees a window and compressed rows; four residual streams; experts in every
// layer, in the first ones chosen by the tokens' numbers.
#include <math.h>
#include <stdio.h>

#include "model/families/sinkhorn.h"

static const char *const obeyed[] = {"attention.value_length", "nextn_predict_layers", "expert_group_count", NULL};

// The rope of layers without compressed rows is plain. YaRN keeps the others' length.
static void read_ropes(kin_hparams *hp, kin_meta *k) {
    kin_rope *plain = &hp->ropes[0], *compressed = &hp->ropes[1];
    *compressed = *plain;
    compressed->base = (double)kin_meta_float(k, "attention.compress_rope_freq_base", (float)plain->base, 1, 1e12f);
    if (k->failed) return;
    if (compressed->ext_factor != 0) compressed->attn_factor /= kin_rope_length(compressed) / compressed->attn_factor;
    plain->freq_scale = plain->attn_factor = 1;
    plain->ext_factor = 0;
}

static void check_heads(kin_hparams *hp, kin_meta *k) {
    const kin_compressed *c = &hp->compressed;
    if (hp->n_head_kv != 1 || hp->v_dim != hp->head_dim)
        kin_meta_fail(k, "%d key heads of %d numbers, and values of %d, are not one row for both", hp->n_head_kv, hp->head_dim,
                      hp->v_dim);
    else if (hp->head_dim % 16 != 0 || hp->head_dim > KIN_KV_DIM || hp->head_dim <= c->n_rot)
        kin_meta_fail(k, "a head of %d numbers, of which %d rotate, is not supported", hp->head_dim, c->n_rot);
    else if (!kin_hparams_is_uniform(hp))
        kin_meta_fail(k, "layers with different numbers of heads are not supported");
    else if (hp->n_head % c->n_group != 0 || c->n_rank % 16 != 0)
        kin_meta_fail(k, "%d heads cannot be divided into %d groups with outputs of %d", hp->n_head, c->n_group, c->n_rank);
}

static void read_attention(kin_hparams *hp, kin_meta *k) {
    kin_compressed *c = &hp->compressed;
    c->n_rot = hp->ropes[0].n_rot;
    c->window = kin_meta_int(k, "attention.sliding_window", KIN_KEY_REQUIRED, 1, KIN_COMPRESSED_WINDOW);
    c->n_group = kin_meta_int(k, "attention.output_group_count", KIN_KEY_REQUIRED, 1, 4096);
    c->n_rank = kin_meta_int(k, "attention.output_lora_rank", KIN_KEY_REQUIRED, 1, 1 << 16);
    hp->latent.n_query = kin_meta_int(k, "attention.q_lora_rank", KIN_KEY_REQUIRED, 16, 1 << 16);
    hp->latent.n_rot = c->n_rot; // of the matrices that make queries
    hp->latent.k_dim = hp->head_dim - c->n_rot;
    if (!k->failed) check_heads(hp, k);
}

static void read_indexer(kin_hparams *hp, kin_meta *k) {
    kin_indexer *x = &hp->indexer;
    x->n_head = kin_meta_int(k, "attention.indexer.head_count", KIN_KEY_REQUIRED, 1, 1024);
    x->key_dim = kin_meta_int(k, "attention.indexer.key_length", KIN_KEY_REQUIRED, 1, KIN_KV_DIM);
    x->n_chosen = kin_meta_int(k, "attention.indexer.top_k", KIN_KEY_REQUIRED, 1, 1 << 20);
    if (!k->failed && (x->key_dim % 16 != 0 || x->key_dim < hp->compressed.n_rot))
        kin_meta_fail(k, "an indexer's keys of %d numbers, of which %d rotate, are not supported", x->key_dim,
                      hp->compressed.n_rot);
}

// A query sees at most KIN_COMPRESSED_ROWS rows, and an indexer chooses at most KIN_CHOSEN_MAX: with no more rows than it would
// choose, it chooses all of them.
static void limit_context(kin_hparams *hp, int ratio) {
    const bool chooses = ratio == KIN_COMPRESSED_OVERLAPS && hp->indexer.n_chosen <= KIN_CHOSEN_MAX;
    const int n_seen = ratio == KIN_COMPRESSED_OVERLAPS ? hp->indexer.n_chosen : KIN_COMPRESSED_ROWS;
    const int n = ratio * (n_seen < KIN_COMPRESSED_ROWS ? n_seen : KIN_COMPRESSED_ROWS);
    if (!chooses && (hp->n_ctx_max == 0 || n < hp->n_ctx_max)) kin_hparams_limit_context(hp, n);
}

static void read_layer(kin_layer *layer, kin_meta *k, int il) {
    const int ratio = kin_meta_int_at(k, "attention.compress_ratios", il, KIN_KEY_REQUIRED, 0, 1 << 20);
    kin_sinkhorn_read_limits(layer, k, il);
    if (!k->failed && ratio != 0 && ratio != KIN_COMPRESSED_OVERLAPS && ratio != KIN_COMPRESSED_RATIO)
        kin_meta_fail(k, "compressed rows of %d tokens are not supported (layer %d)", ratio, il);
    layer->ratio = ratio;
}

static void read_layers(kin_hparams *hp, kin_meta *k) {
    const int n_by_token = kin_meta_int(k, "hash_layer_count", 0, 0, hp->n_layer);
    for (int il = 0; il < hp->n_layer && !k->failed; il++) {
        kin_layer *layer = &hp->layers[il];
        read_layer(layer, k, il);
        layer->routes_by_token = il < n_by_token;
        if (layer->ratio > 0) limit_context(hp, layer->ratio);
    }
}

static void read_deepseek4_draft(kin_hparams *hp, kin_meta *k, int i_block) {
    read_layer(&hp->layers[0], k, i_block);
}

static void read_deepseek4_keys(kin_hparams *hp, kin_meta *k) {
    hp->n_ff_shared = hp->n_ff_exp * kin_meta_int(k, "expert_shared_count", 0, 0, 64);
    kin_meta_routing(k, &hp->routing, KIN_GATING_SOFTPLUS, true);
    kin_sinkhorn_read(hp, k, KIN_STREAMS_SINKHORN);
    read_ropes(hp, k);
    read_attention(hp, k);
    read_indexer(hp, k);
    read_layers(hp, k);
    if (!k->failed && hp->n_expert == 0) kin_meta_fail(k, "deepseek4 models without experts are not supported");
    if (!k->failed && hp->routing.gating == KIN_GATING_CHOSEN)
        kin_meta_fail(k, "experts that a softmax of the chosen ones weights are not supported for this family");
    if (!k->failed && hp->routing.n_group > 1) kin_meta_fail(k, "groups of experts are not supported for this family");
}

static void describe_deepseek4_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    (void)il;
    layer->is_compressed = true;
    layer->n_index_key = layer->ratio == KIN_COMPRESSED_OVERLAPS ? hp->indexer.key_dim : 0;
    layer->rope = layer->ratio > 0;
    layer->gate = KIN_GATE_CLAMPED;
}

static kin_weight_set require_deepseek4_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_W_ATTN_NORM, KIN_W_LATENT_Q_A, KIN_W_LATENT_Q_A_NORM, KIN_W_LATENT_Q_B,
                                        KIN_W_COMPRESSED_KV, KIN_W_COMPRESSED_KV_NORM, KIN_W_ATTN_SINKS, KIN_W_COMPRESSED_OUT_A,
                                        KIN_W_COMPRESSED_OUT_B, KIN_WEIGHTS_SINKHORN, KIN_WEIGHTS_EXPERTS);
    const kin_weight_set rows =
        KIN_WEIGHT_SET(KIN_W_COMPRESSOR_KV, KIN_W_COMPRESSOR_GATE, KIN_W_COMPRESSOR_APE, KIN_W_COMPRESSOR_NORM);
    const kin_weight_set indexer =
        KIN_WEIGHT_SET(KIN_W_INDEX_Q_B, KIN_W_INDEX_PROJ, KIN_W_INDEX_COMPRESSOR_KV, KIN_W_INDEX_COMPRESSOR_GATE,
                       KIN_W_INDEX_COMPRESSOR_APE, KIN_W_INDEX_COMPRESSOR_NORM);
    const kin_weight_set shared = KIN_WEIGHT_SET(KIN_WEIGHTS_SHARED);
    if (hp->n_ff_shared > 0) kin_weight_set_join(&set, &shared);
    if (layer->ratio > 0) kin_weight_set_join(&set, &rows);
    if (layer->n_index_key > 0) kin_weight_set_join(&set, &indexer);
    kin_weight_set_add(&set, layer->routes_by_token ? KIN_W_FFN_TOKEN_EXPERTS : KIN_W_FFN_CHOICE_BIAS);
    return set;
}

const kin_arch kin_arch_deepseek4 = {
    .name = "deepseek4",
    .title = "DeepSeek V4 Flash, Pro",
    .drafts = true,
    .drafts_unnormed = true,
    .keys = obeyed,
    .read = read_deepseek4_keys,
    .layer = describe_deepseek4_layer,
    .draft_layer = read_deepseek4_draft,
    .required = require_deepseek4_weights,
};
