// Latent attention for the reference engine, one token at a time.
//
// Of a token's latent c // (n_latent) and its common key p // (n_rot) a head's key is [K c, p] and its value V c, where K is the
// transpose of its matrix k_b. Here K multiplies the query, and V the mean of the latents, which is the same. The common key and
// that part of the queries may rotate. An indexer may choose which tokens are seen, or that of a layer before has. Thread: any.
#pragma once

#include "testkit/ref/indexer.h"
#include "testkit/ref/rope.h"
#include "testkit/ref/tensor.h"

typedef struct kin_ref_latent {
    int n_head, n_latent, n_rot, k_dim, v_dim; // 0: the layer is another one
    kin_ref_tensor q_a;                        // (n_query, n_embd), whose result is normalised and then multiplied by q; may be
    kin_ref_tensor q_norm;                     // (n_query), absent with q_a
    kin_ref_tensor q;                          // (n_head*(k_dim + n_rot), n_embd or n_query)
    kin_ref_tensor kv_a;                       // (n_latent + n_rot, n_embd)
    kin_ref_tensor kv_norm;                    // (n_latent)
    kin_ref_tensor k_b;                        // (n_head, n_latent, k_dim)
    kin_ref_tensor v_b;                        // (n_head, v_dim, n_latent)
    kin_ref_tensor kv_b;                       // (n_head*(k_dim + v_dim), n_latent): K, then V of each head, instead of both
    kin_ref_tensor out;                        // (n_embd, n_head*v_dim)
    kin_ref_indexer indexer;
    bool shares_choice; // sees what the layer before saw, and has no indexer
} kin_ref_latent;

// Returns the name of a tensor that is missing or does not fit, or NULL.
const char *kin_ref_latent_check(const kin_ref_latent *l, int n_embd);

// The floats of the scratch of a step in a context of n_ctx tokens.
size_t kin_ref_latent_scratch_floats(const kin_ref_latent *l, int n_ctx);

typedef struct kin_ref_latent_token {
    int pos;
    const kin_ref_rope *rope;  // NULL: nothing rotates
    const float *cos_sin;      // (n_rot / 2, 2), for pos
    double scale;              // of the scores
    bool *seen;                // (n_ctx): what the layer before saw; is changed to what this one sees
    kin_ref_indexer_keys keys; // of the indexer; whether it rounds holds for rows, too
    float eps;                 // of the norms
} kin_ref_latent_token;

// Computes out // (n_embd) for the token's normed x // (n_embd), and row pos of `rows` // (n_ctx, n_latent + n_rot).
void kin_ref_latent_step(const kin_ref_latent *l, const kin_ref_latent_token *token, const float *x, float *rows, float *scratch,
                         float *out);
