// Short convolutions over time for the reference engine, one token at a time.
//
// A layer of LFM2: (b, c, u) = in x; result = out (c * (sum of the last n_taps values of b * u, each with its tap)). Thread: any.
#pragma once

#include "testkit/ref/tensor.h"

enum { KIN_REF_TAPS_MAX = 8 };

typedef struct kin_ref_convolution {
    int n, n_taps;       // 0: the layer is another one
    kin_ref_tensor in;   // (3 * n, n_embd)
    kin_ref_tensor taps; // (n, n_taps)
    kin_ref_tensor out;  // (n_embd, n)
} kin_ref_convolution;

// Returns the name of a tensor that is missing or does not fit, or NULL.
const char *kin_ref_convolution_check(const kin_ref_convolution *c, int n_embd);

// The floats of a sequence's state, and of the scratch of a step.
size_t kin_ref_convolution_state_floats(const kin_ref_convolution *c);
size_t kin_ref_convolution_scratch_floats(const kin_ref_convolution *c);

// Computes out // (n_embd) for the next token's normed x // (n_embd), and changes the state, which begins with zeros.
void kin_ref_convolution_step(const kin_ref_convolution *c, const float *x, float *state, float *scratch, float *out);

// One channel: returns the sum of the last n_taps inputs, each with its tap. `history` holds those before x, `stride` floats
// apart, the oldest first, and x afterwards. taps // (n_taps)
double kin_ref_convolve(const float *taps, int n_taps, float *history, size_t stride, float x);
