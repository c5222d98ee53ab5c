// Several residual streams that gates of low rank mix, for the reference engine, one token at a time.
//
// A block reads the mean over the streams of n_s gate_s, where n_s is stream s with a mean square of 1, times the norm's weights,
// and the gates are sigmoid(up silu(down n / n_streams)). Its result, times 2 sigmoid((inject n)_s / n_streams), is added to each
// stream. Thread: any.
#pragma once

#include "testkit/ref/tensor.h"

typedef struct kin_ref_mixer {
    kin_ref_tensor norm;   // (n_streams*n_embd)
    kin_ref_tensor down;   // (rank, n_streams*n_embd)
    kin_ref_tensor up;     // (n_streams*n_embd, rank)
    kin_ref_tensor inject; // (n_streams, n_streams*n_embd); absent at the end of the model, where there is no block
} kin_ref_mixer;

// Returns the name of a tensor that is missing or does not fit, or NULL.
const char *kin_ref_mixer_check(const kin_ref_mixer *m, int n_streams, int n_embd, bool is_end);

size_t kin_ref_mixer_scratch_floats(const kin_ref_mixer *m);

// Computes block // (n_embd) and shares // (n_streams), which stay as they are at the end. x // (n_streams, n_embd)
void kin_ref_mixer_read(const kin_ref_mixer *m, int n_streams, float eps, const float *x, float *scratch, float *block,
                        float *shares);

// x = each n_embd numbers of it with a mean square of 1, times its weights. x // (n of weights), scratch as long
void kin_ref_norm_streams(const kin_ref_tensor *weights, int n_embd, float eps, float *scratch, float *x);
