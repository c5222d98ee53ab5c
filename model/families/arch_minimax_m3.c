// minimax-m3: MiniMax M3 (text). Norms of query and key heads; the first layers are dense, the others have experts chosen by
// sigmoids and a shared expert, all with the gate of gpt-oss. In the layers with experts an indexer chooses the blocks of tokens
// that attention sees, other blocks for each key/value head, if there are more blocks than it may choose.
#include "model/arch.h"
#include "model/families/moe.h"

// Weights of an indexer, which are ignored if kin does not compute it.
static const char *const tensors_of_indexer[] = {"indexer.q_proj.weight", "indexer.k_proj.weight", "indexer.q_norm.weight",
                                                 "indexer.k_norm.weight", NULL};

// True if kin's blocks of the KV cache make the indexer's, each key/value head has one of its heads, and the newest block is
// always chosen.
static bool can_choose(const kin_hparams *hp, const kin_indexer *x) {
    const int n_chosen = x->n_chosen / x->n_block;
    if (x->n_block % KIN_KV_CELLS != 0 || n_chosen > KIN_CHOSEN_MAX || x->n_local < 1 || x->n_local > n_chosen) return false;
    return x->n_head == hp->n_head_kv && kin_hparams_is_uniform(hp) && x->key_dim % 16 == 0 && x->key_dim >= hp->ropes[0].n_rot;
}

static void read_indexer(kin_hparams *hp, kin_meta *k) {
    kin_indexer x = {.rope_neox = true, .eps = hp->rms_eps};
    const int n_chosen = kin_meta_int(k, "attention.indexer.top_k", KIN_KEY_REQUIRED, 1, 1 << 13);
    x.n_block = kin_meta_int(k, "attention.indexer.block_size", KIN_KEY_REQUIRED, 1, 1 << 13);
    x.n_head = kin_meta_int(k, "attention.indexer.head_count", 0, 0, 1024);
    x.key_dim = kin_meta_int(k, "attention.indexer.key_length", 0, 0, KIN_KV_DIM);
    x.n_local = kin_meta_int(k, "attention.indexer.local_blocks", 0, 0, 1 << 13);
    x.n_chosen = n_chosen * x.n_block;
    if (k->failed) return;
    if (can_choose(hp, &x))
        hp->indexer = x;
    else
        kin_hparams_limit_context(hp, x.n_chosen);
}

static void read_minimax_m3_keys(kin_hparams *hp, kin_meta *k) {
    const int n_shared = kin_meta_int(k, "expert_shared_count", 0, 0, 64);
    hp->n_dense = kin_meta_int(k, "leading_dense_block_count", 0, 0, hp->n_layer);
    hp->n_ff_shared = hp->n_ff_exp * n_shared;
    kin_meta_routing(k, &hp->routing, KIN_GATING_SIGMOID, false);
    if (!k->failed) read_indexer(hp, k);
}

static void describe_minimax_m3_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->gate = KIN_GATE_OAI;
    layer->has_experts = hp->n_expert > 0 && il >= hp->n_dense;
    layer->n_index_key = il >= hp->n_dense ? hp->indexer.key_dim : 0;
}

static kin_weight_set require_minimax_m3_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QK_NORM);
    const kin_weight_set indexer = KIN_WEIGHT_SET(KIN_W_INDEX_Q, KIN_W_INDEX_Q_NORM, KIN_W_INDEX_K_2, KIN_W_INDEX_K_NORM);
    if (layer->has_experts) kin_weight_set_add(&set, KIN_W_FFN_CHOICE_BIAS);
    if (layer->n_index_key > 0) kin_weight_set_join(&set, &indexer);
    kin_moe_join_required(&set, hp, layer);
    return set;
}

const kin_arch kin_arch_minimax_m3 = {
    .name = "minimax-m3",
    .title = "MiniMax M3 (text)",
    .rope_neox = true,
    .ignored = tensors_of_indexer,
    .read = read_minimax_m3_keys,
    .layer = describe_minimax_m3_layer,
    .required = require_minimax_m3_weights,
};
