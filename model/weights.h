// The weights of a layer: one table for all families, with names, shapes and the weight block that each belongs to.
//
// A family says which of them it needs; everything else (reading, checking, placing, streaming) goes by this table.
#pragma once

#include <stdint.h>

#include "model/hparams.h"

typedef enum kin_weight {
    KIN_W_ATTN_NORM,
    KIN_W_ATTN_Q,
    KIN_W_ATTN_K,
    KIN_W_ATTN_V,
    KIN_W_ATTN_Q_BIAS,
    KIN_W_ATTN_K_BIAS,
    KIN_W_ATTN_V_BIAS,
    KIN_W_ATTN_Q_NORM,
    KIN_W_ATTN_K_NORM,
    KIN_W_ATTN_OUT,
    KIN_W_ATTN_OUT_BIAS,
    KIN_W_FFN_NORM,
    KIN_W_FFN_GATE,
    KIN_W_FFN_UP,
    KIN_W_FFN_DOWN,
    KIN_W_FFN_ROUTER,
    KIN_W_FFN_GATE_EXPS,
    KIN_W_FFN_UP_EXPS,
    KIN_W_FFN_DOWN_EXPS,
    KIN_W_COUNT,
} kin_weight;

// A layer is cut into weight blocks; each stays in memory or is streamed as a whole. The attention weights are one; the
// feed-forward matrices are larger, so each is one. What is computed at once (a compute block, see engine/weights.h) needs all
// its weight blocks at the same time.
typedef enum kin_weight_block {
    KIN_WEIGHT_BLOCK_ATTN,
    KIN_WEIGHT_BLOCK_FFN_GATE, // with the norm and the router
    KIN_WEIGHT_BLOCK_FFN_UP,
    KIN_WEIGHT_BLOCK_FFN_DOWN,
    KIN_WEIGHT_BLOCK_COUNT,
} kin_weight_block;

typedef uint32_t kin_weight_set; // bit i: kin_weight i
#define KIN_WEIGHT(w) ((kin_weight_set)1 << KIN_W_##w)

// What most families are made of.
#define KIN_WEIGHTS_ATTENTION                                                                                                    \
    (KIN_WEIGHT(ATTN_NORM) | KIN_WEIGHT(ATTN_Q) | KIN_WEIGHT(ATTN_K) | KIN_WEIGHT(ATTN_V) | KIN_WEIGHT(ATTN_OUT))
#define KIN_WEIGHTS_QKV_BIAS (KIN_WEIGHT(ATTN_Q_BIAS) | KIN_WEIGHT(ATTN_K_BIAS) | KIN_WEIGHT(ATTN_V_BIAS))
#define KIN_WEIGHTS_QK_NORM (KIN_WEIGHT(ATTN_Q_NORM) | KIN_WEIGHT(ATTN_K_NORM))
#define KIN_WEIGHTS_DENSE (KIN_WEIGHT(FFN_NORM) | KIN_WEIGHT(FFN_GATE) | KIN_WEIGHT(FFN_UP) | KIN_WEIGHT(FFN_DOWN))
#define KIN_WEIGHTS_EXPERTS                                                                                                      \
    (KIN_WEIGHT(FFN_NORM) | KIN_WEIGHT(FFN_ROUTER) | KIN_WEIGHT(FFN_GATE_EXPS) | KIN_WEIGHT(FFN_UP_EXPS) |                       \
     KIN_WEIGHT(FFN_DOWN_EXPS))

// "attn_q.weight": the name after "blk.N.".
const char *kin_weight_name(kin_weight weight);

kin_weight_block kin_weight_block_of(kin_weight weight);

// Norms and biases: small vectors, always F32. The others are matrices, ne[0] inputs each.
int kin_weight_is_vector(kin_weight weight);

// The matrices of all experts of a layer, one after the other: a token needs only the experts that the router picks for it.
int kin_weight_is_experts(kin_weight weight);

// The shape that this weight must have, fastest dimension first; unused dimensions are 1.
void kin_weight_shape(kin_weight weight, const kin_hparams *hp, int64_t ne[3]);
