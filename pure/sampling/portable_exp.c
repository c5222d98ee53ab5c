#include "pure/sampling/portable_exp.h"

#include <float.h>
#include <stdint.h>

#include "base/err.h"

_Static_assert(FLT_EVAL_METHOD == 0, "doubles must be computed as doubles");

// 2^(i/32), with 31 bits after the point.
static const uint32_t powers[32] = {
    0x80000000, 0x82cd8699, 0x85aac368, 0x88980e81, 0x8b95c1e4, 0x8ea4398b, 0x91c3d374, 0x94f4efa9,
    0x9837f052, 0x9b8d39ba, 0x9ef53261, 0xa2704303, 0xa5fed6aa, 0xa9a15ab5, 0xad583eea, 0xb123f582,
    0xb504f334, 0xb8fbaf47, 0xbd08a39f, 0xc12c4cca, 0xc5672a11, 0xc9b9bd86, 0xce248c15, 0xd2a81d92,
    0xd744fccb, 0xdbfbb798, 0xe0ccdeec, 0xe5b906e7, 0xeac0c6e8, 0xefe4b99c, 0xf5257d15, 0xfa83b2db,
};

// 2^g for g in [0, 1/32), both with 32 bits after the point: a Taylor series with a remainder below 2^-34.
static uint64_t small_power(uint64_t g) {
    uint64_t p = 0x0276556e; // ln(2)^4 / 4!
    p = 0x0e35846c + (p * g >> 32);
    p = 0x3d7f7bff + (p * g >> 32);
    p = 0xb17217f8 + (p * g >> 32);
    return 0x100000000 + (p * g >> 32);
}

// x = ln(2) (n + i/32 + g), so e^x = 2^n 2^(i/32) 2^g. Floating point is used for multiplications only, so there is nothing to
// fuse; the additions are integer additions.
double kin_portable_exp(double x) {
    if (x < -660) return 0; // the scale below must be a normal number
    kin_assert(x <= 0);
    int64_t t = (int64_t)(x * 1.4426950408889634 * 0x1p37); // log2(e) x with 37 bits after the point, rounded towards 0
    int64_t n = t >> 37;
    uint64_t fraction = (uint64_t)t & 0x1fffffffff;
    uint64_t mantissa = powers[fraction >> 32] * (small_power((fraction & 0xffffffff) >> 5) >> 1); // 62 bits after the point
    union {
        uint64_t bits;
        double value;
    } scale = {.bits = (uint64_t)(1023 - 62 + n) << 52};
    return (double)mantissa * scale.value;
}
