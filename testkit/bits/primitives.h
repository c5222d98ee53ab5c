// Results of every function of kernels/simd/simd.h for fixed inputs, including those at the edges of their contract. Each group
// is one hash; bits/simd/ computes it, once per back-end.
#pragma once

#include <stdint.h>

#include "kernels/backends.h"

typedef enum kin_primitive {
    KIN_PRIMITIVE_FLOATS, // any bits: infinities, subnormals and NaNs
    KIN_PRIMITIVE_HALVES,
    KIN_PRIMITIVE_ROUND,
    KIN_PRIMITIVE_EXP,
    KIN_PRIMITIVE_INTEGERS,
    KIN_PRIMITIVE_BYTES,
    KIN_PRIMITIVE_DOTS,
    KIN_PRIMITIVE_WORDS, // products of bytes with 16-bit integers
} kin_primitive;

#define KIN_PRIMITIVE_BITS(id) uint64_t kin_primitive_bits_##id(kin_primitive which);
KIN_BACKENDS(KIN_PRIMITIVE_BITS)
