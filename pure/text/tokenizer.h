// Tokenizer: text to token ids, as llama.cpp does it.
//
// A text is first cut at special tokens; what lies between is encoded by the vocabulary's kind:
// SPM merges characters by score, BPE splits into pre-tokens (pretokenizer.h) and merges bytes by rank.
//
// Immutable after new: any number of threads may encode at once; what a call needs it allocates and frees.
// Time is O(n log n) in the text's length, whatever the text; the measured rates stand in tokenizer.c.
// The vocabulary is borrowed and must outlive the tokenizer.
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "pure/text/specials.h"
#include "pure/text/vocab.h"

typedef struct kin_tokenizer kin_tokenizer;

#define KIN_ENCODE_MAX_BYTES (1u << 30) // of text in one call

enum {                            // flags of kin_tokenizer_encode
    KIN_ENCODE_ADD_SPECIAL = 1,   // bos before and eos after, where the vocabulary says so
    KIN_ENCODE_PARSE_SPECIAL = 2, // "<|im_end|>" in the text is that token, not its letters. Not for text that a user wrote
};

// Fails on a pre-tokenizer that is not known (the sentence lists those that are).
int kin_tokenizer_new(kin_tokenizer **out, const kin_vocab *vocab, kin_err *err);
void kin_tokenizer_free(kin_tokenizer *tokenizer);

// Writes the first `cap` ids to ids [cap] and returns how many there are in all (may be more than cap), or KIN_FAIL.
// ids may be NULL if cap is 0. The text may hold NULs and need not be UTF-8: no byte of it gets lost if the
// vocabulary can write single bytes (differs from llama.cpp's BPE, which replaces bad bytes by U+FFFD).
int64_t kin_tokenizer_encode(const kin_tokenizer *tokenizer, const char *text, size_t len, unsigned flags, int32_t *ids,
                             size_t cap, kin_err *err);

// The same for a text of which only the ranges trusted [n_trusted], in order and apart, may spell control tokens: a prompt of
// which a user wrote parts. What is merged does not depend on the ranges.
int64_t kin_tokenizer_encode_prompt(const kin_tokenizer *tokenizer, const char *text, size_t len, const kin_text_range *trusted,
                                    size_t n_trusted, bool add_special, int32_t *ids, size_t cap, kin_err *err);
