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
//   minimax-m3: qwen3moe with dense layers, experts chosen by sigmoids, a shared expert, and the gate of gpt-oss
//   kimi-linear: delta attention, or latent attention, in place of attention; feed-forward blocks as in minimax-m3, with SiLU
#pragma once

#include "testkit/ref/delta.h"
#include "testkit/ref/latent.h"
#include "testkit/ref/rope.h"
#include "testkit/ref/tensor.h"

typedef struct kin_ref_layer {
    bool is_windowed;              // a token sees the last `window` tokens
    bool has_no_rope;              // heads are not rotated
    bool is_dense;                 // the feed-forward block has no experts although the model has
    bool is_parallel;              // the feed-forward block reads attention's normed input, and has no norm of its own
    kin_ref_delta delta;           // instead of wq, wk, wv and wo, if it has heads; and so has
    kin_ref_latent latent;         // this, whose n_latent + n_rot is head_dim, with n_head_kv 1
    kin_ref_tensor attn_norm;      // (n_embd), may be absent
    kin_ref_tensor attn_norm_bias; // (n_embd), may be absent, and so may the following two
    kin_ref_tensor attn_out_norm;  // (n_embd), of the block's output
    kin_ref_tensor ffn_out_norm;   // (n_embd), the same
    kin_ref_tensor wq;             // (n_head*head_dim, n_embd)
    kin_ref_tensor wk, wv;         // (n_head_kv*head_dim, n_embd)
    kin_ref_tensor wo;             // (n_embd, n_head*head_dim)
    kin_ref_tensor bq;             // (n_head*head_dim), may be absent
    kin_ref_tensor bk, bv;         // (n_head_kv*head_dim), may be absent
    kin_ref_tensor q_norm, k_norm; // (head_dim), or a row for each head; may be absent
    kin_ref_tensor ffn_norm;       // (n_embd), may be absent
    kin_ref_tensor ffn_norm_bias;  // (n_embd), may be absent
    kin_ref_tensor ffn_router;     // (n_expert, n_embd), only with experts
    kin_ref_tensor ffn_choice;     // (n_expert), added when experts are chosen; may be absent
    kin_ref_tensor ffn_gate;       // (max(n_expert, 1), n_ff, n_embd); in a dense layer (n_ff_dense, n_embd)
    kin_ref_tensor ffn_up;         // the same
    kin_ref_tensor ffn_down;       // (max(n_expert, 1), n_embd, n_ff); in a dense layer (n_embd, n_ff_dense)
    kin_ref_tensor shared_gate;    // (n_ff_shared, n_embd), and so shared_up: of an expert that every token uses; may be absent
    kin_ref_tensor shared_up;
    kin_ref_tensor shared_down; // (n_embd, n_ff_shared)
} kin_ref_layer;

typedef struct kin_ref_model {
    int n_layer, n_embd, n_vocab;
    int n_head, n_head_kv, head_dim; // query head h reads key/value head h / (n_head / n_head_kv)
    int n_ff;                        // of one expert, if there are experts
    int n_expert, n_expert_used;     // 0, 0 in a dense model
    int n_ff_dense, n_ff_shared;     // of dense layers beside such with experts, and of the shared expert; 0: there is none
    bool chooses_by_sigmoids;        // the experts; false: by a softmax over all
    float expert_scale;              // multiplies the experts' shares; 0: 1
    bool gates_as_gpt_oss;           // g = min(g, 7), u = clamp(u, -7, 7): g / (1 + e^(-1.702 g)) (u + 1); false: silu(g) u
    int window;                      // of windowed layers
    bool centers_norms;              // norms subtract the mean first
    float rms_eps;
    kin_ref_rope rope;

    kin_ref_tensor token_embd;       // (n_vocab, n_embd); may be absent if no tokens are read or written
    kin_ref_tensor output_norm;      // (n_embd); may be absent if no logits are requested
    kin_ref_tensor output_norm_bias; // (n_embd), may be absent
    kin_ref_tensor output;           // (n_vocab, n_embd); absent: token_embd is used ("tied")
    kin_ref_tensor rope_freqs;       // (n_rot / 2), may be absent
    kin_ref_layer *layers;           // (n_layer); only those in use need be filled
} kin_ref_model;

#define KIN_REF_DIM_MAX (1 << 24)  // maximum rows or columns of a matrix
#define KIN_REF_HEAD_MAX (1 << 12) // maximum heads, elements of a head, experts, layers

// Returns NULL if everything that layers [layer_begin, layer_end) read is present and fits, otherwise the name of what is wrong.
// Other tensors are checked if they are present.
const char *kin_ref_model_check(const kin_ref_model *model, int layer_begin, int layer_end);
