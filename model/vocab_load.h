// Loads the vocabulary of a GGUF file: reads the tokenizer.ggml.* keys and builds a kin_vocab (pure/tokenizer/vocab.h).
//
// Missing keys get llama.cpp's defaults: a "gpt2" vocabulary without tokenizer.ggml.pre gets the pre-tokenizer "default", and
// special ids out of range are ignored. The result owns its bytes; the file may be closed.
#pragma once

#include "base/err.h"
#include "model/gguf.h"
#include "pure/tokenizer/vocab.h"

// Fails if the file has no tokenizer, one of a kind other than "llama" and "gpt2", or a malformed one.
int kin_vocab_load(kin_vocab **out, const kin_gguf *gguf, kin_err *err);
