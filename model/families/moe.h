// The feed-forward weights of families whose layers are dense or have experts, with shared experts beside them.
#pragma once

#include <stdio.h>

#include "model/arch.h"

static inline bool kin_moe_has_router(const kin_meta *k, int i_block) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", i_block);
    return kin_gguf_find_tensor(k->gguf, name) != NULL;
}

// Returns the number of dense layers before the first one that has a router.
static inline int kin_moe_count_dense(const kin_hparams *hp, const kin_meta *k) {
    for (int il = 0; il < hp->n_layer; il++)
        if (kin_moe_has_router(k, il)) return il;
    return hp->n_layer;
}

// Adds the feed-forward weights that such a layer requires, its norm included.
static inline void kin_moe_join_required(kin_weight_set *set, const kin_hparams *hp, const kin_layer *layer) {
    const kin_weight_set dense = KIN_WEIGHT_SET(KIN_WEIGHTS_DENSE), experts = KIN_WEIGHT_SET(KIN_WEIGHTS_EXPERTS);
    const kin_weight_set shared = KIN_WEIGHT_SET(KIN_WEIGHTS_SHARED);
    kin_weight_set_join(set, layer->has_experts ? &experts : &dense);
    if (layer->has_experts && hp->n_ff_shared > 0) kin_weight_set_join(set, &shared);
}
