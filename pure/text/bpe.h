// BPE: the encoder for byte-level vocabularies, compatible with llama.cpp.
//
// The pre-tokenizer cuts the text into pieces; within each piece, bytes are merged in the order of the vocabulary's merges. A
// run of bytes that is not valid UTF-8 is a separate piece.
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "pure/text/id_sink.h"
#include "pure/text/merger.h"
#include "pure/text/pretokenizer.h"
#include "pure/text/vocab.h"

// Encodes text [len], at most KIN_ENCODE_MAX_BYTES. Fails if memory runs out or the pre-tokenizer fails.
int kin_bpe_encode(const kin_vocab *vocab, const kin_pretokenizer *pre, const char *text, size_t len, kin_merger *merger,
                   kin_id_sink *sink, kin_err *err);
