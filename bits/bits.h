// The proof that all back-ends of the CPU kernels compute the same bits: cases with fixed inputs, and a hash of what they result
// in.
//
// The hashes stand in the table below for good: a kernel that changes them changes what every model computes. Plain C over base/
// and kernels/, without a test library, so that it runs under node and under an emulator too (bench/kernel_bits.c).
#pragma once

#include <stdint.h>

#include "kernels/kernels.h"

typedef struct kin_bits_case {
    const char *name;
    uint64_t expected;
    uint64_t (*compute)(const kin_kernels *kernels, int what);
    int what; // an argument of compute
} kin_bits_case;

// The i-th case, NULL beyond the last.
const kin_bits_case *kin_bits_at(int i);

// Rows are multiplied in so many of the ways to do that (kernels/kernels.h). KIN_N_WAYS, unless it is set to less.
extern int kin_bits_n_ways;

// Chains hashes of results. All values that are not numbers count as one: their bits are no processor's promise.
uint64_t kin_bits_hash_f32(const float *x, size_t n, uint64_t seed);
