// Rows of random weights in any of ggml's types, for generated models.
//
// Weights are close to gaussian with a standard deviation of 1/sqrt(n_in), so that a matrix keeps the size of its input and
// activations stay in range through any number of layers. Everything is determined by seeds: the same seed gives the same bytes.
//
// Drawing and rounding take time (60 million weights/s for Q4_K), so a large model takes its weights from a pool: pieces of up
// to 256 weights are quantized once, and every row is composed of randomly drawn pieces. So rows still differ (8 pieces out of
// 16384 in a row of 2048); if whole rows were drawn, equal rows of an output matrix would give equal logits. Blocks of all types
// are self-contained, so pieces can be combined freely. Blocks of types with a code book (IQ1, IQ2, IQ3) are random bits and a
// scale: their weights come from the book and are not gaussian. Q4_K, Q5_K and Q6_K: see k_rounding.h.
//
// Thread: any number of threads may make rows at once; nothing changes after new.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kin_random_rows kin_random_rows;

// Prepares rows of n_in weights, in whole blocks, of a ggml type that can be quantized to.
kin_random_rows *kin_random_rows_new(int type, int64_t n_in, bool pooled, uint64_t seed);
void kin_random_rows_free(kin_random_rows *rows);

size_t kin_random_rows_bytes(const kin_random_rows *rows); // of a row

// Writes rows [row_begin, row_begin + n_rows) of the matrix identified by `seed`: out // ggml bytes of [n_rows, n_in]
void kin_random_rows_fill(const kin_random_rows *rows, uint64_t seed, uint64_t row_begin, uint64_t n_rows, uint8_t *out);

// Writes n numbers with mean 0 and standard deviation `scale`.
void kin_random_gaussian(uint64_t seed, float scale, int64_t n, float *out);

// Combines two seeds into one.
uint64_t kin_random_mix(uint64_t a, uint64_t b);
