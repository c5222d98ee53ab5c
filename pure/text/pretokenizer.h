// Pre-tokenizer: cuts a text into the pieces ("words") within which byte-level BPE merges.
//
// Models differ in the regular expressions they were trained with; a GGUF file only names them (tokenizer.ggml.pre).
// A pre-tokenizer is a list of expressions, applied one after another: each splits every piece of the one before into
// its matches and what lies between them. Lookaheads end at the piece. The expressions are PCRE2's, with Unicode classes
// of the linked PCRE2; white space is Unicode's White_Space, as in llama.cpp.
//
// Immutable after new: any thread may split.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct kin_pretokenizer kin_pretokenizer;

// What llama.cpp ties to a pre-tokenizer's name.
typedef struct kin_pretokenizer_traits {
    bool ignore_merges; // a pre-token that is a token is taken whole
    bool add_bos;       // unless the file says otherwise
} kin_pretokenizer_traits;

// Returns false if the name is not known (traits all false then).
bool kin_pretokenizer_find(const char *name, kin_pretokenizer_traits *traits);

// Fails on a name that is not known; the sentence lists those that are.
int kin_pretokenizer_new(kin_pretokenizer **out, const char *name, kin_err *err);
void kin_pretokenizer_free(kin_pretokenizer *pre);

// Gets each piece in order; len > 0. Returns 0 to go on, KIN_FAIL (err filled) to stop.
typedef int (*kin_pretokenizer_sink)(void *user, const char *at, size_t len, kin_err *err);

// Pieces of text [len], which must be valid UTF-8. Fails if the sink does, without memory, or where PCRE2 hits one of its limits.
int kin_pretokenizer_split(const kin_pretokenizer *pre, const char *text, size_t len, kin_pretokenizer_sink sink, void *user,
                           kin_err *err);
