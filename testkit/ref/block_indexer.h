// The indexers of MiniMax M3 and of Qwen3.8-Flash-Next for the reference engine: small heads that choose which blocks of tokens
// attention sees; in MiniMax M3 each key/value head has one of its own.
//
// A token has one key. A block's score for a token and a head is the greatest product of the head's query with the keys of the
// block's tokens up to the token itself. The n_chosen blocks of greatest scores are seen, but the n_local newest ones come before
// all others; of equal scores the first counts as greater.
//
// With `pools` a whole block has one key, the mean of its tokens', then normalised and rotated as at its first token. Its score
// is the sum of the heads' products with it that are above 0. The n_chosen whole blocks of greatest scores are seen, and the
// tokens after the last whole block. Thread: any.
#pragma once

#include "testkit/ref/indexer.h"

typedef struct kin_ref_block_indexer {
    int n_head, dim;                // 0: all tokens are seen
    int n_block, n_chosen, n_local; // tokens of a block, and numbers of blocks
    bool pools;
    kin_ref_tensor q, q_norm; // (n_head*dim, n_embd), (dim)
    kin_ref_tensor k, k_norm; // (dim, n_embd), (dim)
} kin_ref_block_indexer;

// Returns the name of a tensor that is missing or does not fit, or NULL.
const char *kin_ref_block_indexer_check(const kin_ref_block_indexer *x, int n_head_kv, int n_embd, int n_rot);

size_t kin_ref_block_indexer_scratch_floats(const kin_ref_block_indexer *x, int n_ctx);

// Returns the numbers that are kept of a token: its key, with `pools` followed by that of the block that it ends.
static inline int kin_ref_block_indexer_width(const kin_ref_block_indexer *x) {
    return x->pools ? 2 * x->dim : x->dim;
}

// Writes the token's key, and sets seen // (n_head, pos + 1), with `pools` (pos + 1). cos_sin: of position pos, for the first
// numbers of queries and keys; normed // (n_embd)
void kin_ref_block_indexer_choose(const kin_ref_block_indexer *x, const kin_ref_rope *rope, const float *cos_sin, int pos,
                                  float eps, const float *normed, const kin_ref_indexer_keys *keys, float *scratch, bool *seen);
