// Activations as they travel: rows of f32, f16 or q8, little-endian, packed, at any alignment.
//
// f32 is exact. f16 is rounded to nearest, ties to even; what is too large becomes an infinity, a NaN stays a NaN.
//
// q8 is blocks of 32 values, 34 bytes each:
//   0   u16     scale: the upper half of an f32 (bfloat16)
//   2   i8[32]  a value is its byte times the scale
// The scale is the largest value's distance from 0, over 127. A block with an infinity or a NaN is all NaN. ggml's Q8_0 has an
// f16 there; with bfloat16 small and large blocks are as exact as others, and a block that is encoded again after decoding keeps
// its bytes, so that who passes on what it got passes on the same. Portable C: the same bits on every machine. Plain functions,
// any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum kin_activation_type {
    KIN_ACTIVATION_F32,
    KIN_ACTIVATION_F16,
    KIN_ACTIVATION_Q8,
} kin_activation_type;

enum { KIN_ACTIVATION_N_TYPES = 3, KIN_ACTIVATION_Q8_VALUES = 32, KIN_ACTIVATION_Q8_BYTES = 34 };

// Numbers of values are multiples of this.
static inline size_t kin_activation_unit(kin_activation_type type) {
    return type == KIN_ACTIVATION_Q8 ? KIN_ACTIVATION_Q8_VALUES : 1;
}

// Of n values; never more than as f32.
static inline uint64_t kin_activations_bytes(uint64_t n, kin_activation_type type) {
    if (type == KIN_ACTIVATION_Q8) return n / KIN_ACTIVATION_Q8_VALUES * KIN_ACTIVATION_Q8_BYTES;
    return n * (type == KIN_ACTIVATION_F16 ? 2 : 4);
}

// n values to kin_activations_bytes bytes, and back: any bytes are values. The two must not overlap.
void kin_activations_encode(uint8_t *to, const float *from, size_t n, kin_activation_type type);
void kin_activations_decode(float *to, const uint8_t *from, size_t n, kin_activation_type type);

// Whether none of them is infinite or not a number.
bool kin_activations_are_finite(const float *x, size_t n);

// One value, as bits.
uint16_t kin_f16_from_f32(uint32_t f32);
uint32_t kin_f16_to_f32(uint16_t f16);
