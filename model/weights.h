// The weights of a layer: one table for all families, with names, shapes and the weight block that each belongs to.
//
// A family says which of them it needs; all other code (reading, checking, placing, streaming) uses this table.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/hparams.h"

typedef enum kin_weight {
    KIN_W_ATTN_NORM,
    KIN_W_ATTN_NORM_BIAS,
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
    KIN_W_ATTN_QKV, // instead of Q, K and V: their rows, one after the other
    KIN_W_ATTN_QKV_BIAS,
    KIN_W_ATTN_Q_NORM_ALL, // instead of Q_NORM and K_NORM: of all heads at once
    KIN_W_ATTN_K_NORM_ALL,
    KIN_W_ATTN_Q_NORM_EACH, // instead of these: of each head with weights of its own
    KIN_W_ATTN_K_NORM_EACH,
    KIN_W_ATTN_SINKS,
    KIN_W_ATTN_GATE,   // its products gate the heads' results
    KIN_W_ATTN_Q_GATE, // instead of Q: each head's query, then the gate of its result
    KIN_W_DELTA_QKV,
    KIN_W_DELTA_GATE,
    KIN_W_DELTA_IN, // instead of QKV and GATE: for each key head its query, key, values and their gates
    KIN_W_DELTA_CONV,
    KIN_W_DELTA_ALPHA,
    KIN_W_DELTA_BETA,
    KIN_W_DELTA_BETA_ALPHA, // instead of BETA and ALPHA: for each key head the betas of its values, then their alphas
    KIN_W_DELTA_DT,
    KIN_W_DELTA_A,
    KIN_W_DELTA_NORM, // of each head's result
    KIN_W_DELTA_OUT,
    KIN_W_STATE_IN, // of a state space, instead of the products above: gates, values, keys, queries and times
    KIN_W_STATE_CONV_BIAS,
    KIN_W_STATE_A,    // DELTA_A as another family writes it
    KIN_W_STATE_D,    // multiplies each head's input, which is added to its result
    KIN_W_STATE_NORM, // of the results of each key head
    KIN_W_KDA_Q,      // of Kimi's delta attention, instead of DELTA_QKV: queries,
    KIN_W_KDA_K,      // keys
    KIN_W_KDA_V,      // and values, each with a convolution of its own
    KIN_W_KDA_CONV_Q, // these three follow each other
    KIN_W_KDA_CONV_K,
    KIN_W_KDA_CONV_V,
    KIN_W_KDA_DECAY_A, // a vector of which
    KIN_W_KDA_DECAY_B, // a decay for each number of each head's key is made,
    KIN_W_KDA_DT,      // and what is added to these
    KIN_W_KDA_GATE_A,  // the same of the gates, instead of DELTA_GATE
    KIN_W_KDA_GATE_B,
    KIN_W_KDA_OUT, // DELTA_OUT under another name
    KIN_W_CONV_IN, // of a short convolution: what gates its input, what gates its result, and the input
    KIN_W_CONV_TAPS,
    KIN_W_CONV_OUT,
    KIN_W_LATENT_Q,         // of latent attention, like the following: the heads' queries
    KIN_W_LATENT_Q_A,       // instead of Q: the queries' latent,
    KIN_W_LATENT_Q_A_NORM,  // its norm,
    KIN_W_LATENT_Q_B,       // and the queries made of it
    KIN_W_LATENT_KV_A,      // the latent, then the rotary key
    KIN_W_LATENT_KV_A_NORM, // of the latent
    KIN_W_LATENT_K_B,       // of each head: multiplies its query
    KIN_W_LATENT_V_B,       // of each head: makes its values of attention's result
    KIN_W_LATENT_KV_B,      // in the file instead of K_B and V_B: of each head the rows that make its keys, then its values
    KIN_W_LATENT_OUT,
    KIN_W_INDEX_K,      // of an indexer: a token's key,
    KIN_W_INDEX_K_NORM, // its norm,
    KIN_W_INDEX_K_NORM_BIAS,
    KIN_W_INDEX_Q_B,             // the queries of its heads, made of the queries' latent,
    KIN_W_INDEX_PROJ,            // and the weights of the heads
    KIN_W_INDEX_Q,               // of an indexer of blocks: the queries,
    KIN_W_INDEX_Q_NORM,          // the norm of each,
    KIN_W_INDEX_K_2,             // and INDEX_K under another name
    KIN_W_INDEX_COMPRESSOR_KV,   // of an indexer that chooses compressed rows, instead of K: what makes keys as COMPRESSOR_KV
    KIN_W_INDEX_COMPRESSOR_GATE, // and the following make rows
    KIN_W_INDEX_COMPRESSOR_APE,
    KIN_W_INDEX_COMPRESSOR_NORM,
    KIN_W_INDEX_POOL_GATE,    // of an indexer that chooses pools, beside K: a token's gates,
    KIN_W_INDEX_POOL_PLACES,  // and what is added to these by the token's place in its pool
    KIN_W_COMPRESSED_KV,      // of attention with compressed rows, like the following: a token's row,
    KIN_W_COMPRESSED_KV_NORM, // and its norm
    KIN_W_COMPRESSED_OUT_A,   // of each group of heads,
    KIN_W_COMPRESSED_OUT_B,   // and of what these make
    KIN_W_COMPRESSOR_KV,      // of a compressed row: the values
    KIN_W_COMPRESSOR_GATE,    // and gates of a token,
    KIN_W_COMPRESSOR_APE,     // which is added to the gates by the token's place in its block,
    KIN_W_COMPRESSOR_NORM,    // and the norm of the row
    KIN_W_ATTN_OUT_NORM,      // of the block's output, before it is added to the input
    KIN_W_FFN_NORM,
    KIN_W_FFN_NORM_BIAS,
    KIN_W_FFN_NORM_2,    // the same under another name
    KIN_W_FFN_NORM_ATTN, // the same again: attention's norm, where both blocks read the layer's input
    KIN_W_FFN_NORM_ATTN_BIAS,
    KIN_W_FFN_GATE,
    KIN_W_FFN_UP,
    KIN_W_FFN_GATE_UP, // instead of GATE and UP: their rows, one after the other
    KIN_W_FFN_DOWN,
    KIN_W_FFN_OUT_NORM, // of the block's output, before it is added to the input
    KIN_W_FFN_ROUTER,
    KIN_W_FFN_ROUTER_BIAS,
    KIN_W_FFN_CHOICE_BIAS,   // added to the router's probabilities when choosing
    KIN_W_FFN_CHOICE_BIAS_2, // the same under another name
    KIN_W_FFN_TOKEN_EXPERTS, // i32: the experts of each token of the vocabulary, where the router does not choose them
    KIN_W_FFN_GATE_EXPS,
    KIN_W_FFN_UP_EXPS,
    KIN_W_FFN_DOWN_EXPS,
    KIN_W_FFN_GATE_EXPS_BIAS,
    KIN_W_FFN_UP_EXPS_BIAS,
    KIN_W_FFN_DOWN_EXPS_BIAS,
    KIN_W_FFN_GATE_UP_EXPS,   // instead of GATE_EXPS and UP_EXPS: of each expert their rows, one after the other
    KIN_W_FFN_EXPS_SCALE,     // multiplies each expert's output
    KIN_W_FFN_ROUTER_NORM,    // of the router's input, instead of FFN_NORM
    KIN_W_FFN_EXPS_NORM,      // of the experts' input, instead of FFN_NORM
    KIN_W_FFN_EXPS_OUT_NORM,  // of the experts' output and of a dense block's beside them, before the two are added
    KIN_W_FFN_DENSE_OUT_NORM, // up
    KIN_W_INPUT_GATE,         // the layer's result gates its input,
    KIN_W_INPUT_PROJ,         // whose projection
    KIN_W_INPUT_NORM,         // is normalised and added to it
    KIN_W_LAYER_SCALE,        // multiplies the layer's result
    KIN_W_FFN_SHARED_ROUTER,  // its sigmoid scales the shared experts
    KIN_W_FFN_SHARED_GATE,
    KIN_W_FFN_SHARED_UP,
    KIN_W_FFN_SHARED_DOWN,
    KIN_W_FFN_LATENT_DOWN,  // makes the experts' input of the block's,
    KIN_W_FFN_LATENT_UP,    // and the block's output of the sum of theirs
    KIN_W_SINKHORN_ATTN_FN, // of several streams (KIN_STREAMS_SINKHORN): its products, their scales and what is added to them
                            // make the gates of attention
    KIN_W_SINKHORN_ATTN_BASE,
    KIN_W_SINKHORN_ATTN_SCALE,
    KIN_W_SINKHORN_FF_FN, // the same of the feed-forward block
    KIN_W_SINKHORN_FF_BASE,
    KIN_W_SINKHORN_FF_SCALE,
    KIN_W_GATED_ATTN_NORM, // of several streams (KIN_STREAMS_GATED): what mixes them before attention, and adds its result
    KIN_W_GATED_ATTN_DOWN,
    KIN_W_GATED_ATTN_UP,
    KIN_W_GATED_ATTN_INJECT,
    KIN_W_GATED_FF_NORM, // the same of the feed-forward block
    KIN_W_GATED_FF_DOWN,
    KIN_W_GATED_FF_UP,
    KIN_W_GATED_FF_INJECT,
    KIN_W_NGRAM_KEY, // of the embedding of the last tokens (kin_ngram), like the following: a key for each stream,
    KIN_W_NGRAM_VALUE,
    KIN_W_NGRAM_KEY_NORM,
    KIN_W_NGRAM_QUERY_NORM, // of the streams that keys are compared with
    KIN_W_NGRAM_CONV_NORM,  // of the convolution's input
    KIN_W_NGRAM_CONV,
    KIN_W_NEXTN_PROJ,         // of a draft block, like the following: makes its input of the two that these norms make
    KIN_W_NEXTN_TOKEN_NORM,   // of the token's embedding, the first half
    KIN_W_NEXTN_STATE_NORM,   // of the hidden state before it
    KIN_W_NEXTN_STREAMS_NORM, // in its place: of each stream by itself
    KIN_W_COUNT,
} kin_weight;

// A layer is divided into weight blocks; each stays in memory or is streamed as a whole, but experts come and go one by one
// (engine/experts.h). The attention weights are one block; the feed-forward matrices are larger, so each is a block. A compute
// block (see engine/weights.h) needs all its weight blocks at the same time.
typedef enum kin_weight_block {
    KIN_WEIGHT_BLOCK_ATTN,
    KIN_WEIGHT_BLOCK_FFN_GATE, // with the norm and the router
    KIN_WEIGHT_BLOCK_FFN_UP,
    KIN_WEIGHT_BLOCK_FFN_DOWN,
    KIN_WEIGHT_BLOCK_EXPERTS, // the matrices of all experts; a token reads some of them
    KIN_WEIGHT_BLOCK_COUNT,
} kin_weight_block;

// ---- sets of weights

enum { KIN_WEIGHTS_MAX = 192 }; // names of all families together
_Static_assert((int)KIN_W_COUNT <= (int)KIN_WEIGHTS_MAX, "a kin_weight_set holds every weight");

typedef struct kin_weight_set {
    uint64_t bits[KIN_WEIGHTS_MAX / 64]; // bit i % 64 of bits[i / 64]: kin_weight i
} kin_weight_set;

static inline void kin_weight_set_add(kin_weight_set *set, int weight) {
    set->bits[weight / 64] |= (uint64_t)1 << weight % 64;
}

static inline bool kin_weight_set_has(const kin_weight_set *set, int weight) {
    return set->bits[weight / 64] >> weight % 64 & 1;
}

// Returns the first member that is not below `weight`; KIN_WEIGHTS_MAX if there is none.
int kin_weight_set_next(const kin_weight_set *set, int weight);

void kin_weight_set_join(kin_weight_set *set, const kin_weight_set *other); // set becomes the union
kin_weight_set kin_weight_set_of(const int *weights, size_t n);

// A set of the listed weights: KIN_WEIGHT_SET(KIN_WEIGHTS_ATTENTION, KIN_WEIGHTS_DENSE).
#define KIN_WEIGHT_SET(...) kin_weight_set_of((const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

// The weights that most families have, as lists.
#define KIN_WEIGHTS_ATTENTION KIN_W_ATTN_NORM, KIN_W_ATTN_Q, KIN_W_ATTN_K, KIN_W_ATTN_V, KIN_W_ATTN_OUT
#define KIN_WEIGHTS_QKV_BIAS KIN_W_ATTN_Q_BIAS, KIN_W_ATTN_K_BIAS, KIN_W_ATTN_V_BIAS
#define KIN_WEIGHTS_QK_NORM KIN_W_ATTN_Q_NORM, KIN_W_ATTN_K_NORM
#define KIN_WEIGHTS_DENSE KIN_W_FFN_NORM, KIN_W_FFN_GATE, KIN_W_FFN_UP, KIN_W_FFN_DOWN
#define KIN_WEIGHTS_SHARED KIN_W_FFN_SHARED_GATE, KIN_W_FFN_SHARED_UP, KIN_W_FFN_SHARED_DOWN
#define KIN_WEIGHTS_ROUTED KIN_W_FFN_ROUTER, KIN_W_FFN_GATE_EXPS, KIN_W_FFN_UP_EXPS, KIN_W_FFN_DOWN_EXPS
#define KIN_WEIGHTS_EXPERTS KIN_W_FFN_NORM, KIN_WEIGHTS_ROUTED
#define KIN_WEIGHTS_QK_NORM_ALL KIN_W_ATTN_Q_NORM_ALL, KIN_W_ATTN_K_NORM_ALL
#define KIN_WEIGHTS_OUT_NORM KIN_W_ATTN_OUT_NORM, KIN_W_FFN_OUT_NORM

// ---- one weight

// Returns the weight of that name (kin_weight_name), the first one if families use a name for different weights; -1 if there is
// none.
int kin_weight_find(const char *name);

// Returns the name after "blk.N.", such as "attn_q.weight".
const char *kin_weight_name(kin_weight weight);

kin_weight_block kin_weight_block_of(kin_weight weight);

// True for norms, biases, sinks and taps: small, always F32, never multiplied as a matrix. The others are matrices with ne[0]
// inputs.
int kin_weight_is_vector(kin_weight weight);

// True for the matrices of all experts of a layer, one after the other: a token needs only the experts that the router picks for
// it.
int kin_weight_is_experts(kin_weight weight);

// True for numbers of experts: I32, neither multiplied nor converted.
int kin_weight_is_integers(kin_weight weight);

// Returns the shape that this weight must have in layer `il`, fastest dimension first; unused dimensions are 1.
void kin_weight_shape(kin_weight weight, const kin_hparams *hp, int il, int64_t ne[3]);
