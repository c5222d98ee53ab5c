// Pre-tokenizer: splits a text into the pieces ("words") within which byte-level BPE merges.
//
// Models differ in the regular expressions that they were trained with; a GGUF file only names them (tokenizer.ggml.pre). A
// pre-tokenizer is a list of expressions, applied one after another: each splits every piece of the previous step into its
// matches and the gaps between them. Look-ahead ends at the piece. The expressions are PCRE2, with the Unicode classes of the
// linked PCRE2; white space is Unicode's White_Space, as in llama.cpp.
//
// Immutable after new: any thread may split.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct kin_pretokenizer kin_pretokenizer;

// Properties that llama.cpp associates with the name of a pre-tokenizer.
typedef struct kin_pretokenizer_traits {
    bool ignore_merges; // a piece that is a token is not split further
    bool add_bos;       // unless the file says otherwise
} kin_pretokenizer_traits;

// Returns false, with all traits false, if the name is unknown.
bool kin_pretokenizer_find(const char *name, kin_pretokenizer_traits *traits);

// Fails if the name is unknown; the sentence lists the known ones.
int kin_pretokenizer_new(kin_pretokenizer **out, const char *name, kin_err *err);
void kin_pretokenizer_free(kin_pretokenizer *pre);

// Called for each piece in order; len > 0. Returns 0 to continue, KIN_FAIL (err filled) to stop.
typedef int (*kin_pretokenizer_sink)(void *user, const char *at, size_t len, kin_err *err);

// Splits text [len], which must be valid UTF-8. Fails if the sink fails, if memory runs out, or if PCRE2 reaches one of its
// limits.
int kin_pretokenizer_split(const kin_pretokenizer *pre, const char *text, size_t len, kin_pretokenizer_sink sink, void *user,
                           kin_err *err);
