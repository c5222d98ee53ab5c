#include "pure/proto/activations.h"

#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"

#define F32_INFINITY 0x7f800000u
#define F32_ONE_HALF 0x3f000000u
#define F32_F16_LIMIT 0x477ff000u  // 65520: from here on, f16 rounds to infinity
#define F32_F16_NORMAL 0x38800000u // 2^-14: the smallest normal f16
#define F16_INFINITY 0x7c00u
#define F16_QUIET 0x0200u
#define F32_NORMAL 0x1p-126f
#define BF16_NAN 0x7fc0u

// f16: sign 1, exponent 5 (bias 15), fraction 10. f32: sign 1, exponent 8 (bias 127), fraction 23.

static float float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

uint16_t kin_f16_from_f32(uint32_t f32) {
    uint32_t sign = f32 >> 16 & 0x8000, x = f32 & 0x7fffffff, h;
    if (x > F32_INFINITY) {
        h = F16_INFINITY | (x >> 13 & 0x3ff);
        if (h == F16_INFINITY) h |= F16_QUIET; // the upper bits of the NaN's fraction were all zero
    } else if (x >= F32_F16_LIMIT) {
        h = F16_INFINITY;
    } else if (x >= F32_F16_NORMAL) {
        uint32_t odd = x >> 13 & 1;
        h = (x - ((127 - 15) << 23) + 0xfff + odd) >> 13; // a carry correctly increments the exponent
    } else {
        // The sum's last place is 2^-24, the same as that of a subnormal f16, so the addition rounds correctly: to nearest, ties
        // to even, as IEEE 754 does by default.
        h = bits_of(float_of(x) + float_of(F32_ONE_HALF)) - F32_ONE_HALF;
    }
    return (uint16_t)(sign | h);
}

uint32_t kin_f16_to_f32(uint16_t f16) {
    uint32_t sign = (uint32_t)(f16 & 0x8000) << 16, x = f16 & 0x7fff;
    if (x >= F16_INFINITY) return sign | F32_INFINITY | (x & 0x3ff) << 13;
    if (x >= 0x400) return sign | ((x << 13) + ((127 - 15) << 23));
    return sign | bits_of((float)x * 0x1p-24f); // zero or subnormal, exact
}

// True if this machine stores numbers as the wire does: then rows of f32 are copied unchanged.
static int is_little_endian(void) {
    const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first;
}

// ---- q8

// Rounds to the nearest upper half of an f32, ties to even. x must be finite and not negative.
static uint16_t bf16_from_f32(float x) {
    uint32_t bits = bits_of(x);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static int8_t nearest_i8(float x) {
    int q = (int)(x < 0 ? x - 0.5f : x + 0.5f);
    return (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
}

static void encode_q8(uint8_t *to, const float *x) {
    float most = 0;
    bool is_finite = true;
    for (int i = 0; i < KIN_ACTIVATION_Q8_VALUES; i++) {
        uint32_t size = bits_of(x[i]) & 0x7fffffff;
        is_finite = is_finite && size < F32_INFINITY;
        if (size > bits_of(most)) most = float_of(size);
    }
    float scale = most / 127;
    if (!is_finite) {
        kin_put_u16(to, BF16_NAN);
        memset(to + 2, 0, KIN_ACTIVATION_Q8_VALUES);
        return;
    }
    uint16_t half = scale < F32_NORMAL ? 0 : bf16_from_f32(scale);
    float inverse = half ? 1 / float_of((uint32_t)half << 16) : 0;
    kin_put_u16(to, half);
    for (int i = 0; i < KIN_ACTIVATION_Q8_VALUES; i++) to[2 + i] = (uint8_t)nearest_i8(x[i] * inverse);
}

static void decode_q8(float *to, const uint8_t *from) {
    float scale = float_of((uint32_t)kin_get_u16(from) << 16);
    for (int i = 0; i < KIN_ACTIVATION_Q8_VALUES; i++) to[i] = (float)(int8_t)from[2 + i] * scale;
}

// ---- rows

void kin_activations_encode(uint8_t *to, const float *from, size_t n, kin_activation_type type) {
    if (n == 0) return;
    kin_assert(n % kin_activation_unit(type) == 0);
    if (type == KIN_ACTIVATION_Q8) {
        for (size_t i = 0; i < n; i += KIN_ACTIVATION_Q8_VALUES, to += KIN_ACTIVATION_Q8_BYTES) encode_q8(to, from + i);
    } else if (type == KIN_ACTIVATION_F16) {
        for (size_t i = 0; i < n; i++) kin_put_u16(to + 2 * i, kin_f16_from_f32(bits_of(from[i])));
    } else if (is_little_endian()) {
        memcpy(to, from, 4 * n);
    } else {
        for (size_t i = 0; i < n; i++) kin_put_u32(to + 4 * i, bits_of(from[i]));
    }
}

void kin_activations_decode(float *to, const uint8_t *from, size_t n, kin_activation_type type) {
    if (n == 0) return;
    kin_assert(n % kin_activation_unit(type) == 0);
    if (type == KIN_ACTIVATION_Q8) {
        for (size_t i = 0; i < n; i += KIN_ACTIVATION_Q8_VALUES, from += KIN_ACTIVATION_Q8_BYTES) decode_q8(to + i, from);
        return;
    }
    if (type == KIN_ACTIVATION_F32 && is_little_endian()) {
        memcpy(to, from, 4 * n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = type == KIN_ACTIVATION_F16 ? kin_f16_to_f32(kin_get_u16(from + 2 * i)) : kin_get_u32(from + 4 * i);
        memcpy(to + i, &bits, 4);
    }
}

bool kin_activations_are_finite(const float *x, size_t n) {
    uint32_t n_bad = 0;
    for (size_t i = 0; i < n; i++) n_bad += (bits_of(x[i]) & F32_INFINITY) == F32_INFINITY;
    return n_bad == 0;
}
