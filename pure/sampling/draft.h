// A draft: guessed tokens that may follow a sequence. The model verifies several of them in one pass (pipeline/scheduler.h) and
// keeps those that it would have generated itself, so a wrong guess costs time but never changes the output.
//
// A source gives each token a grade, its confidence. The value of each grade is learnt during generation
// (pure/plan/speculation.h).
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    KIN_DRAFT_MAX = 31,
    KIN_DRAFT_GRADES = 8,
    KIN_DRAFT_MAX_BRANCHES = 8, // in all drafts of one step
};

typedef enum kin_draft_source_kind {
    KIN_DRAFT_NGRAM,   // the tokens that followed the same tokens before (ngram_draft.h)
    KIN_DRAFT_MODEL,   // a smaller model
    KIN_DRAFT_ORACLE,  // a known text, for measurements
    KIN_DRAFT_EARLIER, // the tokens that followed the same prefix in an earlier sequence (pipeline/prefix_pages.h)
    KIN_DRAFT_MTP,     // the model's own block for multi-token prediction
    KIN_DRAFT_N_SOURCES,
} kin_draft_source_kind;

// A chain of tokens, or a tree: where a source is unsure it may propose alternatives, siblings with the same parent. The first
// sibling continues the parent's chain; each other one begins a branch.
typedef struct kin_draft {
    kin_draft_source_kind kind;
    int n;
    int32_t tokens[KIN_DRAFT_MAX];
    uint8_t grades[KIN_DRAFT_MAX];  // < KIN_DRAFT_GRADES, given that the parent is right and all earlier siblings are wrong
    uint8_t skipped[KIN_DRAFT_MAX]; // entries between the token and its parent in the array: see kin_draft_parent
} kin_draft;

// Returns the index of the parent of token i, or -1 if that is the last token of the sequence.
static inline int kin_draft_parent(const kin_draft *draft, int i) {
    return i - 1 - draft->skipped[i];
}

// True if token i has an earlier sibling.
bool kin_draft_is_branch(const kin_draft *draft, int i);

// Adds a token after `parent` (-1: the last token of the sequence). The draft must have room for it.
void kin_draft_add(kin_draft *draft, int parent, int32_t token, uint8_t grade);

// Returns the tokens of the first chain as a set: bit i is token i.
uint32_t kin_draft_chain(const kin_draft *draft);

// Removes the tokens that are not in the set. With each token the set must contain its parent and its earlier siblings.
void kin_draft_keep(kin_draft *draft, uint32_t tokens);

// The two likeliest tokens by a model's logits. grade: of the first one's probability, 0 below 0.3, then below 0.5, 0.65, 0.8,
// 0.9, 0.95, 0.99, and 7; second_grade: the same of the second one's share of what the first leaves.
typedef struct kin_draft_choice {
    int32_t token, second; // second -1: there is only one token
    uint8_t grade, second_grade;
} kin_draft_choice;

kin_draft_choice kin_draft_choose(const float *logits, int n); // logits // f32 [n]

typedef struct kin_draft_source {
    // Guesses at most `most` (<= KIN_DRAFT_MAX) tokens that follow tokens [n]; sets out->n to 0 if it has no guess. Between two
    // calls for one sequence tokens may only be appended.
    void (*propose)(void *user, const int32_t *tokens, int n, int most, kin_draft *out);
    void *user;
} kin_draft_source;

// Limits for a source whose tokens cost time to compute (pipeline/draft_model.h, pipeline/mtp_drafter.h).
typedef struct kin_draft_limits {
    int most; // tokens per sequence, at most KIN_DRAFT_MAX; 0: drafting does not pay
    // [most] after i tokens in a row: the probability that the next token and all before it are right must be at least this to
    // be worth its pass and its row.
    double least[KIN_DRAFT_MAX];
    double least_of_row[KIN_DRAFT_MAX]; // [most] after i tokens in all: the same for a second choice, which needs no pass
    double chances[KIN_DRAFT_GRADES];   // probability that a token of this grade is right if those before it are
    double branches[KIN_DRAFT_GRADES];  // the same for the second choice if the first is wrong; 0: no branches
    double mean_chance;                 // over all grades, for a token that has not been computed yet
    double catch_up_s;                  // time allowed for reading tokens of the sequences that the source has not read yet
} kin_draft_limits;

// Statistics of drafts.
typedef struct kin_draft_counts {
    // Passes and the tokens that they gave. Not counted: prompt passes with their first token, and passes that were sent while
    // another pass of the sequence was in flight.
    uint64_t n_passes, n_written;
    uint64_t n_drafts;                      // verified drafts of any length
    uint64_t drafted[KIN_DRAFT_N_SOURCES];  // verified tokens, by source
    uint64_t accepted[KIN_DRAFT_N_SOURCES]; // those that were right
    uint64_t branches, accepted_branches;   // the same for tokens that begin a branch
} kin_draft_counts;

void kin_draft_counts_add(kin_draft_counts *counts, const kin_draft_counts *more);
uint64_t kin_draft_counts_drafted(const kin_draft_counts *counts); // sum over all sources
uint64_t kin_draft_counts_accepted(const kin_draft_counts *counts);

const char *kin_draft_source_name(kin_draft_source_kind kind); // "ngram"
