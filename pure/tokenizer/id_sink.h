// Output buffer of the encoders: keeps the first `cap` ids and counts all.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "pure/tokenizer/vocab.h"

typedef struct kin_id_sink {
    int32_t *ids; // [cap]
    size_t cap;
    size_t n; // may be more than cap
} kin_id_sink;

static inline void kin_id_sink_put(kin_id_sink *sink, int32_t id) {
    if (id == KIN_TOKEN_NONE) return;
    if (sink->n < sink->cap) sink->ids[sink->n] = id;
    sink->n++;
}
