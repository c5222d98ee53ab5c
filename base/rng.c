#include "base/rng.h"

static uint64_t rotate_left(uint64_t x, int k) {
    return x << k | x >> (64 - k);
}

static uint64_t splitmix64(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void kin_rng_seed(kin_rng *rng, uint64_t seed) {
    for (int i = 0; i < 4; i++) rng->s[i] = splitmix64(&seed); // four outputs in a row are never all zero
}

uint64_t kin_rng_u64(kin_rng *rng) {
    uint64_t *s = rng->s;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double kin_rng_unit(kin_rng *rng) {
    return (double)(kin_rng_u64(rng) >> 11) * 0x1p-53;
}
