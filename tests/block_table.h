// For tests of the block table (engine/kv/blocks.h): a step of n tokens of a sequence, and a change of one.
#pragma once

#include "engine/kv/blocks.h"
#include "tests/place.h"

static inline void append(kin_kv_blocks *b, int32_t seq, int n) {
    kin_err err;
    int64_t cell;
    kin_kv_blocks_begin_step(b);
    for (int i = 0; i < n; i++)
        if (kin_kv_blocks_append(b, seq, kin_kv_blocks_n_tokens(b, seq), &cell, &err) != 0) fail_msg("%s", err.text);
}
#define append(...) FROM_TEST(append(__VA_ARGS__))

static inline int apply(kin_kv_blocks *b, int32_t seq, int32_t from, int32_t n) {
    kin_err err;
    kin_kv_copy copy;
    return kin_kv_blocks_apply(b, &(kin_kv_op){seq, from, n}, &copy, &err);
}
