// Kimi's delta attention for the reference engine: by its definition, one token at a time.
//
// Each head has a matrix M // (dim of keys, dim of values), which follows from the tokens before: with decays g of its rows, a
// key k, a query q, a value v and a factor b
//   M = diag(g) M    M = M + b k (v - k^T M)    result = q^T M / sqrt(dim)
// Queries, keys and values are convolved over time first; queries and keys then have the length 1. Thread: any.
#pragma once

#include "testkit/ref/convolution.h"

typedef struct kin_ref_delta {
    int n_head, dim, n_taps;         // 0, 0, 0: the layer is another one
    kin_ref_tensor qkv[3];           // (n_head*dim, n_embd), each
    kin_ref_tensor conv[3];          // (n_head*dim, 1, n_taps), of these
    kin_ref_tensor decay_a, decay_b; // (dim, n_embd), (n_head*dim, dim)
    kin_ref_tensor dt;               // (n_head*dim)
    kin_ref_tensor a;                // (n_head, 1), negative
    float least;                     // logarithm of the bound of decays; 0: none
    float unit_eps;                  // added to the square of a length of queries and keys; 0: lengths have a least one instead
    kin_ref_tensor beta;             // (n_head, n_embd)
    kin_ref_tensor gate_a, gate_b;   // as the decays'
    kin_ref_tensor norm;             // (dim)
    kin_ref_tensor out;              // (n_embd, n_head*dim)
} kin_ref_delta;

// Returns the name of a tensor that is missing or does not fit, or NULL.
const char *kin_ref_delta_check(const kin_ref_delta *d, int n_embd);

// The floats of a sequence's state, and of the scratch of a step.
size_t kin_ref_delta_state_floats(const kin_ref_delta *d);
size_t kin_ref_delta_scratch_floats(const kin_ref_delta *d);

// Computes out // (n_embd) for the next token's normed x // (n_embd), and changes the state, which begins with zeros.
void kin_ref_delta_step(const kin_ref_delta *d, float eps, const float *x, float *state, float *scratch, float *out);

// Parts of a step that gated delta nets share: divides x // (n) by its length, which is at least eps;
void kin_ref_delta_make_unit(float *x, int n, float eps);
// and one token of a head. m // (dim, dim), the others // (dim)
void kin_ref_delta_advance(int dim, const float *q, const float *k, const float *v, const float *decays, double beta, float *m,
                           float *result);
