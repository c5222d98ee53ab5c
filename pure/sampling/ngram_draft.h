// Drafts by n-gram lookup: the tokens that followed an earlier occurrence of the sequence's last tokens are proposed again. The
// lookup covers the whole sequence: system prompt, earlier turns, a document to be edited, and the output so far.
//
// Among the latest places at which the last KIN_NGRAM_LEAST tokens occurred, the one with the longest match wins; of equal
// matches the latest. If there is none, the sequence may be an edited copy that differs from the last place in a few tokens:
// then the tokens at the same distance are proposed, for a few tokens.
//
// Grades: 0: such a guess; 1: a match of 3 tokens, 2: 4 or 5, 3: 6 or 7, 4: 8 to 11, 5: 12 to 15, 6: 16 to 23, 7: 24 or more.
// For later tokens of a draft the match includes the draft tokens before them.
//
// Memory: 8 bytes for each token of the sequence, and at most as much again. Owner: one sequence. Thread: one.
#pragma once

#include "base/err.h"
#include "pure/sampling/draft.h"

enum { KIN_NGRAM_LEAST = 3, KIN_NGRAM_MOST = 24 };

typedef struct kin_ngram_draft kin_ngram_draft;

int kin_ngram_draft_open(kin_ngram_draft **out, kin_err *err);
void kin_ngram_draft_close(kin_ngram_draft *draft); // NULL is allowed

// Starts another sequence.
void kin_ngram_draft_reset(kin_ngram_draft *draft);

// See kin_draft_source. If memory for the added tokens runs out, there is no draft. A sequence that has become shorter is read
// again from its beginning.
void kin_ngram_draft_propose(kin_ngram_draft *draft, const int32_t *tokens, int n, int most, kin_draft *out);
