// BPE: the encoders for vocabularies with ranked merges, compatible with llama.cpp.
//
// In byte-level BPE the pre-tokenizer cuts the text into pieces; within each piece, bytes are merged in the order of the
// vocabulary's merges. A run of bytes that is not valid UTF-8 is a separate piece.
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "pure/tokenizer/id_sink.h"
#include "pure/tokenizer/merger.h"
#include "pure/tokenizer/pretokenizer.h"
#include "pure/tokenizer/vocab.h"

// Encodes text [len], at most KIN_ENCODE_MAX_BYTES. Fails if memory runs out or the pre-tokenizer fails.
int kin_bpe_encode(const kin_vocab *vocab, const kin_pretokenizer *pre, const char *text, size_t len, kin_merger *merger,
                   kin_id_sink *sink, kin_err *err);

// The same for a vocabulary of KIN_VOCAB_SPACED_BPE: spaces become U+2581, and characters are merged within runs of newlines, of
// which a whole one may be a token, and within runs of everything else. Characters that form no token become bytes.
int kin_spaced_bpe_encode(const kin_vocab *vocab, const char *text, size_t len, kin_merger *merger, kin_id_sink *sink,
                          kin_err *err);
