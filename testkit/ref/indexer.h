// The indexer of latent attention for the reference engine: small heads that choose which tokens attention sees. That of DeepSeek
// V4 chooses compressed rows, and makes their keys otherwise (compressed.h).
//
// A token has one key. A position's score for a token is the sum over the heads h of w_h max(0, q_h . k), and the n_chosen
// positions of greatest scores are seen; of equal ones the first counts as greater.
//
// Or whole pools of n_pool tokens have keys, in each column a mean of those of their tokens, weighted by a softmax of gates. Then
// the n_chosen pools of greatest scores are seen, and all tokens after the last whole pool. Thread: any.
#pragma once

#include "testkit/ref/rope.h"
#include "testkit/ref/tensor.h"

typedef struct kin_ref_indexer {
    int n_head, dim, n_chosen;     // 0: all positions are seen
    int n_pool;                    // 0: there are no pools
    kin_ref_tensor gate, place;    // (dim, n_embd), and (n_pool, dim), which is added to its products; only with pools
    kin_ref_tensor q;              // (n_head*dim, n_query), of the latent of attention's queries
    kin_ref_tensor weights;        // (n_head, n_embd)
    kin_ref_rope_kind rope;        // of queries and keys, whose first numbers rotate
    float eps;                     // of the keys' norm, which subtracts the mean
    kin_ref_tensor k;              // (dim, n_embd)
    kin_ref_tensor k_norm, k_bias; // (dim), each
} kin_ref_indexer;

// Returns the name of a tensor that is missing or does not fit, or NULL.
const char *kin_ref_indexer_check(const kin_ref_indexer *x, int n_query, int n_embd, int n_rot);

size_t kin_ref_indexer_scratch_floats(const kin_ref_indexer *x, int n_ctx);

// The floats that are kept of a token: its key; with pools the key of the pool of the token's number, the token's own, and gates.
size_t kin_ref_indexer_kept_floats(const kin_ref_indexer *x);

typedef struct kin_ref_indexer_keys {
    float *keys; // (n_ctx, kept floats), rows `apart` floats apart
    size_t apart;
    bool rounds; // to float16
} kin_ref_indexer_keys;

// Sets the n_chosen greatest of the scores // (n); of equal ones the first counts as greater. chosen // (n)
void kin_ref_choose_greatest(const float *scores, int n, int n_chosen, bool *chosen);

// Sets seen // (n) for n keys. q // (n_head, dim), weights // (n_head); scores // (n), scratch
void kin_ref_indexer_see(const kin_ref_indexer *x, const float *q, const float *weights, const kin_ref_indexer_keys *keys, int n,
                         float *scores, bool *seen);

// Writes the token's key, and sets seen // (pos + 1). rope NULL: nothing rotates; cos_sin: of position pos; low // (n_query),
// normed // (n_embd)
void kin_ref_indexer_choose(const kin_ref_indexer *x, const kin_ref_rope *rope, const float *cos_sin, int pos, const float *low,
                            const float *normed, const kin_ref_indexer_keys *keys, float *scratch, bool *seen);
