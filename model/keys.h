// What kin does with each key that llama.cpp reads from model files of kin's families (docs/GGUF.md is the same table for
// people).
//
// A file that says something of its arithmetic which kin would not compute is refused, never computed without it.
#pragma once

#include "base/err.h"
#include "model/gguf.h"

typedef enum kin_key_use {
    KIN_KEY_USED,     // kin reads it and acts on it
    KIN_KEY_HARMLESS, // what it says changes no result of these families
    KIN_KEY_REFUSED,  // the file is refused unless the value is the neutral one
} kin_key_use;

typedef struct kin_key {
    const char *name; // without the family's prefix, but for "tokenizer."
    kin_key_use use;
    uint32_t neutral;        // REFUSED: this value and those below it say nothing
    bool at_least;           // ... instead this one and those above it
    const char *neutral_key; // ... instead the value of that key; NULL: `neutral`
    const char *why;         // REFUSED: the rest of "'KEY' is N: "
} kin_key;

// The i-th of them, NULL beyond the last.
const kin_key *kin_key_at(int i);

// Fails with a sentence at the first key whose value kin would not obey. obeyed: keys that this family obeys all the same, up to
// a NULL; NULL: none.
int kin_keys_check(const kin_gguf *gguf, const char *family, const char *const *obeyed, kin_err *err);
