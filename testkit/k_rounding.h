// Rounds weights to the types Q4_K, Q5_K and Q6_K of ggml, for generated models. The scales follow from the largest and smallest
// weights of a block. ggml searches for those with the least error, which takes eight times as long; here the error is larger by
// a tenth or less, which does not matter for random weights.
//
// Blocks of 256 weights, with d and dmin in F16, all scales s and minima m in blocks of their own:
//
//   Q4_K, Q5_K   w = d s q - dmin m    d, dmin, 8 s and 8 m of 6 bits, [Q5_K: the fifth bits of 256 q,] the lower 4 bits of 256 q
//   Q6_K         w = d s (q - 32)      the lower 4 bits of 256 q, the upper 2 bits, 16 s of 8 bits (signed), d
//
// Pure. Thread: any. The same bytes on every machine.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// True for the types that kin_k_rounding_fill writes.
bool kin_k_rounding_has(int type);

// Writes n weights, whole blocks: x // f32 [n] -> out // ggml bytes of [n]
void kin_k_rounding_fill(int type, const float *x, int64_t n, uint8_t *out);
