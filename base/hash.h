// A fast 64-bit hash for identities and damage detection. Not for secrets: an attacker can make collisions.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Chain calls by passing the last result as `seed`. The same on every machine.
uint64_t kin_hash64(const void *data, size_t n, uint64_t seed);
