#include "pure/proto/activations.h"

#include <string.h>

#include "base/bytes.h"

#define F32_INFINITY 0x7f800000u
#define F32_ONE_HALF 0x3f000000u
#define F32_F16_LIMIT 0x477ff000u  // 65520: from here on f16 rounds to infinity
#define F32_F16_NORMAL 0x38800000u // 2^-14: the smallest normal f16
#define F16_INFINITY 0x7c00u
#define F16_QUIET 0x0200u

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
        if (h == F16_INFINITY) h |= F16_QUIET; // the upper bits of a NaN's fraction were all zero
    } else if (x >= F32_F16_LIMIT) {
        h = F16_INFINITY;
    } else if (x >= F32_F16_NORMAL) {
        uint32_t odd = x >> 13 & 1;
        h = (x - ((127 - 15) << 23) + 0xfff + odd) >> 13; // a carry goes into the exponent, as it should
    } else {
        // The sum's last place is 2^-24, that of a subnormal f16: the addition rounds, to nearest even as IEEE 754 does by
        // default.
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

// Whether this machine holds its numbers as the wire does: then rows of f32 are copied as they are.
static int is_little_endian(void) {
    const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first;
}

void kin_activations_encode(uint8_t *to, const float *from, size_t n, kin_activation_type type) {
    if (n == 0) return;
    if (type == KIN_ACTIVATION_F16) {
        for (size_t i = 0; i < n; i++) {
            uint16_t h = kin_f16_from_f32(bits_of(from[i]));
            to[2 * i] = (uint8_t)h;
            to[2 * i + 1] = (uint8_t)(h >> 8);
        }
    } else if (is_little_endian()) {
        memcpy(to, from, 4 * n);
    } else {
        for (size_t i = 0; i < n; i++) kin_put_u32(to + 4 * i, bits_of(from[i]));
    }
}

void kin_activations_decode(float *to, const uint8_t *from, size_t n, kin_activation_type type) {
    if (n == 0) return;
    if (type == KIN_ACTIVATION_F32 && is_little_endian()) {
        memcpy(to, from, 4 * n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = type == KIN_ACTIVATION_F16 ? kin_f16_to_f32(kin_get_u16(from + 2 * i)) : kin_get_u32(from + 4 * i);
        memcpy(to + i, &bits, 4);
    }
}
