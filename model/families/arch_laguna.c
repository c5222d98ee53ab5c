// laguna: Laguna XS.2, XS-2.1, S-2.1, M.1. Each head's result has a gate; three of four layers are windowed, with a rope and
// often another number of heads of their own; the first layers are dense, the others have experts chosen by sigmoids and a shared
// expert.
#include <stdio.h>

#include "model/arch.h"
#include "model/families/moe.h"

enum { PERIOD = 4 }; // of every PERIOD layers the first one is not windowed

static const char *const obeyed[] = {"expert_group_count", NULL};

// A gate is for a head or for each of its values: the file's matrix says it by its width.
static void read_gates(kin_hparams *hp, kin_meta *k) {
    for (int il = 0; il < hp->n_layer && !k->failed; il++) {
        char name[64];
        const kin_layer layer = kin_layer_of(hp, il);
        snprintf(name, sizeof name, "blk.%d.attn_gate.weight", il);
        const kin_gguf_tensor *gate = kin_gguf_find_tensor(k->gguf, name);
        hp->layers[il].n_head_gate = gate && gate->ne[1] > layer.n_head ? layer.head_dim : 1;
    }
}

static void read_laguna_keys(kin_hparams *hp, kin_meta *k) {
    kin_rope *windowed = &hp->ropes[1];
    hp->window = kin_meta_int(k, "attention.sliding_window", 0, 0, 1 << 27);
    windowed->base = (double)kin_meta_float(k, "rope.freq_base_swa", (float)hp->ropes[0].base, 1, 1e12f);
    windowed->freq_scale = windowed->attn_factor = 1;
    windowed->ext_factor = 0;
    hp->n_dense = kin_meta_int(k, "leading_dense_block_count", 0, 0, hp->n_layer);
    int n_shared = kin_meta_int(k, "expert_shared_count", 1, 0, 64);
    hp->n_ff_shared = kin_meta_int(k, "expert_shared_feed_forward_length", hp->n_ff_exp * n_shared, 0, 1 << 20);
    kin_meta_routing(k, &hp->routing, KIN_GATING_SIGMOID, true);
    read_gates(hp, k);
}

static void describe_laguna_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->is_windowed = hp->window > 0 && il % PERIOD != 0;
    layer->rope = layer->is_windowed;
    layer->has_experts = hp->n_expert > 0 && il >= hp->n_dense;
    layer->head_gate = KIN_HEAD_GATE_SOFTPLUS;
}

static kin_weight_set require_laguna_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_QK_NORM, KIN_W_ATTN_GATE);
    kin_moe_join_required(&set, hp, layer);
    return set;
}

static kin_weight_set allow_laguna_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp;
    return layer->has_experts ? KIN_WEIGHT_SET(KIN_W_FFN_CHOICE_BIAS) : (kin_weight_set){0};
}

const kin_arch kin_arch_laguna = {
    .name = "laguna",
    .title = "Laguna XS.2, XS-2.1, S-2.1, M.1",
    .rope_neox = true,
    .keys = obeyed,
    .read = read_laguna_keys,
    .layer = describe_laguna_layer,
    .required = require_laguna_weights,
    .optional = allow_laguna_weights,
};
