// Hyper-parameters: a model's shape and arithmetic from its metadata, for all layers and for each of them.
//
// Plain data, read and checked once from the GGUF, const afterwards. All code above model/families/arch_*.c looks at this
// description and at which weights a layer has, never at the family.
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

// The gated delta net of recurrent layers, Kimi's delta attention, or their state space. Value head h belongs to key head h mod
// n_key_heads, or, if they are grouped, to h / (n_value_heads / n_key_heads).
typedef struct kin_delta_net {
    int n_taps;   // of the convolution before it
    int head_dim; // values of a head
    int key_dim;  // keys of a head: as many, but in a state space
    int n_key_heads, n_value_heads;
    bool is_grouped;
    bool gates_by_sigmoid; // the heads' results; false: by SiLU
    bool decays_rows; // Kimi's delta attention: each number of a key has a decay of its own; queries, keys and values are equally
                      // wide, and have products and convolutions of their own
    float least_decay;   // with decays_rows: the logarithm of the bound of decays, below 0 (kin_kernels.delta_decays); 0: none
    float unit_eps;      // added to the square of a query's or key's length before it is divided by that; 0: lengths are at least
                         // rms_eps instead
    bool is_state_space; // Mamba-2: the matrix is not read before a token changes it; the convolution has a bias; a part of each
                         // head's input is added to its result, and a key head's results are normalised after the gate
} kin_delta_net;

// The short convolution over time of recurrent layers that have no delta net: of as many channels as a hidden state, without an
// activation. Its input and its result are gated by products of the layer's input.
typedef struct kin_short_conv {
    int n_taps; // 0: the model has no such layers
} kin_short_conv;

// Latent attention: the keys and values of all heads are made of one vector of a token, the latent; each key also has the token's
// rotary key. The cache holds these two and nothing else: in kin_layer there is one key head, the latent followed by the rotary
// key, whose values are the latent. What would make a head's keys of the latent multiplies its query instead; what makes its
// values multiplies attention's result.
typedef struct kin_latent {
    int n_latent;     // 0: the model has no such layers
    int n_rot;        // of the rotary key, and of the end of each query
    int n_query;      // the queries' own latent; 0: they are made of the hidden state
    int k_dim, v_dim; // of a head: its query without the rotated end, and its values
    bool is_fused;    // the file has the matrices of keys and values in one, which must be converted (KIN_W_LATENT_KV_B)
} kin_latent;

// An indexer: small heads that choose the tokens that a query of latent attention sees, if there are more than n_chosen, or, of
// attention with compressed rows, which rows of overlapping blocks. A token, or a row, has one key for all heads, in its cell of
// the cache beside the latent or the row. Its score is the sum over the heads of weight * max(query . key, 0), and those n_chosen
// with the greatest scores are seen; of equal ones the earlier. Keys of rows are compressed as the rows are (kin_compressed).
typedef struct kin_indexer {
    int n_head;
    int key_dim;    // of which the first kin_latent.n_rot rotate; of keys of rows the last
    int n_chosen;   // 0: the model has no indexer
    int n_block;    // tokens that are chosen together (below); 0: they are single
    int n_local;    // of these blocks the newest ones, which are always chosen, at least 1; with `pools` 0
    bool pools;     // a block has one key, which is made of its tokens' (below)
    int n_pool;     // tokens of a pool, which has one key, made by gates (below); 0: each token has its own
    bool rope_neox; // of its queries and keys
    float eps;      // of the keys' norm, which subtracts the mean unless tokens are chosen by blocks
} kin_indexer;

// With n_block the heads of an indexer are as many as key/value heads, each of which sees blocks of its own. A block's score is
// the greatest query . key of its tokens up to the query's own; of n_chosen / n_block blocks the newest is the query's.
//
// With n_pool every n_pool consecutive tokens form a pool. A pool has one key: in each column the sum of its tokens' keys,
// weighted by the softmax of their gates. A query sees the n_chosen / n_pool best pools (rounded down), and all tokens after the
// last whole pool. n_chosen is the most tokens that a query sees, so n_chosen % n_pool is n_pool - 1. A token's cell holds the
// key of the pool that it ends (zeros if it ends none), its own key, and its gates. Queries and keys are not rotated.

// If a block has one key, this is the mean of those of its tokens, normalised and rotated as at the first of them. Its score is
// the sum over the heads of max(query . key, 0), and all key/value heads see the same blocks. A query's last whole block is
// chosen like the others; the tokens after it are seen, too.
enum { KIN_INDEX_HEADS = 64 };                               // most heads of such an indexer
static inline int kin_indexer_n_seen(const kin_indexer *x) { // the most tokens that a query sees
    return x->n_chosen + (x->pools ? x->n_block - 1 : 0);
}

// Attention over a window of tokens and over compressed rows of older tokens (DeepSeek V4). All heads of a token have one key,
// which is also their value. In a layer with a ratio of r each whole block of r tokens makes a further such row: for each channel
// the sum of the block's values, weighted by the softmax of its gates; with overlapping blocks also of values and gates that the
// block before it has made for its successor. The last n_rot numbers of a row rotate, and are rotated back in attention's result.
// The output's first matrix is one for each group of heads.
typedef struct kin_compressed {
    int window; // tokens that a query sees, including its own
    int n_rot;
    int n_group, n_rank; // groups of heads, and what each group's matrix makes of them
} kin_compressed;

enum {
    KIN_COMPRESSED_OVERLAPS = 4, // the ratio of layers whose blocks overlap
    KIN_COMPRESSED_RATIO = 128,  // the largest
    KIN_COMPRESSED_WINDOW = 256,
    KIN_COMPRESSED_ROWS = 8192, // most compressed rows that a query sees
};

// How several residual streams are mixed (model/streams.h).
typedef enum kin_streams_kind {
    KIN_STREAMS_ONE, // there is one stream, to which blocks add their results
    KIN_STREAMS_SINKHORN,
    KIN_STREAMS_SINKHORN_MEAN, // the same, but what ends the streams is their mean
    KIN_STREAMS_GATED,
    KIN_STREAMS_KINDS,
} kin_streams_kind;

enum { KIN_STREAM_ENDS = 4 }; // most tensors that mix the streams after the last layer

// An embedding of a token and those before it, which is added to the streams before one layer. The ids of 2, 3, ... `size` tokens
// make numbers of rows of a table in the file (kin_ngram_rows); a token's rows, one after the other, are its embedding.
enum { KIN_NGRAM_TOKENS = 4, KIN_NGRAM_HEADS = 32 };
typedef struct kin_ngram {
    int size;    // 0: the model has none
    int layer;   // before which it is added
    int n_heads; // rows for each number of tokens
    int dim;     // of a row
    int n_taps;  // of the convolution of what is added, `size` tokens apart
    int eos;     // the token before which nothing counts
    uint64_t multipliers[KIN_NGRAM_TOKENS];
    uint64_t first[KIN_NGRAM_HEADS], n_rows[KIN_NGRAM_HEADS]; // the rows of each head
} kin_ngram;

static inline int kin_ngram_n_rows(const kin_ngram *n) { // of a token
    return n->size > 0 ? (n->size - 1) * n->n_heads : 0;
}
static inline int kin_ngram_width(const kin_ngram *n) { // of an embedding
    return kin_ngram_n_rows(n) * n->dim;
}

// How one layer computes. It has norms, biases, sinks and shared experts if it has their weights.
typedef struct kin_layer {
    int n_head, n_head_kv, n_ff; // in kin_hparams.layers 0: the model's
    int head_dim, v_dim;         // of queries and keys, and of values; 0: the model's, and head_dim
    int rope;                    // index into kin_hparams.ropes for queries and keys; or KIN_ROPE_NONE
    bool is_windowed;            // a token sees the last kin_hparams.window tokens, including itself; false: all before it
    bool has_no_attention;       // the layer is a feed-forward block only
    bool has_no_ff;              // the layer is attention, or recurrent, only
    bool is_recurrent;           // a gated delta net, or a short convolution, instead of attention: a state of each sequence
    bool is_latent;              // attention is latent: head_dim and v_dim are those of the cache
    int n_index_key;             // numbers of the indexer's key in a token's cell, or in that which ends a block; 0: it has none
    bool pools_index;            // its blocks have one key each (kin_indexer.pools)
    int n_pool;                  // tokens of a pool of its indexer (kin_indexer.n_pool); 0: it has no pools
    bool is_compressed;          // attention sees a window and compressed rows; head_dim is that of the one key
    int ratio;                   // tokens of a compressed row; 0: the layer has no such rows
    bool has_ngrams;             // an embedding of the last tokens is added to the streams before it
    bool routes_by_token;        // the token's number, not the router, chooses the experts
    bool gates_queries;          // each head's query is followed by the gate of its result, in one product (else KIN_W_ATTN_GATE)
    bool has_experts;            // false: the feed-forward block is dense
    bool is_parallel;            // the feed-forward block reads the layer's input, not attention's result
    kin_gate gate;               // of the feed-forward block
    float limit_exps;            // of the gate of experts, by kin_kernels.gate_limited; 0: none
    float limit_shared;          // the same of shared experts
    float limit_dense;           // the same of a dense block
    float attn_scale;            // multiplies q k
    float softcap;               // of the scores; 0: none
    bool norms_values;           // each value head is normalised, without a weight
    int kv_back;                 // reads the keys and values of the layer kv_back layers earlier; 0: the layer has its own
    int choice_back;             // sees the tokens that the indexer of the layer choice_back layers earlier chooses; 0: others
    int n_head_gate;             // products that gate each head's result: 1, or head_dim; 0: none
    kin_head_gate head_gate;
} kin_layer;

typedef struct kin_hparams {
    const kin_arch *arch;

    int n_layer;
    int n_draft_layer; // draft blocks (model/draft_block.h) that the file announces after the layers
    int n_embd;
    int n_streams;            // hidden states of a token between two layers: 1, but in models with hyper-connections
    kin_streams_kind streams; // how they are mixed
    struct {
        int n_iterations;
        float eps;
    } sinkhorn;       // of KIN_STREAMS_SINKHORN and KIN_STREAMS_SINKHORN_MEAN
    int n_mixer_rank; // of KIN_STREAMS_GATED: the width between the two matrices of a mixer's gate
    kin_ngram ngram;
    int n_vocab;
    int n_input;     // values that each layer is given of each token besides the hidden state; 0: none
    int n_ctx_train; // at most n_ctx_max
    int n_ctx_max;   // the longest context that kin computes; 0: any
    int n_head;      // this and the next three: of the layer that has most
    int n_head_kv;
    int head_dim;
    int v_dim;           // of values; 0: head_dim
    int n_ff;            // of a dense layer
    int n_expert;        // 0: dense
    int n_expert_used;   // routed experts per token
    int n_ff_exp;        // of one expert
    int n_expert_latent; // of the vector that experts read and write instead of the hidden state; 0: they use that
    int n_ff_shared;     // of the experts that every token uses, in total
    kin_routing routing; // of layers with experts; its bias is a weight
    float router_scale;  // multiplies the router's logits
    float rms_eps;
    float out_norm_eps; // of norms of blocks' outputs; 0: rms_eps
    bool centers_norms; // norms of hidden states and of heads subtract the mean first (LayerNorm)
    int n_dense;        // layers before the first one with experts
    int window;         // of windowed layers; 0: none
    float attn_scale;   // multiplies q k; 0: 1 / sqrt(head_dim)
    float score_softcap;
    float value_scale; // multiplies the values; 0: 1
    bool mixes_layers; // layers without key and value heads are not attention
    bool has_no_rope;
    bool rope_neox;                  // pairs are (i, i + n_rot / 2); false: (2i, 2i + 1)
    kin_rope ropes[KIN_ROPES];       // the second one is that of windowed layers, if the family has any
    int n_rope_factors;              // numbers in the file's tensor of rope factors
    bool ignores_factors[KIN_ROPES]; // this rope does not use them
    bool has_long_factors;           // the context size selects rope_factors_long or rope_factors_short

    kin_delta_net delta; // of recurrent layers; or
    kin_short_conv conv;
    kin_latent latent; // of latent layers
    kin_indexer indexer;
    kin_compressed compressed;

    // 1 (caps: 0) if the family has none.
    bool norms_embedding; // to a root mean square of 1, before it is scaled
    float embedding_scale;
    float residual_scale; // multiplies what a block adds to its input
    float logit_scale;
    float logit_softcap;
    float query_temperature; // b: the query at position p is multiplied by 1 + b ln(1 + floor(p / temperature_length))
    int temperature_length;

    kin_layer *layers; // [n_layer], owned by the model; NULL: all are plain (kin_layer_of)
} kin_hparams;

// The width of the residual: the numbers of a token between two layers, and between two members of a ring.
static inline int kin_hparams_stream_width(const kin_hparams *hp) {
    return hp->n_streams > 1 ? hp->n_streams * hp->n_embd : hp->n_embd;
}

// The numbers that a layer with compressed rows computes of a token for its block's row: values and as many gates, of overlapping
// blocks also those for the block after it.
static inline int kin_layer_n_raw(const kin_layer *layer) {
    return layer->ratio == 0 ? 0 : (layer->ratio == KIN_COMPRESSED_OVERLAPS ? 4 : 2) * layer->head_dim;
}
// Its numbers in the cache of a token: the token's row, the row of the block that it ends, and these; of an indexer likewise the
// key of the block, and four times as many of which such keys are made.
static inline int kin_layer_n_compressed(const kin_layer *layer) {
    const int n_index = layer->n_index_key > 0 ? layer->n_index_key + 4 * layer->n_index_key : 0;
    return (layer->ratio == 0 ? 1 : 2) * layer->head_dim + kin_layer_n_raw(layer) + n_index;
}

// Returns the number of the first layers of which some need the tokens' numbers, because these choose their experts; so numbers
// travel with the steps up to there. 0: none needs them.
int kin_hparams_token_layers(const kin_hparams *hp);

// The widths of queries, of keys and values in the cache, and of attention's result, of a layer from kin_layer_of.
static inline int kin_layer_n_embd_q(const kin_layer *layer) {
    return layer->n_head * layer->head_dim;
}

static inline int kin_layer_n_embd_k(const kin_layer *layer) {
    if (layer->is_compressed) return kin_layer_n_compressed(layer);
    return layer->n_head_kv * layer->head_dim;
}

static inline int kin_layer_n_embd_v(const kin_layer *layer) {
    return layer->is_latent || layer->is_compressed ? 0 : layer->n_head_kv * layer->v_dim;
}

// The numbers for a token of an indexer's keys in a cache of their own, where those of 64 tokens are followed by
// KIN_POOLED_KEYS of blocks, if these have one each; and how many of them are read. With n_pool they include what pools are made
// of. Keys of compressed rows are beside these.
static inline int kin_layer_n_pooled(const kin_layer *layer) {
    return layer->pools_index ? layer->n_index_key * KIN_POOLED_KEYS / KIN_KV_CELLS : 0;
}
static inline int kin_layer_n_index(const kin_layer *layer) {
    if (layer->is_compressed) return 0;
    return layer->n_pool > 0 ? 3 * layer->n_index_key : layer->n_index_key + kin_layer_n_pooled(layer);
}
static inline int kin_layer_n_index_read(const kin_layer *layer) {
    return layer->pools_index ? kin_layer_n_pooled(layer) : kin_layer_n_index(layer);
}

static inline int kin_layer_n_embd_out(const kin_layer *layer) {
    return layer->n_head * layer->v_dim;
}

// The width of the vectors that experts read and write.
static inline int kin_hparams_expert_width(const kin_hparams *hp) {
    return hp->n_expert_latent > 0 ? hp->n_expert_latent : hp->n_embd;
}

// True if its attention reads single tokens that an indexer chooses, its own or an earlier layer's.
static inline bool kin_layer_chooses(const kin_layer *layer) {
    return layer->is_latent && (layer->n_index_key > 0 || layer->choice_back > 0);
}

// True if its attention reads blocks of tokens that its indexer chooses, of one key each, or of a key for each token.
static inline bool kin_layer_chooses_groups(const kin_layer *layer) {
    return layer->pools_index;
}
static inline bool kin_layer_chooses_blocks(const kin_layer *layer) {
    return !layer->is_latent && !layer->is_compressed && !layer->pools_index && layer->n_index_key > 0;
}

// Returns the layout of its KV cache with kin's kernels. type: a GGUF type number
static inline kin_kv_layout kin_layer_kv(const kin_layer *layer, int type) {
    return (kin_kv_layout){.type = type,
                           .n_head_kv = layer->n_head_kv,
                           .k_dim = layer->head_dim,
                           .v_dim = layer->v_dim,
                           .v_in_k = layer->is_latent,
                           .by_cell = kin_layer_chooses(layer)};
}

// The same for its indexer's keys, which are F16 for any type of the cache. Without pools, whose cells are rows.
static inline kin_kv_layout kin_layer_index_kv(const kin_layer *layer) {
    const int dim = layer->n_index_key, f16 = 1;
    return (kin_kv_layout){.type = f16, .n_head_kv = 1, .k_dim = dim, .v_dim = dim, .v_in_k = true};
}

// Returns the description of a layer. Hyper-parameters without a list have plain layers.
kin_layer kin_layer_of(const kin_hparams *hp, int il);

// Makes *layer, whose widths are set, compute like llama's.
void kin_layer_set_plain(const kin_hparams *hp, kin_layer *layer);

// True if the model has layers that share the choice of an earlier one (kin_layer.choice_back).
bool kin_hparams_shares_choices(const kin_hparams *hp);

// True if the model has recurrent layers, so that a sequence has a state.
bool kin_hparams_has_states(const kin_hparams *hp);

// The widths of a delta net's values, and of its queries, keys and values.
static inline int kin_delta_n_values(const kin_delta_net *d) {
    return d->n_value_heads * d->head_dim;
}
static inline int kin_delta_n_channels(const kin_delta_net *d) {
    return 2 * d->n_key_heads * d->key_dim + kin_delta_n_values(d);
}

// True if all layers have the same numbers of heads and the same widths, and values are as wide as keys.
bool kin_hparams_is_uniform(const kin_hparams *hp);

// Limits contexts to the n_ctx tokens that the model sees without choosing among them (lightning indexer): up to there its
// attention is an ordinary one. Called after the rope is read, whose length in training is the file's.
void kin_hparams_limit_context(kin_hparams *hp, int n_ctx);

// Fails with a sentence if a context is longer than kin computes.
int kin_hparams_check_context(const kin_hparams *hp, int n_ctx, kin_err *err);

// Reads and checks the keys common to all families ("llama.block_count") into *hp, which is zero except for the arch, and makes
// the list of layers with their widths. The family reads the rest (kin_arch_read). The caller frees the list in either case.
void kin_hparams_read(kin_hparams *hp, kin_meta *keys);

// Reads how many of the file's blocks are layers, and how many draft blocks after them; *keys gets the number of both.
void kin_hparams_read_n_layer(kin_hparams *hp, kin_meta *keys);

// Reads the numbers of heads and the feed-forward width of block i_block into *layer, for families whose layers differ in them.
void kin_hparams_read_widths(kin_layer *layer, kin_meta *keys, int i_block);
