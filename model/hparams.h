// Hyper-parameters: what a model's metadata says about its shape and arithmetic, for all layers and for each of them.
//
// Plain data, read once from the GGUF, checked there, const afterwards. Everything above model/arch_*.c asks this description
// and which weights a layer has, never the family.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/kernels.h"
#include "model/meta.h"

typedef struct kin_arch kin_arch;

enum {
    KIN_MAX_EXPERTS = KIN_ROUTE_EXPERTS,
    KIN_ROPES = 2,
    KIN_ROPE_NONE = -1,
};

// How one layer computes. Norms, biases, sinks and shared experts are there where the layer has their weights.
typedef struct kin_layer {
    int rope;         // which of kin_hparams.ropes rotates queries and keys; KIN_ROPE_NONE
    bool is_windowed; // a token sees the last kin_hparams.window tokens, itself among them; else all before it
    bool has_experts; // else the feed-forward block is dense
    kin_gate gate;    // of the feed-forward block
    float attn_scale; // of q k
    float softcap;    // of the scores, 0: none
} kin_layer;

typedef struct kin_hparams {
    const kin_arch *arch;

    int n_layer;
    int n_draft_layer; // blocks behind the layers, which guess tokens; they are not used
    int n_embd;
    int n_vocab;
    int n_ctx_train;
    int n_head;
    int n_head_kv;
    int head_dim;
    int n_ff;            // of a dense layer
    int n_expert;        // 0: dense
    int n_expert_used;   // routed experts per token
    int n_ff_exp;        // of one expert
    int n_ff_shared;     // of the experts that every token uses, together
    kin_routing routing; // of layers with experts; its bias is a weight
    float rms_eps;
    int n_dense;      // layers before the first one with experts
    int window;       // of windowed layers, 0: there are none
    float attn_scale; // of q k, 0: 1 / sqrt(head_dim)
    float score_softcap;
    bool has_no_rope;
    bool rope_neox; // pairs are (i, i + n_rot / 2), else (2i, 2i + 1)
    kin_rope ropes[KIN_ROPES];
    bool has_long_factors; // rope_factors_long and rope_factors_short: which of them depends on the context's size

    // 1, and 0 for caps, where the family has none.
    float embedding_scale;
    float residual_scale; // of what a block adds to its input
    float logit_scale;
    float logit_softcap;
    float query_temperature; // b: the query at position p is multiplied with 1 + b ln(1 + floor(p / ropes[0].n_ctx_orig))

    kin_layer *layers; // [n_layer], the model's; NULL: as kin_layer_of says
} kin_hparams;

static inline int kin_hparams_n_embd_q(const kin_hparams *hp) {
    return hp->n_head * hp->head_dim;
}

static inline int kin_hparams_n_embd_kv(const kin_hparams *hp) {
    return hp->n_head_kv * hp->head_dim;
}

// The description of a layer. Hyper-parameters without a list have plain layers.
kin_layer kin_layer_of(const kin_hparams *hp, int il);

// A layer like llama's.
kin_layer kin_layer_plain(const kin_hparams *hp);

// Reads and checks the keys that all families have ("llama.block_count") into *hp, which is zero but for the arch. The rest is
// the family's (kin_arch_read).
void kin_hparams_read(kin_hparams *hp, kin_meta *keys);
