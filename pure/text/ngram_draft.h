// Drafts by n-gram lookup: where the text's last tokens occurred before, what followed them there may follow again. The history
// is all of the text: system prompt, earlier turns, the document that is to be edited, what was written so far.
//
// Of the places where the last LEAST tokens occurred, the latest ones are looked at; the one with the longest match before it
// wins, the latest of equals. Where there is none, the text may go on beside the last place after another word in it, as an
// edited copy does: that is guessed for a few tokens.
//
// Grades: 0 such a guess; 1 a match of 3 tokens, 2 of 4 or 5, 3 of 6 or 7, 4 of 8 to 11, 5 of 12 to 15, 6 of 16 to 23, 7 of 24
// and more. The tokens of a draft each count the ones before them.
//
// Memory: 8 bytes for each token of the text, and at most as much again. Owner: one text. Thread: one.
#pragma once

#include "base/err.h"
#include "pure/text/draft.h"

enum { KIN_NGRAM_LEAST = 3, KIN_NGRAM_MOST = 24 };

typedef struct kin_ngram_draft kin_ngram_draft;

int kin_ngram_draft_open(kin_ngram_draft **out, kin_err *err);
void kin_ngram_draft_close(kin_ngram_draft *draft); // NULL is allowed

// Another text follows.
void kin_ngram_draft_reset(kin_ngram_draft *draft);

// See kin_draft_source. Without memory for tokens that were added there are no drafts any more. A text that is shorter than it
// was begins again.
void kin_ngram_draft_propose(kin_ngram_draft *draft, const int32_t *tokens, int n, int most, kin_draft *out);
