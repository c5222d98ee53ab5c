#include "pure/plan/expert_counts.h"

#include <math.h>
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
