// How kin handles each key that llama.cpp reads from model files of kin's families (docs/GGUF.md has the same table for readers).
//
// A file with a key that changes the arithmetic in a way kin does not implement is refused; the key is never ignored.
#pragma once

#include "base/err.h"
#include "model/gguf.h"

typedef enum kin_key_use {
    KIN_KEY_USED,     // kin reads it and acts on it
    KIN_KEY_HARMLESS, // its value changes no result of these families
    KIN_KEY_REFUSED,  // the file is refused unless the value is the neutral one
} kin_key_use;

typedef struct kin_key {
    const char *name; // without the family's prefix, except "tokenizer."
    kin_key_use use;
    uint32_t neutral;        // REFUSED: this value and smaller ones have no effect
    bool at_least;           // ... or instead: this value and larger ones
    const char *neutral_key; // ... or instead: the value of that key; NULL: `neutral`
    const char *why;         // REFUSED: completes the sentence "'KEY' is N: "
} kin_key;

// Returns the i-th key, NULL beyond the last.
const kin_key *kin_key_at(int i);

// Fails at the first key whose value kin would not honour. obeyed: keys that this family handles nevertheless, ending with NULL;
// NULL: none.
int kin_keys_check(const kin_gguf *gguf, const char *family, const char *const *obeyed, kin_err *err);

// True if a list that ends with NULL, or is NULL, contains the name.
bool kin_keys_are_listed(const char *const *list, const char *name);
