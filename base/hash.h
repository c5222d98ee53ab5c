// A fast 64-bit hash for identities and for detecting damage. Not for secrets: an attacker can construct collisions.
#pragma once

#include <stddef.h>
#include <stdint.h>

// To chain calls, pass the previous result as `seed`. The result is the same on every machine.
uint64_t kin_hash64(const void *data, size_t n, uint64_t seed);
