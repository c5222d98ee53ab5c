// glm5-next: GLM-5.3-Flash. Four residual streams; most layers are Kimi's delta attention, whose decays are bounded, the others
// latent attention without a rope, with an indexer that chooses pools of tokens. The first layers are dense, the others have
// experts, which are chosen by sigmoids, and a shared one; all of these have limits. A draft block has one stream.
#include "model/families/deepseek2.h"
#include "model/families/kimi_linear.h"
#include "model/families/sinkhorn.h"

static const char *const obeyed[] = {"attention.value_length", "nextn_predict_layers", NULL};

// Files without the key have decays as Kimi Linear's, without a bound.
static void read_delta_attention(kin_hparams *hp, kin_meta *k) {
    kin_kimi_linear_read_delta(hp, k);
    hp->delta.least_decay = kin_meta_float(k, "kda.gate_lower_bound", 0, -80, 0);
    hp->delta.unit_eps = 1e-6f;
}

static void check_indexer(const kin_hparams *hp, kin_meta *k, int n_most) {
    const kin_indexer *x = &hp->indexer;
    if (k->failed) return;
    if (x->key_dim % 16 != 0)
        kin_meta_fail(k, "an indexer's keys of %d numbers are not supported", x->key_dim);
    else if (n_most % x->n_pool != 0)
        kin_meta_fail(k, "an indexer cannot choose %d tokens in pools of %d", n_most, x->n_pool);
    else if (hp->latent.n_query == 0)
        kin_meta_fail(k, "an indexer without a latent of the queries is not supported");
    else if (!kin_meta_bool(k, "attention.indexer.kpool_select_tail", true))
        kin_meta_fail(k, "an indexer that may leave out the tokens after the last pool is not supported");
    for (int il = 0; il < hp->n_layer && !k->failed; il++)
        if (!hp->layers[il].is_recurrent && kin_meta_int_at(k, "attention.indexer.types", il, 1, 0, 1) == 0)
            kin_meta_fail(k, "layer %d shares a choice of tokens, which is not supported for this family", il);
}

static void read_indexer(kin_hparams *hp, kin_meta *k) {
    kin_indexer *x = &hp->indexer;
    const int n_most = kin_meta_int(k, "attention.indexer.top_k", KIN_KEY_REQUIRED, 1, 1 << 27);
    x->n_head = kin_meta_int(k, "attention.indexer.head_count", KIN_KEY_REQUIRED, 1, 1024);
    x->key_dim = kin_meta_int(k, "attention.indexer.key_length", KIN_KEY_REQUIRED, 1, KIN_KV_DIM);
    x->n_pool = kin_meta_int(k, "attention.indexer.kpool", KIN_KEY_REQUIRED, 2, KIN_COMPRESSED_RATIO);
    x->eps = kin_meta_float(k, "attention.layer_norm_epsilon", 1e-6f, 0, 1);
    check_indexer(hp, k, n_most);
    if (k->failed) return;
    x->n_chosen = n_most + x->n_pool - 1;
    if (n_most / x->n_pool > KIN_CHOSEN_MAX) kin_hparams_limit_context(hp, x->n_chosen);
}

// Shared experts' limit holds for dense blocks, too.
static void read_limits(kin_layer *layer, kin_meta *k, int i_block) {
    kin_sinkhorn_read_limits(layer, k, i_block);
    layer->limit_dense = layer->limit_shared;
}

static void read_glm5_next_keys(kin_hparams *hp, kin_meta *k) {
    read_delta_attention(hp, k);
    if (!k->failed) kin_kimi_linear_read_latents(hp, k);
    if (!k->failed) kin_deepseek2_read_experts(hp, k, KIN_GATING_SIGMOID, false);
    kin_sinkhorn_read(hp, k, KIN_STREAMS_SINKHORN_MEAN);
    read_indexer(hp, k);
    for (int il = 0; il < hp->n_layer && !k->failed; il++) read_limits(&hp->layers[il], k, il);
}

// A draft block has one stream, to which its blocks add.
static void read_glm5_next_draft(kin_hparams *hp, kin_meta *k, int i_block) {
    hp->n_streams = 1;
    hp->streams = KIN_STREAMS_ONE;
    read_limits(&hp->layers[0], k, i_block);
}

static void describe_glm5_next_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->is_latent = !layer->is_recurrent;
    layer->n_index_key = layer->is_latent ? hp->indexer.key_dim : 0;
    layer->n_pool = layer->is_latent ? hp->indexer.n_pool : 0;
    layer->has_experts = hp->n_expert > 0 && il >= hp->n_dense;
    layer->gate = KIN_GATE_CLAMPED;
}

static kin_weight_set require_glm5_next_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = kin_kimi_linear_weights(hp, layer);
    const kin_weight_set streams = KIN_WEIGHT_SET(KIN_WEIGHTS_SINKHORN);
    const kin_weight_set indexer = KIN_WEIGHT_SET(KIN_W_INDEX_K, KIN_W_INDEX_K_NORM, KIN_W_INDEX_K_NORM_BIAS, KIN_W_INDEX_Q_B,
                                                  KIN_W_INDEX_PROJ, KIN_W_INDEX_POOL_GATE, KIN_W_INDEX_POOL_PLACES);
    if (hp->n_streams > 1) kin_weight_set_join(&set, &streams);
    if (layer->is_latent) kin_weight_set_join(&set, &indexer);
    if (layer->is_recurrent) kin_weight_set_add(&set, KIN_W_DELTA_A);
    return set;
}

const kin_arch kin_arch_glm5_next = {
    .name = "glm5-next",
    .title = "GLM-5.3-Flash",
    .mixes_layers = true,
    .never_rotates = true,
    .drafts = true,
    .keys = obeyed,
    .read = read_glm5_next_keys,
    .layer = describe_glm5_next_layer,
    .draft_layer = read_glm5_next_draft,
    .required = require_glm5_next_weights,
    .optional = kin_kimi_linear_optional_weights,
};
