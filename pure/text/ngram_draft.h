// Drafts by n-gram lookup: where the text's last tokens occurred before, what followed them there may follow again. The history
// is all of the text: system prompt, earlier turns, the document that is to be edited, what was written so far.
//
// Of the places where the last LEAST tokens occurred, the latest ones are looked at; the one with the longest match before it
// wins, the latest of equals. A match of m tokens has grade 0 (3), 1 (4, 5), 2 (6, 7), 3 (8 to 11), 4 (12 to 15), 5 (16 to 19), 6
// (20 to 23), 7 (24 and more); the tokens of a draft each count the ones before them.
//
// Memory: 8 bytes for each token of the text, and at most as much again. Owner: one text. Thread: one.
#pragma once

#include "base/err.h"
#include "pure/text/draft.h"

enum { KIN_NGRAM_LEAST = 3, KIN_NGRAM_MOST = 24 };

typedef struct kin_ngram_draft kin_ngram_draft;

int kin_ngram_draft_open(kin_ngram_draft **out, kin_err *err);
void kin_ngram_draft_close(kin_ngram_draft *draft); // NULL is allowed

// See kin_draft_source. Without memory for tokens that were added there are no drafts any more. A text that is shorter than it
// was begins again.
void kin_ngram_draft_propose(kin_ngram_draft *draft, const int32_t *tokens, int n, int most, kin_draft *out);
