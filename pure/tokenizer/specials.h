// Specials: finds the special tokens that are spelled out in a text.
//
// Longer tokens are matched first, wherever they stand; each takes its occurrences from left to right where nothing is taken
// yet. This is llama.cpp's order. User-defined tokens are always matched, control and unknown tokens only where the text is
// trusted. A vocabulary may have thousands of special tokens, so one pass over the text first finds out which of them occur at
// all.
//
// Immutable after new: any thread may search. The vocabulary is borrowed.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/tokenizer/vocab.h"

typedef struct kin_specials kin_specials;

typedef struct kin_special_hit {
    size_t begin, end; // the token and, for Phi-3, the white space that belongs to it
    int32_t id;
} kin_special_hit;

// Fails only if memory runs out.
int kin_specials_new(kin_specials **out, const kin_vocab *vocab, kin_err *err);
void kin_specials_free(kin_specials *specials);

// Bytes [begin, end) of a text.
typedef struct kin_text_range {
    size_t begin, end;
} kin_text_range;

// Finds the hits in text [len], in order and disjoint; the caller frees *hits (NULL if there are none). Control and unknown
// tokens are matched only within one of the ranges trusted [n_trusted], which are in order and disjoint. Fails only if memory
// runs out.
int kin_specials_search(const kin_specials *specials, const char *text, size_t len, const kin_text_range *trusted,
                        size_t n_trusted, kin_special_hit **hits, size_t *n_hits, kin_err *err);
