// SPM: the encoder for SentencePiece vocabularies, compatible with llama.cpp.
//
// Characters are joined, the pair with the best score of its joint token first; characters that form no token become bytes.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "pure/tokenizer/id_sink.h"
#include "pure/tokenizer/merger.h"
#include "pure/tokenizer/vocab.h"

// True if no token contains a space after another character. Then no join crosses the beginning of a word, and words can be
// encoded one by one with the same result: small heaps in cache instead of one over the whole text.
bool kin_spm_words_are_independent(const kin_vocab *vocab);

// Writes the text with every space as U+2581, which takes 3 bytes (KIN_SPM_SPACE_LEN), and one before it if space_first; returns
// the length.
size_t kin_spm_escape(char *out, bool space_first, const char *text, size_t len);

// Returns the length of the first character; an invalid byte is a character.
size_t kin_spm_character_len(const char *at, size_t n);

// Encodes text [len], at most KIN_ENCODE_MAX_BYTES, with a space before it if space_first. Fails if memory runs out.
int kin_spm_encode(const kin_vocab *vocab, bool by_words, bool space_first, const char *text, size_t len, kin_merger *merger,
                   kin_id_sink *sink, kin_err *err);
