// Stop words: searches a text for several strings while it is generated.
//
// Text that may be the beginning of a stop word is held back until the next bytes decide. The word that ends first is found; of
// several that end at the same byte, the longest. Stop words are matched in the raw text, before a reply is split into text,
// reasoning and tool calls (reply_parser.h), but not within calls.
//
// Each word has its own table (Knuth, Morris and Pratt), so the time is linear in the text for each word.
//
// Owner: one generation, one thread. Memory: the words, and the largest piece that was pushed.
#pragma once

#include "base/err.h"
#include "base/str.h"

enum {
    KIN_STOP_WORDS_MAX = 64,
    KIN_STOP_WORDS_MAX_BYTES = 1024, // in one word
};

typedef struct kin_stop_words kin_stop_words;

// Copies words [n]. Fails with a sentence on an empty word, beyond the limits, and if memory runs out.
int kin_stop_words_new(kin_stop_words **out, const kin_str *words, size_t n, kin_err *err);
void kin_stop_words_free(kin_stop_words *stop); // NULL is allowed

// Appends text. *before: text that cannot be part of a stop word; valid until the next call. *found: the index of the word that
// was found, or -1; if one was found, *before is the rest of the text before it, and nothing more may be pushed. Returns
// KIN_FAIL if memory runs out; then nothing was consumed.
int kin_stop_words_push(kin_stop_words *stop, const char *at, size_t len, kin_str *before, int *found);

// Does the same for bytes in which no word may begin; one that began before them may go on, or end there.
int kin_stop_words_push_inside(kin_stop_words *stop, const char *at, size_t len, kin_str *before, int *found);

// Ends the text, or a part of it: returns what was held back. No word matches across this point.
kin_str kin_stop_words_flush(kin_stop_words *stop);
