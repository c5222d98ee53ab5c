// Speculation: how many drafted tokens a step verifies, so that texts come fastest.
//
// A step of r rows, one for each text that is written, takes T(r). With k drafted tokens more it takes T(r + k), and gives
//
//     E = r + sum over drafted tokens of (the chance that it and those before it in its text are right)
//
// tokens. The k likeliest drafted tokens are the best k, since a chance never exceeds that of the token before; the best k has
// the largest E / T(r + k). None are verified where that is less than 5 % above r / T(r).
//
// In a tree of drafts (pure/text/draft.h) several tokens may go on from the same one. The first is right with its chance a, the
// next one with (1 - a) times its own, and so on; so the likeliest tokens are the best tree, too. A branch is a sequence of its
// own in the KV cache, so a step has at most KIN_DRAFT_MAX_BRANCHES of them; where rows are dear, or the source is sure, the
// likeliest tokens are a chain.
//
// T is what steps took lately (seconds, of any kind of machine: computing, disks, hops), between measured numbers of rows in
// proportion, beyond them as on a CPU with kin's kernels. Chances are learnt for each source and grade. What is not worth it is
// tried again, more and more rarely; a step without drafts is measured now and then, for comparison.
//
// A draft model computes its tokens, one pass for each token of all texts that ask. With its tokens the step takes T(r + k) + D,
// where D is what its passes took; the first one reads what is new of the texts, and takes longer than the others. Whether it is
// asked, and for how many tokens, is decided before by the same quotient, with the mean chance of its tokens; it stops before a
// token that is not worth its time by its own confidence.
//
// In a ring it goes on while a step is verified, as if all k drafted tokens were right, and its own guess behind them: in a^(k +
// 1) of the steps the next tokens are known then, and take no pass. That costs nothing in a time in which the head only waits; a
// pass that is not done when the step comes back delays the text by a part of itself. So one begins only if it fits into the
// shortest of the last waits, and is of use in one case of ten.
//
// In a ring where computing is the limit, and no disk, a text that is written alone may be in several steps at once: the first
// has its last token, those behind it a drafted token each. Of M steps in flight each right one gives a token after a period P;
// behind a wrong one the text begins anew:
//
//     tokens per second = L / (T(1) + (L - 1) P)      L = 1 / (1 - chance), P = max(T(1) / M, what the head computes of a step)
//
// The head has the output layer beside its window, so it may be the ring's longest stage.
// That is done where it beats one step of several rows; what was measured of it takes the formula's place.
//
// `least` tokens of each text are verified whether it pays or not, never more than `most`: for comparison, tests and
// measurements.
//
// Plain data. Owner and thread: the scheduler's.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "pure/text/draft.h"

enum {
    KIN_SPECULATION_MAX_ROWS = KIN_DRAFT_MAX + 1,
    KIN_SPECULATION_MAX_TEXTS = KIN_SPECULATION_MAX_ROWS,
    KIN_SPECULATION_SAMPLES = 5
};

typedef struct kin_speculation {
    struct {
        double took_s[KIN_SPECULATION_SAMPLES]; // cyclic: of the last steps with so many rows
        int n;                                  // of these, in all
        uint64_t step;                          // when the last one was
    } times[KIN_SPECULATION_MAX_ROWS + 1];
    struct {
        double chance;
        int n; // tokens it was learnt from, up to a limit
    } grades[KIN_DRAFT_N_SOURCES][KIN_DRAFT_GRADES], branches[KIN_DRAFT_N_SOURCES][KIN_DRAFT_GRADES],
        mean[KIN_DRAFT_N_SOURCES]; // branches: of the tokens that begin one; mean: of all others' grades
    struct {
        double took_s[KIN_SPECULATION_SAMPLES]; // cyclic: of the last passes of the draft model, for one text
        int n;                                  // of these, in all
    } first_pass, further_pass;
    uint64_t step;       // steps so far
    uint64_t next_probe; // step after which one token is verified although it is not worth it
    uint64_t probe_gap;  // steps between two of these
    bool model_probes;   // the draft model was asked for one
    bool is_probe;       // the last choice was one
    double ahead_s;      // a token's time with several steps in flight, as measured; 0: not known
    uint64_t ahead_step; // when that was
    int least, most;     // drafted tokens of each text
    bool chains;         // no branch is verified
} kin_speculation;

void kin_speculation_init(kin_speculation *speculation);

// Whether a step of n_rows rows should have drafts at all; if not, no source needs to be asked.
bool kin_speculation_wants(const kin_speculation *speculation, int n_rows);

// Whether a draft model would do better than this draft, as far as is known.
bool kin_speculation_prefers_model(const kin_speculation *speculation, const kin_draft *draft);

// How far a draft model goes for n of a step's texts, where it is wanted. At most n_free tokens in all. n_known: so many of each
// it knows already.
kin_draft_limits kin_speculation_limit_model(kin_speculation *speculation, int n_rows, int n_free, int n, int n_known);

// How far it goes on while a step of n texts is verified and the head has nothing to do, presumably for free_s.
kin_draft_limits kin_speculation_limit_ahead(const kin_speculation *speculation, int n, double free_s);

// Which tokens of each of n drafts join a step of n_rows rows: taken [n], a set (kin_draft_keep). At most n_free in all.
// drafting_s: what computing the drafts took.
void kin_speculation_choose(kin_speculation *speculation, int n_rows, int n_free, const kin_draft *const *drafts, int n,
                            double drafting_s, uint32_t *taken);

// A step of n_rows rows, drafted ones included, took so long.
void kin_speculation_learn_time(kin_speculation *speculation, int n_rows, double took_s);

// Whether the text that is written alone is better in n_steps steps at once than in one with as many tokens of this draft as are
// best. head_s: what the head computes of a step of one row; 0: not known.
bool kin_speculation_prefers_ahead(const kin_speculation *speculation, const kin_draft *draft, int n_free, int n_steps,
                                   double head_s);

// With several steps in flight n_tokens took so long.
void kin_speculation_learn_ahead(kin_speculation *speculation, int n_tokens, double took_s);

// A pass of the draft model for n texts took so long. is_first: of those for a step.
void kin_speculation_learn_pass(kin_speculation *speculation, bool is_first, double n, double took_s);

// Steps are computed by other machines from now on, or by as many others: what was measured says nothing any more.
void kin_speculation_forget_times(kin_speculation *speculation);

// A token whose predecessors were right, and none of those beside it that come first, was right, or not.
void kin_speculation_learn_token(kin_speculation *speculation, kin_draft_source_kind kind, int grade, bool is_branch,
                                 bool accepted);
