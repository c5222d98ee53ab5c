// Tokenizer: converts text to token ids, compatible with llama.cpp.
//
// A text is first cut at special tokens; the parts between them are encoded by the vocabulary's kind: SPM merges characters by
// score, BPE splits into pre-tokens (pretokenizer.h) and merges bytes by rank.
//
// Immutable after new: any number of threads may encode at once; each call allocates and frees its own memory. The time is O(n
// log n) in the length of any text; measured rates are in tokenizer.c. The vocabulary is borrowed and must outlive the
// tokenizer.
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "pure/tokenizer/specials.h"
#include "pure/tokenizer/vocab.h"

typedef struct kin_tokenizer kin_tokenizer;

#define KIN_ENCODE_MAX_BYTES (1u << 30) // length of the text in one call

enum {                            // flags of kin_tokenizer_encode
    KIN_ENCODE_ADD_SPECIAL = 1,   // add bos before and eos after, if the vocabulary says so
    KIN_ENCODE_PARSE_SPECIAL = 2, // "<|im_end|>" in the text becomes that token. Not for user input
};

// Fails if the pre-tokenizer is unknown (the sentence lists the known ones).
int kin_tokenizer_new(kin_tokenizer **out, const kin_vocab *vocab, kin_err *err);
void kin_tokenizer_free(kin_tokenizer *tokenizer);

// Writes the first `cap` ids to ids [cap] and returns the total number of ids (may be more than cap), or KIN_FAIL. ids may be
// NULL if cap is 0. The text may contain NULs and need not be UTF-8: every byte is preserved if the vocabulary has byte tokens
// (llama.cpp's BPE replaces bad bytes by U+FFFD).
int64_t kin_tokenizer_encode(const kin_tokenizer *tokenizer, const char *text, size_t len, unsigned flags, int32_t *ids,
                             size_t cap, kin_err *err);

// The same for a prompt that contains user input: only the ranges trusted [n_trusted], in order and disjoint, may spell control
// tokens. The ranges do not affect merging.
int64_t kin_tokenizer_encode_prompt(const kin_tokenizer *tokenizer, const char *text, size_t len, const kin_text_range *trusted,
                                    size_t n_trusted, bool add_special, int32_t *ids, size_t cap, kin_err *err);
