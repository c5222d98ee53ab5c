// Detokenizer: converts token ids to text, one at a time, for output that is shown while it is generated.
//
// A character whose bytes are spread over several tokens is held back until it is complete. Control and unknown tokens print
// nothing by default. For the text of a single token see kin_vocab_piece.
//
// Owner: one generation, one thread. The vocabulary is borrowed. Nothing is allocated after new.
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "pure/tokenizer/vocab.h"

typedef struct kin_detok kin_detok;

enum {                        // flags of kin_detok_new
    KIN_DETOK_TEXT_START = 1, // the ids are a text from its beginning: drop the space that the SPM encoder put before it
    KIN_DETOK_SPECIAL = 2,    // print the text of control and unknown tokens
    KIN_DETOK_REPLACE = 4,    // replace invalid UTF-8 by U+FFFD; without this flag it is passed through
};

int kin_detok_new(kin_detok **out, const kin_vocab *vocab, unsigned flags, kin_err *err);
void kin_detok_free(kin_detok *detok);

// Returns to the beginning, with the same flags.
void kin_detok_reset(kin_detok *detok);

// Returns the text that `id` completes, possibly empty; valid until the next call. id in [0, n_tokens).
kin_str kin_detok_push(kin_detok *detok, int32_t id);

// Ends the text: returns the bytes that were held back, or one U+FFFD for them (KIN_DETOK_REPLACE). Nothing is held afterwards.
kin_str kin_detok_flush(kin_detok *detok);
