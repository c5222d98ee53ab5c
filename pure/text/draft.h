// A draft: tokens that a text may go on with, guessed cheaply. The model verifies several in one pass (pipeline/scheduler.h):
// those that it would have written itself stay, so a wrong guess costs time and changes nothing.
//
// A source says for each token how sure it is of it, as a grade. What a grade is worth is learnt while texts are written
// (pure/plan/speculation.h).
#pragma once

#include <stdint.h>

enum { KIN_DRAFT_MAX = 31, KIN_DRAFT_GRADES = 8 };

typedef enum kin_draft_source_kind {
    KIN_DRAFT_NGRAM,   // what followed the same tokens before (ngram_draft.h)
    KIN_DRAFT_MODEL,   // a smaller model
    KIN_DRAFT_ORACLE,  // a known text, for measurements
    KIN_DRAFT_EARLIER, // what followed in an earlier text with the same tokens from its beginning (pipeline/prefix_pages.h)
    KIN_DRAFT_N_SOURCES,
} kin_draft_source_kind;

typedef struct kin_draft {
    kin_draft_source_kind kind;
    int n;
    int32_t tokens[KIN_DRAFT_MAX];
    uint8_t grades[KIN_DRAFT_MAX]; // below KIN_DRAFT_GRADES, of the token if those before it are right
} kin_draft;

typedef struct kin_draft_source {
    // What may follow tokens [n], at most `most` (KIN_DRAFT_MAX) tokens; out->n 0: it has no guess. Between two calls for the
    // same text tokens are only added at its end.
    void (*propose)(void *user, const int32_t *tokens, int n, int most, kin_draft *out);
    void *user;
} kin_draft_source;

// How far a source goes for which each token costs time (pipeline/draft_model.h).
typedef struct kin_draft_limits {
    int most;                         // tokens for each text, at most KIN_DRAFT_MAX; 0: it is not worth asking
    double least[KIN_DRAFT_MAX];      // [most] chance that a token and all before it must have of being right
    double chances[KIN_DRAFT_GRADES]; // that a token of this grade is right if those before it are
    double mean_chance;               // of tokens of all grades: of one that is not computed yet
    double catch_up_s;                // time that reading what the source does not know of the texts may take
} kin_draft_limits;

// What came of drafts so far.
typedef struct kin_draft_counts {
    // Passes that gave tokens, and these: not the prompt's with the first one, nor passes behind another one of the text.
    uint64_t n_passes, n_written;
    uint64_t n_drafts;                      // that were verified, of any number of tokens
    uint64_t drafted[KIN_DRAFT_N_SOURCES];  // tokens that were verified, by source
    uint64_t accepted[KIN_DRAFT_N_SOURCES]; // and were right
} kin_draft_counts;

void kin_draft_counts_add(kin_draft_counts *counts, const kin_draft_counts *more);
uint64_t kin_draft_counts_drafted(const kin_draft_counts *counts); // of all sources
uint64_t kin_draft_counts_accepted(const kin_draft_counts *counts);

const char *kin_draft_source_name(kin_draft_source_kind kind); // "ngram"
