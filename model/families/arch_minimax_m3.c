// minimax-m3: MiniMax M3 (text). Norms of query and key heads; the first layers are dense, the others have experts chosen by
// sigmoids and a shared expert, all with the gate of gpt-oss. In the layers with experts an indexer chooses the blocks of tokens
// that attention sees if there are more than its number; kin computes contexts of up to that number, in which it changes nothing.
#include "model/arch.h"
#include "model/families/moe.h"

static const char *const indexer[] = {"indexer.q_proj.weight", "indexer.k_proj.weight", "indexer.q_norm.weight",
                                      "indexer.k_norm.weight", NULL};

static void read_minimax_m3_keys(kin_hparams *hp, kin_meta *k) {
    const int n_shared = kin_meta_int(k, "expert_shared_count", 0, 0, 64);
    const int n_block = kin_meta_int(k, "attention.indexer.top_k", KIN_KEY_REQUIRED, 1, 1 << 13);
    const int block_size = kin_meta_int(k, "attention.indexer.block_size", KIN_KEY_REQUIRED, 1, 1 << 13);
    hp->n_dense = kin_meta_int(k, "leading_dense_block_count", 0, 0, hp->n_layer);
    hp->n_ff_shared = hp->n_ff_exp * n_shared;
    kin_meta_routing(k, &hp->routing, KIN_GATING_SIGMOID, false);
    if (!k->failed) kin_hparams_limit_context(hp, n_block * block_size);
}

static void describe_minimax_m3_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->gate = KIN_GATE_OAI;
    layer->has_experts = hp->n_expert > 0 && il >= hp->n_dense;
}

static kin_weight_set require_minimax_m3_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QK_NORM);
    if (layer->has_experts) kin_weight_set_add(&set, KIN_W_FFN_CHOICE_BIAS);
    kin_moe_join_required(&set, hp, layer);
    return set;
}

const kin_arch kin_arch_minimax_m3 = {
    .name = "minimax-m3",
    .title = "MiniMax M3 (text)",
    .rope_neox = true,
    .ignored = indexer,
    .read = read_minimax_m3_keys,
    .layer = describe_minimax_m3_layer,
    .required = require_minimax_m3_weights,
};
