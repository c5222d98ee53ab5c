// An embedding of the last tokens, which is added to several residual streams before a layer, for the reference engine.
//
// For n of 2 to `size`, the last n ids, each times a number of its place, are joined by exclusive or; each head of that n takes
// the row of the table whose number is the remainder by its number of rows. A text's end, and what was before it, counts as the
// end's id. Of all rows together, e, there is a key of each stream and one value:
//   s = norm(key_s) . norm(x_s) / sqrt(n_embd)    gate = sigmoid(sign(s) sqrt(max(|s|, 1e-6)))    g_s = gate value
//   x_s += g_s + silu(sum over k of taps_k norm(g_s) of the token that is k * size earlier)
// Thread: any.
#pragma once

#include "testkit/ref/tensor.h"

enum { KIN_REF_NGRAM_SIZE_MAX = 4, KIN_REF_NGRAM_HEADS_MAX = 64 };

typedef struct kin_ref_ngram {
    int size, n_heads; // of each n; 0: the layer has none
    int end_id;
    uint64_t factors[KIN_REF_NGRAM_SIZE_MAX]; // of the token itself, of the one before, ...
    uint64_t first[KIN_REF_NGRAM_HEADS_MAX];  // row of each head, the smallest n first, and the number of its rows
    uint64_t n_rows[KIN_REF_NGRAM_HEADS_MAX];
    kin_ref_tensor table;                           // (at least the last row + 1, n_embd / ((size - 1) * n_heads))
    kin_ref_tensor key;                             // (n_streams*n_embd, n_embd)
    kin_ref_tensor value;                           // (n_embd, n_embd)
    kin_ref_tensor key_norm, query_norm, conv_norm; // (n_streams*n_embd), each
    kin_ref_tensor taps;                            // (n_streams*n_embd, n_taps), the token's own one last
} kin_ref_ngram;

// Returns the name of what is missing or does not fit, or NULL.
const char *kin_ref_ngram_check(const kin_ref_ngram *g, int n_streams, int n_embd);

size_t kin_ref_ngram_scratch_floats(const kin_ref_ngram *g);

// Adds to x // (n_streams, n_embd) what the token ids[pos] and those before give, and writes row pos of `kept`, whose rows
// // (n_streams*n_embd) are `apart` floats apart.
void kin_ref_ngram_step(const kin_ref_ngram *g, int n_embd, float eps, const int *ids, int pos, float *kept, size_t apart,
                        float *scratch, float *x);
