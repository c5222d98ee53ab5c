// Specials: finds the special tokens that are written out in a text.
//
// Longer tokens go first, wherever they stand; each takes its occurrences from the left where nothing is taken yet.
// User-defined tokens are always looked for, control and unknown ones only where the text is trusted. This is llama.cpp's order;
// a vocabulary may have thousands of them, so one pass over the text first finds out which occur at all.
//
// Immutable after new: any thread may search. The vocabulary is borrowed.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/text/vocab.h"

typedef struct kin_specials kin_specials;

typedef struct kin_special_hit {
    size_t begin, end; // the token and, for Phi-3, the white space that it takes
    int32_t id;
} kin_special_hit;

// Fails without memory.
int kin_specials_new(kin_specials **out, const kin_vocab *vocab, kin_err *err);
void kin_specials_free(kin_specials *specials);

// Bytes [begin, end) of a text.
typedef struct kin_text_range {
    size_t begin, end;
} kin_text_range;

// Hits in text [len], in order and apart; the caller frees *hits (NULL if there are none). Control and unknown tokens are looked
// for within each of the ranges trusted [n_trusted], which are in order and apart. Fails without memory.
int kin_specials_search(const kin_specials *specials, const char *text, size_t len, const kin_text_range *trusted,
                        size_t n_trusted, kin_special_hit **hits, size_t *n_hits, kin_err *err);
