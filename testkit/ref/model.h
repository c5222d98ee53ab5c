// A model for the reference engine: its hyper-parameters and its weights, as plain data.
//
// The caller fills it and owns everything in it; tensors point into the model file's bytes. The families differ only in which
// tensors are present and how rope pairs elements, so there is no list of architectures here:
//
//   llama     NORMAL rope; rope_freqs in Llama 3.1 and later
//   Mixtral   llama with experts
//   qwen2     NEOX rope, biases bq, bk, bv
//   qwen3     NEOX rope, q_norm and k_norm, its own head_dim
//   qwen3moe  qwen3 with experts
//   exaone    NEOX rope
//   exaone4   NEOX rope, q_norm and k_norm, norms after the blocks instead of before them; windowed layers, and only these rotate
//   stablelm  NEOX rope, norms that subtract the mean, with biases, and of each head with its own weights; parallel blocks
//   minimax-m3: qwen3moe with dense layers, experts chosen by sigmoids, a shared expert, and the gate of gpt-oss; an indexer of
//             blocks of tokens
//   kimi-linear: delta attention, or latent attention, in place of attention; feed-forward blocks as in minimax-m3, with SiLU
//   olmo2     exaone4, but q_norm and k_norm are of all heads at once; windowed layers have a rope of their own
//   smollm3   llama, with layers that do not rotate
//   granite, granitemoe: llama with factors of the embedding, the scores, the blocks' results and the logits
//   glm4      NORMAL rope of a part of each head, biases, norms before and after the blocks
//   qwen2moe  qwen2 with experts whose shares are kept, and a shared expert with a gate
//   minimax-m2: NEOX rope, q_norm and k_norm as in olmo2, experts chosen by sigmoids
//   phi3      NEOX rope, factors for short and for long contexts
//   gemma2    norms before and after the blocks, GELU, soft caps, windowed layers
//   gemma3    gemma2 with q_norm and k_norm instead of the caps; windowed layers have a rope of their own
//   gpt-oss   experts, biases everywhere, sinks, windowed layers
//   glm4moe   NEOX rope, biases, dense layers, experts chosen by sigmoids, a shared expert
//   cohere2   parallel blocks, norms that subtract the mean, windowed layers, and only these rotate
//   mistral3  llama with queries that grow with their position
//   hy_v3     qwen3moe with dense layers, experts chosen by sigmoids, and a shared expert
//   muse-glimmer: gemma2's norms, gates of the heads' results, a norm of the embedding; windowed layers, and only these rotate
//   laguna    windowed layers with another number of heads, gates of the heads' results, dense layers, experts as in hy_v3
//   step35    laguna with one gate for each head, and limits of the experts
//   deepseek2, deepseek32, glm-dsa, mistral4: latent attention that rotates, dense layers, experts in groups, shared experts;
//             the second and the third have indexers, whose choice layers of the third may share
//   lfm2, lfm2moe: short convolutions, or attention as in qwen3; dense layers, experts chosen by sigmoids
//   qwen35, qwen35moe, qwen3next: gated delta nets, or attention with gates; experts, and a shared one with a gate
//   mimo2     windowed layers with another number of heads and sinks, values narrower than keys, experts chosen by sigmoids
//   gemma4    gemma3 with normed values and heads that are wider in layers without a window; keys that are values, too, or those
//   of
//             an earlier layer; experts beside the dense block; an input of each layer, made of the token
//   nemotron_h: layers of one block: a state space, attention that does not rotate, or a feed-forward block without a gate
//   nemotron_h_moe: nemotron_h with experts, chosen by sigmoids, which may work on a latent, and a shared one
//   deepseek4 several streams, attention that sees a window and compressed rows, of which an indexer chooses, experts chosen by
//   softplus or by the token qwen4exp  qwen35moe with several streams, mixers in place of norms, an embedding of the last tokens,
//   and gates by sigmoids
//   glm5-next: kimi-linear with several streams as in deepseek4, which end with their mean; bounded decays, limits of dense
//   blocks and experts, and an indexer that chooses pools of tokens
#pragma once

#include "testkit/ref/block_indexer.h"
#include "testkit/ref/compressed.h"
#include "testkit/ref/convolution.h"
#include "testkit/ref/delta.h"
#include "testkit/ref/gated.h"
#include "testkit/ref/latent.h"
#include "testkit/ref/mixer.h"
#include "testkit/ref/ngram.h"
#include "testkit/ref/rope.h"
#include "testkit/ref/state_space.h"
#include "testkit/ref/tensor.h"

// How a feed-forward block joins gate g and up u.
typedef enum kin_ref_gate {
    KIN_REF_GATE_SILU,    // silu(g) u
    KIN_REF_GATE_CLAMPED, // silu(min(g, c)) clamp(u, -c, c), with the layer's limit c
    KIN_REF_GATE_GELU,    // gelu(g) u; gelu is the approximation with tanh
    KIN_REF_GATE_NONE,    // max(u, 0)^2
    KIN_REF_GATE_GPT_OSS, // g = min(g, 7), u = clamp(u, -7, 7): g / (1 + e^(-1.702 g)) (u + 1)
} kin_ref_gate;

// What a router's products become: the experts' probabilities.
typedef enum kin_ref_routing {
    KIN_REF_ROUTE_SOFTMAX, // over all experts
    KIN_REF_ROUTE_SIGMOID,
    KIN_REF_ROUTE_SOFTPLUS, // sqrt(ln(1 + e^x))
} kin_ref_routing;

// The weights by which a block reads several streams and writes its result to them (streams.h); at the end of the model, too.
typedef struct kin_ref_sinkhorn {
    kin_ref_tensor fn;    // (n_streams*(2 + n_streams), n_streams*n_embd); at the end (n_streams, n_streams*n_embd)
    kin_ref_tensor base;  // a number for each row of fn
    kin_ref_tensor scale; // (3); at the end (1)
} kin_ref_sinkhorn;

typedef enum kin_ref_block { KIN_REF_ATTENTION, KIN_REF_FEED_FORWARD } kin_ref_block;

typedef struct kin_ref_layer {
    int n_head, n_head_kv;         // 0: the model's; and so are the following two
    int head_dim, value_dim;       // at most the model's
    int n_ff_dense;                // without experts; 0: the model's
    int kv_back;                   // keys and values are those of the layer this many before; 0: its own
    bool is_windowed;              // a token sees the last `window` tokens; the layer uses window_rope
    bool has_no_rope;              // heads are not rotated
    bool is_dense;                 // the feed-forward block has no experts although the model has
    bool has_no_attention;         // nor anything in its place
    bool has_no_ff;                // no feed-forward block
    bool is_parallel;              // the feed-forward block reads attention's normed input, and has no norm of its own
    kin_ref_delta delta;           // instead of wq, wk, wv and wo, if it has heads; and so has
    kin_ref_latent latent;         // this, whose n_latent + n_rot is head_dim, with n_head_kv 1;
    kin_ref_gated gated;           // this;
    kin_ref_state_space space;     // this;
    kin_ref_compressed compressed; // this, whose dim is head_dim, with n_head_kv 1;
    kin_ref_convolution conv;      // and this
    kin_ref_sinkhorn sinkhorn[2];  // of each block, if there are several streams; or,
    kin_ref_mixer mixers[2];       // without iterations, this: then there are no norms before blocks
    kin_ref_ngram ngram;           // added to the streams before the layer; may be absent
    kin_ref_tensor attn_norm;      // (n_embd), may be absent
    kin_ref_tensor attn_norm_bias; // (n_embd), may be absent, and so may the following two
    kin_ref_tensor attn_out_norm;  // (n_embd), of the block's output
    kin_ref_tensor ffn_out_norm;   // (n_embd), the same
    bool wq_has_gates;             // wq holds the rows of a head, then those of its gate, and so on
    kin_ref_tensor wq;             // (n_head*head_dim, n_embd), or twice as many rows
    kin_ref_tensor wk, wv;         // (n_head_kv*head_dim, n_embd), (n_head_kv*value_dim, n_embd); wv absent: the products of wk
    kin_ref_tensor wo;             // (n_embd, n_head*value_dim)
    kin_ref_tensor bq;             // (n_head*head_dim), may be absent
    kin_ref_tensor bk, bv;         // (n_head_kv*head_dim), (n_head_kv*value_dim), may be absent
    kin_ref_tensor bo;             // (n_embd), may be absent
    kin_ref_tensor q_norm, k_norm; // (head_dim), or a row for each head, or (n_head*head_dim) for all at once; may be absent
    kin_ref_tensor sinks;          // (n_head): a score of each head that has no value; may be absent
    kin_ref_block_indexer indexer; // may be absent
    kin_ref_tensor head_gate;      // (n_head or n_head*value_dim, n_embd), of the heads' results; may be absent
    float expert_limit;            // limits silu(g) from above, and u from both sides, also of a dense block; 0: no limit
    float shared_limit;            // the same for the shared expert
    kin_ref_tensor ffn_norm;       // (n_embd), may be absent
    kin_ref_tensor ffn_norm_bias;  // (n_embd), may be absent
    kin_ref_tensor ffn_router;     // (n_expert, n_embd), only with experts
    kin_ref_tensor router_norm;    // (n_embd), of x, which the router then reads, divided by sqrt(n_embd); may be absent
    kin_ref_tensor experts_norm;   // (n_embd), of x, which experts then read; may be absent, and so may the following three
    kin_ref_tensor experts_out_norm, shared_out_norm; // (n_embd), of the results
    kin_ref_tensor expert_scales;                     // (n_expert), which multiply the shares
    kin_ref_tensor router_bias;                       // (n_expert), may be absent
    kin_ref_tensor token_experts; // (n_vocab, n_expert_used), int32: the experts that are chosen for a token; may be absent
    kin_ref_tensor ffn_choice;    // (n_expert), added when experts are chosen; may be absent
    kin_ref_tensor ffn_gate;      // (max(n_expert, 1), n_ff, n_embd or n_latent); in a dense layer (n_ff_dense, n_embd)
    kin_ref_tensor ffn_up;        // the same
    kin_ref_tensor ffn_gate_up;   // (n_expert, 2*n_ff, n_embd), instead of both: an expert's rows of the gate, then those of up
    kin_ref_tensor ffn_down;      // (max(n_expert, 1), n_embd, n_ff); in a dense layer (n_embd, n_ff_dense)
    kin_ref_tensor gate_bias;     // (max(n_expert, 1), n_ff), may be absent, and so may up_bias
    kin_ref_tensor up_bias;       // the same
    kin_ref_tensor down_bias;     // (max(n_expert, 1), n_embd), may be absent
    kin_ref_tensor shared_gate;   // (n_ff_shared, n_embd), and so shared_up: of an expert that every token uses; may be absent
    kin_ref_tensor shared_up;
    kin_ref_tensor shared_down;   // (n_embd, n_ff_shared)
    kin_ref_tensor shared_router; // (n_embd), whose sigmoid multiplies the shared expert's result; may be absent
    kin_ref_tensor latent_down;   // (n_latent, n_embd): its product is what experts read; may be absent, and so may
    kin_ref_tensor latent_up;     // (n_embd, n_latent), of their sum
    kin_ref_tensor
        input_gate; // (n_input, n_embd), only with n_input; then input_proj // (n_embd, n_input), and its norm (n_embd)
    kin_ref_tensor input_proj, input_norm;
    kin_ref_tensor scale; // (1), of the layer's result; may be absent
} kin_ref_layer;

typedef struct kin_ref_model {
    int n_layer, n_embd, n_vocab;
    int n_head, n_head_kv, head_dim; // query head h reads key/value head h / (n_head / n_head_kv); the most of all layers
    int value_dim;                   // of a head's value; 0: head_dim
    int n_ff;                        // of one expert, if there are experts
    int n_expert, n_expert_used;     // 0, 0 in a dense model
    int n_group, n_group_used;       // of experts, of which only the best groups are chosen from; 0 or 1: no groups
    int n_ff_dense, n_ff_shared;     // of dense layers beside such with experts, and of the shared expert; 0: there is none
    kin_ref_routing routing;
    float expert_scale; // multiplies the experts' shares; 0: 1
    bool keeps_shares;  // the chosen experts' shares; false: they are divided by their sum
    kin_ref_gate gate;
    bool gates_heads_by_softplus; // of head_gate; false: by sigmoids
    int window;                   // of windowed layers
    int n_streams;                // of hidden vectors between blocks; 0: one, to which blocks add
    int n_sinkhorn;               // iterations; 0: streams have mixers
    float sinkhorn_eps;
    bool averages_streams; // after the last layer, where otherwise `end` reads them
    int n_input;           // width of the input that each layer gets besides x, made of the token; 0: none
    bool rounds_rows;      // keys and values are rounded to float16, as in the caches of engines
    bool norms_values;     // of each head, to a mean square of 1
    bool centers_norms;    // norms subtract the mean first
    bool norms_embedding;  // to a mean square of 1
    float rms_eps;
    float out_norm_eps;         // of attn_out_norm and ffn_out_norm; 0: rms_eps
    float embedding_scale;      // multiplies the embedding; this and the following two: 0 is 1
    float residual_scale;       // multiplies the blocks' results
    float logit_scale;          // multiplies the logits
    float value_scale;          // multiplies attention's result; 0: 1
    float attn_scale;           // multiplies scores; 0: 1 / sqrt(elements of a key)
    float score_cap, logit_cap; // c tanh(score / c); 0: none
    float query_temperature;    // t: queries are multiplied by 1 + t ln(1 + floor(pos / temperature_length)); 0: none
    int temperature_length;
    kin_ref_rope rope;
    kin_ref_rope window_rope; // of windowed layers; n_rot 0: rope
    bool window_rope_has_no_freqs;

    kin_ref_tensor token_embd;       // (n_vocab, n_embd); may be absent if no tokens are read or written
    kin_ref_tensor output_norm;      // (n_embd); may be absent if no logits are requested
    kin_ref_tensor output_norm_bias; // (n_embd), may be absent
    kin_ref_tensor output;           // (n_vocab, n_embd); absent: token_embd is used ("tied")
    kin_ref_tensor rope_freqs;       // (at least n_rot / 2, of either rope), may be absent
    kin_ref_tensor rope_freqs_long;  // the same, instead in contexts of more than rope.n_ctx_orig tokens; may be absent
    kin_ref_tensor input_embd;       // (n_vocab, n_layer*n_input), only with n_input; and so are
    kin_ref_tensor input_proj;       // (n_layer*n_input, n_embd), and
    kin_ref_tensor input_norm;       // (n_input)
    kin_ref_sinkhorn end;            // of the streams, before output_norm; or
    kin_ref_mixer end_mixer;         // this, instead of it
    kin_ref_tensor ngram_table;      // of the layer that has n-grams
    kin_ref_layer *layers;           // (n_layer); only those in use need be filled
} kin_ref_model;

// The heads of a layer's attention: of queries, of keys and values, and the elements of a key and a value.
typedef struct kin_ref_heads {
    int n, n_kv, k_dim, v_dim;
} kin_ref_heads;

kin_ref_heads kin_ref_heads_of(const kin_ref_model *model, const kin_ref_layer *layer);

// True if streams have mixers.
bool kin_ref_has_mixers(const kin_ref_model *model);

// Numbers of a token between layers: those of all streams.
size_t kin_ref_width(const kin_ref_model *model);

// The width of a layer's feed-forward block, or of one of its experts.
int kin_ref_n_ff(const kin_ref_model *model, const kin_ref_layer *layer);

#define KIN_REF_I32 26             // the type of token_experts
#define KIN_REF_DIM_MAX (1 << 24)  // maximum rows or columns of a matrix
#define KIN_REF_HEAD_MAX (1 << 12) // maximum heads, elements of a head, experts, layers

// Returns NULL if everything that layers [layer_begin, layer_end) read is present and fits, otherwise the name of what is wrong.
// Other tensors are checked if they are present.
const char *kin_ref_model_check(const kin_ref_model *model, int layer_begin, int layer_end);
