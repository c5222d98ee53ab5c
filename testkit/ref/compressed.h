// Attention of DeepSeek V4 for the reference engine, one token at a time.
//
// Of each token there is one row for all heads, which is key and value. A token sees the rows of the last `window` tokens, and a
// compressed row of each whole block of `ratio` tokens: each of its numbers is a mean of products of the block's tokens, weighted
// by a softmax of other products. Such rows may also be made of the block before: then products are twice as wide, and the first
// half is what the next block reads. The last n_rot numbers of rows rotate, those of a compressed row as at its block's first
// token; in the heads' results they are rotated back. An indexer may choose which compressed rows are seen; their keys for it are
// made like the rows themselves. Thread: any.
#pragma once

#include "testkit/ref/indexer.h"
#include "testkit/ref/rope.h"
#include "testkit/ref/tensor.h"

// Makes a row of each block.
typedef struct kin_ref_compressor {
    int dim;                  // 0: there is none
    kin_ref_tensor row, gate; // (dim or 2*dim, n_embd); and so are
    kin_ref_tensor place;     // (ratio, dim or 2*dim), added to the gates, and
    kin_ref_tensor norm;      // (dim)
} kin_ref_compressor;

typedef struct kin_ref_compressed {
    int n_head, dim, n_rot, window, n_group; // 0: the layer is another one
    int ratio;                               // 0: there are no compressed rows
    kin_ref_tensor q_a, q_norm, q_b;         // (n_query, n_embd), (n_query), (n_head*dim, n_query)
    kin_ref_tensor kv, kv_norm;              // (dim, n_embd), (dim)
    kin_ref_tensor sinks;                    // (n_head)
    kin_ref_compressor rows;                 // whose dim is dim
    kin_ref_compressor keys;                 // of the indexer
    kin_ref_indexer indexer;                 // of compressed rows, without k, k_norm and k_bias; n_head 0: all are seen
    kin_ref_tensor out_a;                    // (n_group*n_rank, n_head*dim / n_group): n_rank rows for each group of heads
    kin_ref_tensor out_b;                    // (n_embd, n_group*n_rank)
} kin_ref_compressed;

// Returns the name of a tensor that is missing or does not fit, or NULL.
const char *kin_ref_compressed_check(const kin_ref_compressed *c, int n_embd);

// The floats of the scratch of a step in a context of n_ctx tokens, and of what is kept of a token's products.
size_t kin_ref_compressed_scratch_floats(const kin_ref_compressed *c, int n_ctx);
size_t kin_ref_compressed_kept_floats(const kin_ref_compressed *c);

typedef struct kin_ref_compressed_token {
    int pos;
    const kin_ref_rope *rope;
    bool *seen;  // (n_ctx), scratch: compressed rows
    float eps;   // of the norms
    bool rounds; // rows, and the products that compressed rows are made of, are rounded to float16
} kin_ref_compressed_token;

typedef struct kin_ref_compressed_cache {
    float *rows;   // (n_ctx, dim)
    float *blocks; // (n_ctx / ratio, dim)
    float *kept;   // (n_ctx, kept_apart)
    size_t kept_apart;
} kin_ref_compressed_cache;

// Computes out // (n_embd) for the token's normed x // (n_embd), and its part of the cache.
void kin_ref_compressed_step(const kin_ref_compressed *c, const kin_ref_compressed_token *token, const float *x,
                             const kin_ref_compressed_cache *cache, float *scratch, float *out);
