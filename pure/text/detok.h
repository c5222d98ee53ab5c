// Detokenizer: token ids to text, one at a time, for output that people read while it is made.
//
// A character whose bytes come in several tokens is held back until it is whole.
// Control and unknown tokens print nothing unless asked for. A vocabulary's single pieces are in vocab.h.
//
// Owner: one generation, one thread. The vocabulary is borrowed. Nothing is allocated after new.
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "pure/text/vocab.h"

typedef struct kin_detok kin_detok;

enum {                        // flags of kin_detok_new
    KIN_DETOK_TEXT_START = 1, // the ids are a text from its beginning: drop the space that SPM's encoder put before it
    KIN_DETOK_SPECIAL = 2,    // print control and unknown tokens as they are written
    KIN_DETOK_REPLACE = 4,    // what is not UTF-8 becomes U+FFFD, so that all output is UTF-8; else it passes as it is
};

int kin_detok_new(kin_detok **out, const kin_vocab *vocab, unsigned flags, kin_err *err);
void kin_detok_free(kin_detok *detok);

// Back to the beginning, with the same flags.
void kin_detok_reset(kin_detok *detok);

// The text that `id` completes, possibly empty; lives until the next call. id in [0, n_tokens).
kin_str kin_detok_push(kin_detok *detok, int32_t id);

// The end: what was held back, as bytes or one U+FFFD. Afterwards nothing is held.
kin_str kin_detok_flush(kin_detok *detok);
