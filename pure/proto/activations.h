// Activations as they travel: rows of f32 or f16, little-endian, packed, at any alignment.
//
// f32 is exact. f16 is rounded to nearest, ties to even; what is too large becomes an infinity, a NaN stays a NaN.
// Portable C: the same bits on every machine. Plain functions, any thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef enum kin_activation_type {
    KIN_ACTIVATION_F32,
    KIN_ACTIVATION_F16,
} kin_activation_type;

enum { KIN_ACTIVATION_N_TYPES = 2 };

// Bytes of one value.
static inline size_t kin_activation_size(kin_activation_type type) {
    return type == KIN_ACTIVATION_F16 ? 2 : 4;
}

// n values to n * kin_activation_size(type) bytes, and back. The two must not overlap.
void kin_activations_encode(uint8_t *to, const float *from, size_t n, kin_activation_type type);
void kin_activations_decode(float *to, const uint8_t *from, size_t n, kin_activation_type type);

// One value, as bits.
uint16_t kin_f16_from_f32(uint32_t f32);
uint32_t kin_f16_to_f32(uint16_t f16);
