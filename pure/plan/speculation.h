// Speculation: chooses how many drafted tokens a step verifies, so that the token rate is highest.
//
// A step of r rows, one per generating sequence, takes T(r). With k drafted tokens more it takes T(r + k), and gives
//
//     E = r + sum over drafted tokens of (the chance that it and those before it in its sequence are right)
//
// tokens. The k likeliest drafted tokens are the best k, since a token's chance never exceeds that of the token before it; the
// best k has the largest E / T(r + k). None are verified if that is less than 5 % above r / T(r).
//
// In a tree of drafts (pure/sampling/draft.h) several tokens may follow the same one. The first is right with its chance a, the
// next one with (1 - a) times its own, and so on; so the likeliest tokens also form the best tree. A branch is a sequence of its
// own in the KV cache, so a step has at most KIN_DRAFT_MAX_BRANCHES of them; if rows are expensive or the source is certain, the
// likeliest tokens form a chain.
//
// T comes from recent steps (in seconds, on any kind of machine: computing, disks, hops): interpolated between measured numbers
// of rows, and beyond them extrapolated as on a CPU with kin's kernels. Chances are learned for each source and grade. Drafts
// that are not worthwhile are tried again, less and less often; a step without drafts is measured now and then, for comparison.
//
// A draft model, or the model's own draft block, computes its tokens, with one pass per token for all sequences that ask. With
// its tokens the step takes T(r + k)
// + D, where D is the time of its passes; the first pass also reads the sequences' new tokens, and takes longer than the others.
// The same quotient, with the mean chance of its tokens, decides beforehand whether to ask it, and for how many tokens; it stops
// before a token that is not worth its time given the model's own confidence.
//
// In a ring the draft model continues while a step is verified, as if all k drafted tokens were right, followed by its own guess:
// in a^(k + 1) of the steps the next tokens are then known and need no pass. That costs nothing while the head only waits; but a
// pass that has not finished when the step returns delays the sequence by its remainder. So a pass begins only if it fits into
// the shortest of the last waits and is useful in at least one case of ten.
//
// In a ring limited by computing, not by a disk, a sequence that is generated alone may be in several steps at once: the first
// step has its last token, each of those after it one drafted token. With M steps in flight, each right token takes a period P;
// after a wrong one the sequence starts anew:
//
//     tokens per second = L / (T(1) + (L - 1) P)      L = 1 / (1 - chance), P = max(T(1) / M, the head's computing per step)
//
// The head has the output layer in addition to its window, so it may be the ring's longest stage. This mode is used if it beats
// one step of several rows; once it has been measured, the measurement replaces the formula.
//
// `least` tokens of each sequence are verified even if they do not pay, and never more than `most`: for comparison, tests and
// measurements.
//
// Plain data. Owner and thread: the scheduler's.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "pure/sampling/draft.h"

enum {
    KIN_SPECULATION_MAX_ROWS = KIN_DRAFT_MAX + 1,
    KIN_SPECULATION_MAX_SEQUENCES = KIN_SPECULATION_MAX_ROWS,
    KIN_SPECULATION_SAMPLES = 5
};

typedef struct kin_speculation {
    struct {
        double took_s[KIN_SPECULATION_SAMPLES]; // cyclic: the last steps with this many rows
        int n;                                  // number of these so far
        uint64_t step;                          // number of the last such step
    } times[KIN_SPECULATION_MAX_ROWS + 1];
    struct {
        double chance;
        int n; // tokens that it was learned from, up to a limit
    } grades[KIN_DRAFT_N_SOURCES][KIN_DRAFT_GRADES], branches[KIN_DRAFT_N_SOURCES][KIN_DRAFT_GRADES],
        mean[KIN_DRAFT_N_SOURCES]; // branches: of tokens that begin a branch; mean: of all other tokens
    struct {
        double took_s[KIN_SPECULATION_SAMPLES]; // cyclic: the last passes of the draft model, scaled to one sequence
        int n;                                  // number of these so far
    } first_pass, further_pass;
    uint64_t step;                  // steps so far
    uint64_t next_probe;            // after this step, one token is verified although it is not worthwhile
    uint64_t probe_gap;             // steps between two such probes
    bool model_probes;              // the draft model was asked for a probe
    bool is_probe;                  // the last choice was a probe
    double ahead_s;                 // measured time per token with several steps in flight; 0: not known
    uint64_t ahead_step;            // step at which that was measured
    int least, most;                // limits of the drafted tokens per sequence
    bool chains;                    // no branches are verified
    kin_draft_source_kind computed; // the source that counts as the draft model: KIN_DRAFT_MODEL or KIN_DRAFT_MTP
} kin_speculation;

void kin_speculation_init(kin_speculation *speculation);

// True if a step of n_rows rows should have drafts at all; otherwise no source needs to be asked.
bool kin_speculation_wants(const kin_speculation *speculation, int n_rows);

// True if a draft model is expected to do better than this draft.
bool kin_speculation_prefers_model(const kin_speculation *speculation, const kin_draft *draft);

// Returns how far a draft model should go for n sequences of a step of n_rows rows; at most n_free tokens in all. n_known: tokens
// of each sequence that it already knows.
kin_draft_limits kin_speculation_limit_model(kin_speculation *speculation, int n_rows, int n_free, int n, int n_known);

// Returns how far it should go on while a step of n sequences is verified; the head is expected to be idle for free_s.
kin_draft_limits kin_speculation_limit_ahead(const kin_speculation *speculation, int n, double free_s);

// Chooses the tokens of each of n drafts that join a step of n_rows rows: taken [n], each a set (kin_draft_keep); at most n_free
// tokens in all. drafting_s: time that computing the drafts took.
void kin_speculation_choose(kin_speculation *speculation, int n_rows, int n_free, const kin_draft *const *drafts, int n,
                            double drafting_s, uint32_t *chosen);

// Records that a step of n_rows rows, including drafted ones, took took_s.
void kin_speculation_learn_time(kin_speculation *speculation, int n_rows, double took_s);

// True if a sequence that is generated alone is better off in n_steps concurrent steps than in one step with the best number of
// this draft's tokens. head_s: the head's computing for a step of one row; 0: not known.
bool kin_speculation_prefers_ahead(const kin_speculation *speculation, const kin_draft *draft, int n_free, int n_steps,
                                   double head_s);

// Records that n_tokens with several steps in flight took took_s.
void kin_speculation_learn_ahead(kin_speculation *speculation, int n_tokens, double took_s);

// Records that a pass of the draft model for n sequences took took_s. is_first: it was the first one for its step.
void kin_speculation_learn_pass(kin_speculation *speculation, bool is_first, double n, double took_s);

// Forgets all times, because other machines, or another number of them, compute the steps from now on.
void kin_speculation_forget_times(kin_speculation *speculation);

// Records whether a token was right; its predecessors were right, and the siblings that come before it were not.
void kin_speculation_learn_token(kin_speculation *speculation, kin_draft_source_kind kind, int grade, bool is_branch,
                                 bool accepted);
