// The indexer of MiniMax M3 for the reference engine: small heads, one for each key/value head, that choose which blocks of
// tokens this head's attention sees.
//
// A token has one key. A block's score for a token and a head is the greatest product of the head's query with the keys of the
// block's tokens up to the token itself. The n_chosen blocks of greatest scores are seen, but the n_local newest ones come before
// all others; of equal scores the first counts as greater. Thread: any.
#pragma once

#include "testkit/ref/indexer.h"

typedef struct kin_ref_block_indexer {
    int n_head, dim;                // 0: all tokens are seen
    int n_block, n_chosen, n_local; // tokens of a block, and numbers of blocks
    kin_ref_tensor q, q_norm;       // (n_head*dim, n_embd), (dim)
    kin_ref_tensor k, k_norm;       // (dim, n_embd), (dim)
} kin_ref_block_indexer;

// Returns the name of a tensor that is missing or does not fit, or NULL.
const char *kin_ref_block_indexer_check(const kin_ref_block_indexer *x, int n_head_kv, int n_embd, int n_rot);

size_t kin_ref_block_indexer_scratch_floats(const kin_ref_block_indexer *x, int n_ctx);

// Writes the token's key, and sets seen // (n_head, pos + 1). cos_sin: of position pos, for the first numbers of queries and
// keys; normed // (n_embd)
void kin_ref_block_indexer_choose(const kin_ref_block_indexer *x, const kin_ref_rope *rope, const float *cos_sin, int pos,
                                  float eps, const float *normed, const kin_ref_indexer_keys *keys, float *scratch, bool *seen);
