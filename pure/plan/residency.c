#include "pure/plan/residency.h"

#include <string.h>

// Reverses the low `bits` bits of i. Counting up then visits an interval ever more finely, evenly at every stage (the van der
// Corput sequence).
static uint32_t reverse_bits(uint32_t i, unsigned bits) {
    uint32_t r = 0;
    for (unsigned b = 0; b < bits; b++) r |= (i >> b & 1) << (bits - 1 - b);
    return r;
}

// Writes the blocks of [begin, end) that have bytes, evenly spread. Returns how many these are.
static size_t spread(const uint64_t *bytes, size_t begin, size_t end, uint32_t *order) {
    unsigned bits = 0;
    size_t n_order = 0;
    while (((size_t)1 << bits) < end - begin) bits++;
    for (uint32_t i = 0; i < (uint32_t)1 << bits; i++) {
        size_t block = begin + reverse_bits(i, bits);
        if (block < end && bytes[block] > 0) order[n_order++] = (uint32_t)block;
    }
    return n_order;
}

void kin_residency_order(const uint64_t *bytes, size_t n, size_t n_first, uint32_t *order) {
    if (n == 0) return;
    size_t n_order = spread(bytes, 0, n_first, order);
    n_order += spread(bytes, n_first, n, order + n_order);
    for (uint32_t block = 0; block < n; block++) {
        if (bytes[block] == 0) order[n_order++] = block;
    }
}

uint64_t kin_residency_choose(const uint64_t *bytes, size_t n, const uint32_t *order, uint64_t budget, bool *resident) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        resident[i] = true;
        sum += bytes[i];
    }
    size_t n_left = 0;
    while (sum > budget) {
        resident[order[n_left]] = false;
        sum -= bytes[order[n_left++]];
    }
    while (n_left > 0) {
        uint32_t block = order[--n_left];
        if (sum + bytes[block] > budget) continue;
        resident[block] = true;
        sum += bytes[block];
    }
    return sum;
}
