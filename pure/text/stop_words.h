// Stop words: looks for any of some strings in a text while it is written.
//
// What may be the beginning of a stop word is held back until that is decided. The word that ends first is found; of several that
// end with the same byte the longest. Stop words are bytes of the raw text: they are looked for before a reply is split into
// text, reasoning and tool calls (reply_parser.h), but not inside of calls.
//
// Each word has a table of its own (Knuth, Morris and Pratt): time is linear in the text for each word.
//
// Owner: one generation, one thread. Memory: the words, and the largest piece that was pushed.
#pragma once

#include "base/err.h"
#include "base/str.h"

enum {
    KIN_STOP_WORDS_MAX = 64,
    KIN_STOP_WORDS_MAX_BYTES = 1024, // of one
};

typedef struct kin_stop_words kin_stop_words;

// words [n] are copied. Fails with a sentence on an empty word, beyond the limits, and without memory.
int kin_stop_words_new(kin_stop_words **out, const kin_str *words, size_t n, kin_err *err);
void kin_stop_words_free(kin_stop_words *stop); // NULL is fine

// More of the text. *before: what now is certain to be no part of a stop word; lives until the next call. *found: the number of
// the word that was found, or -1; once one was found, *before is the rest of what comes before it, and nothing more may be
// pushed. Returns 0, or KIN_FAIL without memory: then nothing was taken in.
int kin_stop_words_push(kin_stop_words *stop, const char *at, size_t len, kin_str *before, int *found);

// The end of the text, or of a part of it: what was held back. Words that begin before it do not end behind it.
kin_str kin_stop_words_flush(kin_stop_words *stop);
