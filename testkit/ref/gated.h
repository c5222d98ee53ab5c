// Gated delta nets of Qwen for the reference engine, one token at a time.
//
// As Kimi's delta attention (delta.h), but a head has one decay for all rows of its matrix, several value heads may share a key
// head, and the gate is silu, or the sigmoid, of a matrix of its own. Thread: any.
#pragma once

#include "testkit/ref/delta.h"

typedef struct kin_ref_gated {
    int n_key, n_value, dim,
        n_taps;      // heads of queries and keys, heads of values, elements of either; 0: the layer is another one
    bool is_grouped; // value head h reads key head h / (n_value / n_key); false: h % n_key
    bool gates_by_sigmoid;
    kin_ref_tensor qkv;         // ((2 * n_key + n_value) * dim, n_embd): queries, keys, values
    kin_ref_tensor gate;        // (n_value * dim, n_embd)
    kin_ref_tensor all;         // instead of both: for each key head its query, its key, its values and their gates
    kin_ref_tensor beta, alpha; // (n_value, n_embd), each
    kin_ref_tensor both;        // instead of both: for each key head the rows of beta, then those of alpha
    kin_ref_tensor conv;        // ((2 * n_key + n_value) * dim, n_taps)
    kin_ref_tensor dt, a;       // (n_value), each
    kin_ref_tensor norm;        // (dim)
    kin_ref_tensor out;         // (n_embd, n_value * dim)
} kin_ref_gated;

// Returns the name of a tensor that is missing or does not fit, or NULL.
const char *kin_ref_gated_check(const kin_ref_gated *g, int n_embd);

// The floats of a sequence's state, and of the scratch of a step.
size_t kin_ref_gated_state_floats(const kin_ref_gated *g);
size_t kin_ref_gated_scratch_floats(const kin_ref_gated *g);

// Computes out // (n_embd) for the next token's normed x // (n_embd), and changes the state, which begins with zeros.
void kin_ref_gated_step(const kin_ref_gated *g, float eps, const float *x, float *state, float *scratch, float *out);
