// Rows of random weights in any of ggml's types: the stuff of generated models.
//
// A weight is close to gaussian with a standard deviation of 1/sqrt(n_in), so that a matrix keeps the size of its input
// and activations stay sane through any number of layers. Everything follows from seeds: the same seed, the same bytes.
//
// Quantizing is slow (about 10 million weights/s for Q4_K), so a large model takes its weights from a pool: pieces of up to
// 256 weights are quantized once, and every row is put together from pieces drawn at random. Rows still all differ
// (8 pieces out of 16384 in a row of 2048), which rows drawn as a whole would not: equal rows of an output matrix are
// equal logits. Blocks of all types stand for themselves, so pieces may be put together freely. Blocks of types with a code book
// (IQ1, IQ2, IQ3) are random bits and a scale: their weights are those of the book, not gaussian.
//
// Thread: rows are made by any number of threads at once, nothing mutates after new.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct kin_random_rows kin_random_rows;

// A row has n_in weights of a ggml type that can be quantized to, in whole blocks.
kin_random_rows *kin_random_rows_new(int type, int64_t n_in, bool pooled, uint64_t seed);
void kin_random_rows_free(kin_random_rows *rows);

// Rows [row_begin, row_begin + n_rows) of the matrix that `seed` stands for: out // ggml bytes of [n_rows, n_in]
void kin_random_rows_fill(const kin_random_rows *rows, uint64_t seed, uint64_t row_begin, uint64_t n_rows, uint8_t *out);

// n numbers with the mean 0 and the standard deviation `scale`.
void kin_random_gaussian(uint64_t seed, float scale, int64_t n, float *out);

// A seed from two.
uint64_t kin_random_mix(uint64_t a, uint64_t b);
