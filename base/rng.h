// Random numbers that are the same on every machine: xoshiro256** (Blackman and Vigna), seeded through splitmix64.
//
// For sampling and for tests, never for keys or anything that an attacker must not guess.
// Plain data: copy it to fork a stream. Owner: the holder; not safe to share between threads.
#pragma once

#include <stdint.h>

typedef struct kin_rng {
    uint64_t s[4]; // never all zero
} kin_rng;

// Every seed gives a good stream, including 0; seeds that are close together give unrelated streams.
void kin_rng_seed(kin_rng *rng, uint64_t seed);

// Uniform over all 64-bit numbers.
uint64_t kin_rng_u64(kin_rng *rng);

// Uniform over [0, 1): the 2^53 multiples of 2^-53, exact in IEEE doubles.
double kin_rng_unit(kin_rng *rng);
