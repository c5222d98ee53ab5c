// A draft: tokens that a text may go on with, guessed cheaply. The model verifies several in one pass (pipeline/scheduler.h):
// those that it would have written itself stay, so a wrong guess costs time and changes nothing.
//
// A source says for each token how sure it is of it, as a grade. What a grade is worth is learnt while texts are written
// (pure/plan/speculation.h).
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    KIN_DRAFT_MAX = 31,
    KIN_DRAFT_GRADES = 8,
    KIN_DRAFT_MAX_BRANCHES = 8, // of all drafts of a step
};

typedef enum kin_draft_source_kind {
    KIN_DRAFT_NGRAM,   // what followed the same tokens before (ngram_draft.h)
    KIN_DRAFT_MODEL,   // a smaller model
    KIN_DRAFT_ORACLE,  // a known text, for measurements
    KIN_DRAFT_EARLIER, // what followed in an earlier text with the same tokens from its beginning (pipeline/prefix_pages.h)
    KIN_DRAFT_N_SOURCES,
} kin_draft_source_kind;

// A chain of tokens, or a tree: where a source is not sure, a token may have further ones beside it, which go on from the same
// token. The first of these goes on in its chain, each other one begins a branch.
typedef struct kin_draft {
    kin_draft_source_kind kind;
    int n;
    int32_t tokens[KIN_DRAFT_MAX];
    uint8_t grades[KIN_DRAFT_MAX];  // below KIN_DRAFT_GRADES, of the token if that before it is right, and none beside it so far
    uint8_t skipped[KIN_DRAFT_MAX]; // tokens in the array between it and that before it: see kin_draft_parent
} kin_draft;

// The token before token i: -1: the text's last one.
static inline int kin_draft_parent(const kin_draft *draft, int i) {
    return i - 1 - draft->skipped[i];
}

// Whether an earlier token of the draft has the same one before it.
bool kin_draft_is_branch(const kin_draft *draft, int i);

// A token behind `parent` (-1: the text's last one); there is room for it.
void kin_draft_add(kin_draft *draft, int parent, int32_t token, uint8_t grade);

// The tokens of its first chain, a set.
uint32_t kin_draft_chain(const kin_draft *draft);

// Only the tokens of the set remain. It has with each token that before it and those beside it that are earlier.
void kin_draft_keep(kin_draft *draft, uint32_t tokens);

typedef struct kin_draft_source {
    // What may follow tokens [n], at most `most` (KIN_DRAFT_MAX) tokens; out->n 0: it has no guess. Between two calls for the
    // same text tokens are only added at its end.
    void (*propose)(void *user, const int32_t *tokens, int n, int most, kin_draft *out);
    void *user;
} kin_draft_source;

// How far a source goes for which each token costs time (pipeline/draft_model.h).
typedef struct kin_draft_limits {
    int most; // tokens for each text, at most KIN_DRAFT_MAX; 0: it is not worth asking
    // [most] behind so many tokens in a row: chance that the next one and all before it must have of being right, to be worth its
    // pass and its row.
    double least[KIN_DRAFT_MAX];
    double least_of_row[KIN_DRAFT_MAX]; // [most] behind so many tokens in all: the same, of a second choice, which takes no pass
    double chances[KIN_DRAFT_GRADES];   // that a token of this grade is right if those before it are
    double branches[KIN_DRAFT_GRADES];  // the same, of the second one, where the first is not right; 0: there are no branches
    double mean_chance;                 // of tokens of all grades: of one that is not computed yet
    double catch_up_s;                  // time that reading what the source does not know of the texts may take
} kin_draft_limits;

// What came of drafts so far.
typedef struct kin_draft_counts {
    // Passes that gave tokens, and these: not the prompt's with the first one, nor passes behind another one of the text.
    uint64_t n_passes, n_written;
    uint64_t n_drafts;                      // that were verified, of any number of tokens
    uint64_t drafted[KIN_DRAFT_N_SOURCES];  // tokens that were verified, by source
    uint64_t accepted[KIN_DRAFT_N_SOURCES]; // and were right
    uint64_t branches, accepted_branches;   // the same, of these the tokens that begin a branch
} kin_draft_counts;

void kin_draft_counts_add(kin_draft_counts *counts, const kin_draft_counts *more);
uint64_t kin_draft_counts_drafted(const kin_draft_counts *counts); // of all sources
uint64_t kin_draft_counts_accepted(const kin_draft_counts *counts);

const char *kin_draft_source_name(kin_draft_source_kind kind); // "ngram"
