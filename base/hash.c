#include "base/hash.h"

#include "base/bytes.h"

// Odd constants from the fractional parts of the golden ratio and of sqrt(2).
#define MIX1 0x9e3779b97f4a7c15u
#define MIX2 0x6a09e667f3bcc909u

// Four independent lanes: a single lane would stall on its own multiplication at every word.
enum { N_LANES = 4 };

static uint64_t mix(uint64_t lane, uint64_t word) {
    lane = (lane ^ word) * MIX1;
    return lane ^ lane >> 29;
}

uint64_t kin_hash64(const void *data, size_t n, uint64_t seed) {
    const uint8_t *p = data;
    uint64_t lanes[N_LANES];
    for (int i = 0; i < N_LANES; i++) lanes[i] = seed + MIX2 * (uint64_t)(i + 1);

    size_t left = n;
    for (; left >= 8 * N_LANES; left -= 8 * N_LANES, p += 8 * N_LANES) {
        for (int i = 0; i < N_LANES; i++) lanes[i] = mix(lanes[i], kin_get_u64(p + 8 * i));
    }
    uint8_t tail[8 * N_LANES] = {0};
    for (size_t i = 0; i < left; i++) tail[i] = p[i];
    for (int i = 0; i < N_LANES; i++) lanes[i] = mix(lanes[i], kin_get_u64(tail + 8 * i));

    uint64_t hash = n;
    for (int i = 0; i < N_LANES; i++) hash = mix(hash, lanes[i]);
    return mix(hash, seed);
}
