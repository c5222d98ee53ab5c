// Activations on the wire: rows of f32, f16 or q8, little-endian, packed, at any alignment.
//
// f32 is exact. f16 is rounded to nearest, ties to even; values that are too large become infinite, a NaN stays a NaN.
//
// q8 consists of blocks of 32 values, 34 bytes each:
//   0   u16     scale: the upper half of an f32 (bfloat16)
//   2   i8[32]  a value is its byte times the scale
// The scale is the largest absolute value divided by 127. A block with an infinity or a NaN becomes all NaN. ggml's Q8_0 has an
// f16 scale; with bfloat16 small and large blocks are as exact as others, and a decoded block that is encoded again has the same
// bytes, so a member that forwards its input does not change it. Portable C: the same bits on every machine. Pure functions, any
// thread.
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

// Returns the unit of numbers of values: they must be multiples of it.
static inline size_t kin_activation_unit(kin_activation_type type) {
    return type == KIN_ACTIVATION_Q8 ? KIN_ACTIVATION_Q8_VALUES : 1;
}

// Returns the bytes of n values; never more than as f32.
static inline uint64_t kin_activations_bytes(uint64_t n, kin_activation_type type) {
    if (type == KIN_ACTIVATION_Q8) return n / KIN_ACTIVATION_Q8_VALUES * KIN_ACTIVATION_Q8_BYTES;
    return n * (type == KIN_ACTIVATION_F16 ? 2 : 4);
}

// Encode n values into kin_activations_bytes bytes, and decode them; any bytes are valid. The two buffers must not overlap.
void kin_activations_encode(uint8_t *to, const float *from, size_t n, kin_activation_type type);
void kin_activations_decode(float *to, const uint8_t *from, size_t n, kin_activation_type type);

// True if no value is infinite or NaN.
bool kin_activations_are_finite(const float *x, size_t n);

// Convert one value, as bits.
uint16_t kin_f16_from_f32(uint32_t f32);
uint32_t kin_f16_to_f32(uint16_t f16);
