// Sessions of the reference engine, and the norms and products that the parts of a forward pass share (forward.h).
//
// The fields are private to these parts. Owner: one thread at a time. The model is borrowed until close and not written. All
// memory is allocated in open.
#pragma once

#include "testkit/ref/model.h"

typedef struct kin_ref_session kin_ref_session;

#define KIN_REF_CTX_MAX (1 << 24)

// Opens a session of at most n_ctx positions. NULL if the model fails kin_ref_model_check, n_ctx is not in [1, KIN_REF_CTX_MAX],
// or out of memory.
kin_ref_session *kin_ref_session_open(const kin_ref_model *model, int layer_begin, int layer_end, int n_ctx);
void kin_ref_session_close(kin_ref_session *session);

struct kin_ref_session {
    const kin_ref_model *model;
    int layer_begin, layer_end, n_ctx;
    int *n_held;         // (layers): positions that each layer holds
    float *k, *v;        // (layers, n_ctx, n_head_kv*head_dim)
    float *inputs;       // (n_layer, n_input): what the layers are given of the token that was embedded last
    float *rope_factors; // (at least n_rot / 2), NULL if the model has none
    float *kept;         // (layers, n_ctx, n_kept): products for compressed rows, or for the convolution of n-grams; index keys
    size_t n_kept;
    int token;     // that was embedded last
    bool *seen;    // (n_head_kv, n_ctx): the positions that an indexer chose for the token that runs
    int *tokens;   // (n_ctx): of all positions
    float *states; // (layers, n_state): of layers that have a state
    size_t n_state;

    // Scratch for one token.
    float *single;            // (n_embd): what a block reads of several streams
    float *streams;           // (n_streams, n_embd): the new ones
    float *shares_of_streams; // (n_streams): of a block's result
    float *sinkhorn;          // fn, base and scale of a block
    float *cos_sin;           // (n_rot / 2, 2): cosines and sines of its position
    float *window_cos_sin;    // the same of windowed layers
    float *normed;            // (n_embd): input of a block
    float *added;             // (n_embd): output of a block
    float *sum;               // (n_embd): of the experts
    float *shared;            // (n_embd): output of the shared expert
    float *q;                 // (n_head*head_dim), and as many for their gates
    float *heads;             // (n_head*value_dim): attention output of each query head
    float *gates;             // (n_head*value_dim): of these outputs
    float *scores;            // (n_ctx): of one query head
    float *latent;            // (n_embd): what experts read
    float *router;            // (max(n_expert, 1)): probability of each expert
    float *shares;            // (max(n_expert, 1)): its part in the sum
    float *choice;            // (n_expert)
    float *gate;              // (the widest n_ff)
    float *up;                // (n_ff)
    float *weights;           // (the widest of all): one norm or bias as floats
    float *scratch;           // of layers with a state, and of latent attention
};

// True if the layer has a state instead of keys and values.
bool kin_ref_has_state(const kin_ref_layer *w);

// out = x / sqrt(mean(x^2) + eps) * row of weight, after the mean is subtracted from x if the model says so.
// x, out // (n_cols of weight); out may be x.
void kin_ref_norm_by_row(kin_ref_session *s, const kin_ref_tensor *weight, int row, float eps, const float *x, float *out);

// The same with the only row, plus the bias; without weight: out = x. weight, bias, x, out // (n)
void kin_ref_norm(kin_ref_session *s, const kin_ref_tensor *weight, const kin_ref_tensor *bias, int n, const float *x,
                  float *out);

// out = w x + row i of b, without it if b is absent. w // (n_rows, n_cols), b // (at least i + 1, n_rows)
void kin_ref_project(kin_ref_session *s, const kin_ref_tensor *w, const kin_ref_tensor *b, int i, const float *x, float *out);

// Adds a block's result s->added, which has a norm of its own if the layer has that. x // (n_embd)
void kin_ref_add_block(kin_ref_session *s, const kin_ref_tensor *out_norm, float *x);
