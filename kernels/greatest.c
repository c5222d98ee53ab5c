// The greatest of many scores.
//
// Numbers are kept until there is no room; then all but the n greatest are dropped, and from then on a score that is not above
// the least of these cannot be among the result, because of equal ones the first counts.
#include <string.h>

#include "kernels/kernels.h"

enum {
    DIGIT_BITS = 11, // of a key, three times
    DIGITS = 1 << DIGIT_BITS,
};

// Makes integers of floats, in the same order; of NaN, whose sign depends on the processor, 0.
static uint32_t key_of(float x) {
    uint32_t bits;
    if (x != x) return 0;
    x += 0; // makes 0 of -0
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
}

void kin_greatest_begin(kin_greatest *g, int n) {
    kin_assert(n > 0 && n <= KIN_CHOSEN_MAX);
    g->n = n;
    g->n_held = 0;
    g->is_full = false;
}

// Returns the digit from bit `shift` on that the key with `*rank` others above it has, among the keys whose higher bits are
// those of `prefix`; sets *rank to the others above it that have the same digit.
static uint32_t digit_of_rank(const kin_greatest *g, int shift, uint32_t prefix, int *rank) {
    int counts[DIGITS] = {0};
    const uint64_t above = ~UINT64_C(0) << (shift + DIGIT_BITS);
    for (int i = 0; i < g->n_held; i++)
        if (((g->key[i] ^ prefix) & above) == 0) counts[g->key[i] >> shift & (DIGITS - 1)]++;
    uint32_t digit = DIGITS - 1;
    for (; *rank >= counts[digit]; digit--) *rank -= counts[digit];
    return digit;
}

// Drops all but the n greatest.
static void drop_others(kin_greatest *g) {
    int rank = g->n - 1, n = 0;
    uint32_t least = 0;
    for (int shift = 22; shift >= 0; shift -= DIGIT_BITS) least |= digit_of_rank(g, shift, least, &rank) << shift;
    for (int i = 0, n_equal = 0; i < g->n_held; i++) { // of those equal to the least, the first rank + 1
        if (g->key[i] < least || (g->key[i] == least && n_equal++ > rank)) continue;
        g->at[n] = g->at[i];
        g->key[n++] = g->key[i];
    }
    g->n_held = n;
    g->is_full = true;
    g->least = least;
}

void kin_greatest_add(kin_greatest *g, int32_t first, int n_scores, const float *scores) {
    for (int i = 0; i < n_scores; i++) {
        const uint32_t key = key_of(scores[i]);
        if (g->is_full && key <= g->least) continue;
        if (g->n_held == KIN_GREATEST_ROOM) {
            drop_others(g);
            if (key <= g->least) continue;
        }
        g->at[g->n_held] = first + i;
        g->key[g->n_held++] = key;
    }
}

void kin_greatest_end(kin_greatest *g, int32_t *at) {
    kin_assert(g->n_held >= g->n);
    if (g->n_held > g->n) drop_others(g);
    memcpy(at, g->at, (size_t)g->n * sizeof *at);
}
