// Token reference: represents a control token among the bytes that a grammar reads.
//
// A control token is not text, but a grammar may require it: <[5]> in GBNF. It is encoded as 0xFF, which never occurs in UTF-8,
// and the id in 3 bytes, big-endian. So grammars, automata and masks handle bytes only, and no text can be mistaken for a
// control token.
#pragma once

#include <stdint.h>

#include "pure/tokenizer/vocab.h"

enum { KIN_TOKEN_REFERENCE_FIRST = 0xff, KIN_TOKEN_REFERENCE_BYTES = 4 };

_Static_assert(KIN_VOCAB_MAX_TOKENS <= 1 << 24, "numbers of tokens fit into 3 bytes");

// id in [0, KIN_VOCAB_MAX_TOKENS).
static inline void kin_token_reference_put(char out[KIN_TOKEN_REFERENCE_BYTES], int32_t id) {
    out[0] = (char)KIN_TOKEN_REFERENCE_FIRST;
    out[1] = (char)(id >> 16);
    out[2] = (char)(id >> 8);
    out[3] = (char)id;
}
