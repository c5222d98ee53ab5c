#include "pure/plan/expert_counts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

static const char magic[8] = {'k', 'i', 'n', 'e', 'x', 'p', 'c', '1'};

enum { HEADER_BYTES = 24, HASH_BYTES = 8 };

static const float SCALE = 32;

static size_t n_counts(int n_layer, int n_expert) {
    return (size_t)n_layer * (size_t)n_expert;
}

size_t kin_expert_counts_bytes(int n_layer, int n_expert) {
    return HEADER_BYTES + 2 * n_counts(n_layer, n_expert) + HASH_BYTES;
}

static void encode_header(const kin_expert_counts *c, uint8_t header[HEADER_BYTES]) {
    memcpy(header, magic, sizeof magic);
    kin_put_u64(header + 8, c->model);
    kin_put_u32(header + 16, (uint32_t)c->n_layer);
    kin_put_u32(header + 20, (uint32_t)c->n_expert);
}

void kin_expert_counts_encode(const kin_expert_counts *c, uint8_t *to) {
    const size_t n = n_counts(c->n_layer, c->n_expert), hashed = HEADER_BYTES + 2 * n;
    encode_header(c, to);
    for (size_t i = 0; i < n; i++) {
        const float scaled = roundf(c->counts[i] * SCALE);
        kin_put_u16(to + HEADER_BYTES + 2 * i, scaled < UINT16_MAX ? (uint16_t)scaled : UINT16_MAX);
    }
    kin_put_u64(to + hashed, kin_hash64(to, hashed, 0));
}

int kin_expert_counts_decode(kin_expert_counts *c, const uint8_t *bytes, size_t n, kin_err *err) {
    uint8_t expected[HEADER_BYTES];
    encode_header(c, expected);
    if (n < sizeof magic || memcmp(bytes, magic, sizeof magic) != 0)
        return kin_err_set(err, "counts of experts: another format or version");
    if (n < HEADER_BYTES || memcmp(bytes, expected, HEADER_BYTES) != 0)
        return kin_err_set(err, "counts of experts: of another model");
    const size_t hashed = n - HASH_BYTES;
    if (n != kin_expert_counts_bytes(c->n_layer, c->n_expert) || kin_get_u64(bytes + hashed) != kin_hash64(bytes, hashed, 0))
        return kin_err_set(err, "counts of experts: damaged");
    for (size_t i = 0; i < n_counts(c->n_layer, c->n_expert); i++)
        c->counts[i] = (float)kin_get_u16(bytes + HEADER_BYTES + 2 * i) / SCALE;
    return 0;
}

// ---- predicting hits

static const double LEAST_MEAN = 1; // uses of the mean expert

// Appends a layer's counts, drawn to their mean. Returns how many; 0: it has too few.
static size_t add_layer(const float *counts, int n_expert, double *to) {
    double mean = 0, variance = 0;
    for (int i = 0; i < n_expert; i++) mean += counts[i] / n_expert;
    for (int i = 0; i < n_expert; i++) variance += (counts[i] - mean) * (counts[i] - mean) / n_expert;
    if (mean < LEAST_MEAN) return 0;
    const double kept = variance > mean ? 1 - mean / variance : 0;
    for (int i = 0; i < n_expert; i++) to[i] = fmax(0, mean + kept * (counts[i] - mean)) / mean;
    return (size_t)n_expert;
}

static int largest_first(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

// The sum of the first `n` numbers; a part of the last one if n is not whole.
static double sum_of(const double *numbers, double n) {
    double sum = 0;
    for (size_t i = 0; (double)i < n; i++) sum += numbers[i] * fmin(1, n - (double)i);
    return sum;
}

int kin_expert_counts_hits(const kin_expert_counts *c, const double *in_memory, double *hits, int n, kin_err *err) {
    double *sorted = malloc((n_counts(c->n_layer, c->n_expert) + 1) * sizeof *sorted);
    size_t n_known = 0;
    if (!sorted) return kin_err_set(err, "out of memory");
    for (int il = 0; il < c->n_layer; il++)
        n_known += add_layer(c->counts + n_counts(il, c->n_expert), c->n_expert, sorted + n_known);
    qsort(sorted, n_known, sizeof *sorted, largest_first);
    const double all = sum_of(sorted, (double)n_known);
    for (int i = 0; i < n && n_known > 0; i++) {
        kin_assert(in_memory[i] >= 0 && in_memory[i] <= 1);
        hits[i] = sum_of(sorted, in_memory[i] * (double)n_known) / all;
    }
    free(sorted);
    return n_known > 0 ? 0 : KIN_ABSENT;
}
