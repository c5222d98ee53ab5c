#include "model/ngram.h"

#include <stdbool.h>

void kin_ngram_rows(const kin_ngram *n, const int32_t *ids, uint64_t *rows) {
    uint64_t mix = (uint64_t)ids[0] * n->multipliers[0];
    bool has_ended = false;
    for (int k = 1; k < n->size; k++) {
        has_ended = has_ended || ids[k] < 0 || ids[k] == n->eos;
        mix ^= (uint64_t)(has_ended ? n->eos : ids[k]) * n->multipliers[k];
        for (int i = 0; i < n->n_heads; i++) {
            const int head = (k - 1) * n->n_heads + i;
            *rows++ = n->first[head] + mix % n->n_rows[head];
        }
    }
}
