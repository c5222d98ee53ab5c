// State spaces (Mamba-2) for the reference engine, one token at a time.
//
// Each head has a matrix S // (n_state, dim), which begins with zeros. With a step t = ln(1 + e^(dt)), a group's b and c and the
// head's x:
//   S = e^(t a) S + t b x^T    y = S^T c + d x
// x, b and c are convolved over time first; y is gated, and then normed in groups. Thread: any.
#pragma once

#include "testkit/ref/convolution.h"

typedef struct kin_ref_state_space {
    int n_head, dim, n_group, n_state, n_taps; // 0: the layer is another one; head h reads group h / (n_head / n_group)
    kin_ref_tensor in;                         // (2*n_head*dim + 2*n_group*n_state + n_head, n_embd): gates, x, b, c, dt
    kin_ref_tensor conv, conv_bias;            // (n_head*dim + 2*n_group*n_state, n_taps), and as many biases: of x, b, c
    kin_ref_tensor dt;                         // (n_head), added to the products
    kin_ref_tensor a, d;                       // (n_head, 1), each; a is negative
    kin_ref_tensor norm;                       // (n_group, n_head*dim / n_group)
    kin_ref_tensor out;                        // (n_embd, n_head*dim)
} kin_ref_state_space;

// Returns the name of a tensor that is missing or does not fit, or NULL.
const char *kin_ref_state_space_check(const kin_ref_state_space *s, int n_embd);

// The floats of a sequence's state, and of the scratch of a step.
size_t kin_ref_state_space_state_floats(const kin_ref_state_space *s);
size_t kin_ref_state_space_scratch_floats(const kin_ref_state_space *s);

// Computes out // (n_embd) for the next token's normed x // (n_embd), and changes the state, which begins with zeros.
void kin_ref_state_space_step(const kin_ref_state_space *s, float eps, const float *x, float *state, float *scratch, float *out);
