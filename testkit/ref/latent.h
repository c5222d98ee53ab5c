// Latent attention without a rope for the reference engine, one token at a time.
//
// Of a token's latent c // (n_latent) and its common key p // (n_rot) a head's key is [K c, p] and its value V c, where K is the
// transpose of its matrix k_b. Here K multiplies the query, and V the mean of the latents, which is the same. Thread: any.
#pragma once

#include "testkit/ref/tensor.h"

typedef struct kin_ref_latent {
    int n_head, n_latent, n_rot, k_dim, v_dim; // 0: the layer is another one
    kin_ref_tensor q;                          // (n_head*(k_dim + n_rot), n_embd)
    kin_ref_tensor kv_a;                       // (n_latent + n_rot, n_embd)
    kin_ref_tensor kv_norm;                    // (n_latent)
    kin_ref_tensor k_b;                        // (n_head, n_latent, k_dim)
    kin_ref_tensor v_b;                        // (n_head, v_dim, n_latent)
    kin_ref_tensor out;                        // (n_embd, n_head*v_dim)
} kin_ref_latent;

// Returns the name of a tensor that is missing or does not fit, or NULL.
const char *kin_ref_latent_check(const kin_ref_latent *l, int n_embd);

// The floats of the scratch of a step in a context of n_ctx tokens.
size_t kin_ref_latent_scratch_floats(const kin_ref_latent *l, int n_ctx);

// Computes out // (n_embd) for the normed x // (n_embd) at position pos, and row pos of `rows` // (n_ctx, n_latent + n_rot).
void kin_ref_latent_step(const kin_ref_latent *l, float eps, const float *x, int pos, float *rows, float *scratch, float *out);
