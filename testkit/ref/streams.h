// Several residual streams that Sinkhorn's iteration mixes, for the reference engine: in double, by the definition, one token at
// a time.
//
// Matrices are written (rows, columns), the last dimension contiguous. Thread: any.
#pragma once

typedef struct kin_ref_streams {
    int n_streams, n_embd;
    int n_iterations;
    double norm_eps, eps;
    const float *fn;    // (n_streams * (2 + n_streams), n_streams * n_embd); at the end (n_streams, n_streams * n_embd)
    const float *base;  // a number for each row of fn
    const float *scale; // (3): of what enters the block, of its result, and of the streams; at the end (1)
} kin_ref_streams;

enum { KIN_REF_STREAMS_MAX = 8 };

// What a block of a token reads of the streams x // (n_streams, n_embd), and how its result and the streams make the new ones.
typedef struct kin_ref_mix {
    double in[KIN_REF_STREAMS_MAX];
    double out[KIN_REF_STREAMS_MAX];
    double of[KIN_REF_STREAMS_MAX][KIN_REF_STREAMS_MAX]; // [from][to]
} kin_ref_mix;

kin_ref_mix kin_ref_streams_mix(const kin_ref_streams *s, const float *x);
// Only what is read after the last layer: `in`.
kin_ref_mix kin_ref_streams_end(const kin_ref_streams *s, const float *x);

// y // (n_embd) = the mean of the streams x // (n_streams, n_embd)
void kin_ref_streams_average(int n_streams, int n_embd, const float *x, float *y);

void kin_ref_streams_read(const kin_ref_streams *s, const kin_ref_mix *mix, const float *x, float *block); // block // (n_embd)
// y // (n_streams, n_embd); not x
void kin_ref_streams_write(const kin_ref_streams *s, const kin_ref_mix *mix, const float *x, const float *result, float *y);
