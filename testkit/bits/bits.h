// Verifies that all back-ends of the CPU kernels compute the same bits: cases with fixed inputs, and a hash of each result.
//
// The hashes in the table are permanent: a kernel that changes them changes the results of every model. Plain C over base/ and
// kernels/, without a test library, so that it also runs under node and under an emulator (bench/kernel_bits.c).
#pragma once

#include <stdint.h>

#include "kernels/kernels.h"

typedef struct kin_bits_case {
    const char *name;
    uint64_t expected;
    uint64_t (*compute)(const kin_kernels *kernels, int what);
    int what; // passed to compute
} kin_bits_case;

// Returns the i-th case, NULL beyond the last.
const kin_bits_case *kin_bits_at(int i);

// The number of variants of row products to test (kernels/kernels.h): KIN_N_VARIANTS, or less if set.
extern int kin_bits_n_variants;

// Chains hashes of results. All NaNs hash alike: processors do not agree on their bits.
uint64_t kin_bits_hash_f32(const float *x, size_t n, uint64_t seed);
