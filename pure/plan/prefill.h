// Chunked prefill: how many prompt tokens a step may have beside the rows of generating sequences, so that these do not wait too
// long, and how many steps may be in flight.
//
// T(r) is the time from sending a step until it is back, where each step in flight has r rows of generating sequences. With n
// prompt tokens in each, a step takes T(r) + c n. It may take MOST_SLOWDOWN longer:
//
//     n = MOST_SLOWDOWN T(r) / c
//
// T is the median of the last steps without prompts; if these had fewer or more rows than r, each row of difference counts as one
// prompt token. c is the excess time over T per token: it rises fast and falls slowly, because a chunk that takes longer than
// expected delays all sequences. So whatever increases T (more sequences, a slower device) makes chunks smaller at first.
//
// Step times vary by themselves, over Wi-Fi by more than a chunk costs. The spread is twice the mean difference between two
// consecutive steps with about the same number of tokens. Excess within the spread is averaged, weighted by the square of the
// tokens, as in a regression: a chunk of one token says next to nothing about c. Only an excess above the spread in two
// consecutive steps raises c fast. A chunk that delays a step by no more than the spread is not noticed, so chunks are never
// smaller than that.
//
// While prompts arrive without a break, no step shows T; after PROBE_EVERY steps, or after one that took less than T, the next
// N_PROBED steps have no prompt tokens.
//
// Few sequences do not keep a ring busy. So steps with only prompt tokens follow theirs, and return one after the other, each
// delayed by the time that the ring's slowest member needs for it. If T is x times that delay, more than x steps in flight only
// wait for each other, and delay the sequences: x is learned from these steps, and one more step is allowed in flight while there
// are fewer than x. If even a chunk of one token takes too long, one step fewer is allowed.
//
// Plain data. Owner and thread: the scheduler's.
#pragma once

#include <stdbool.h>

enum { KIN_PREFILL_SAMPLES = 3 };

typedef struct kin_prefill {
    struct {
        double took_s;
        int n_rows;
    } plain[KIN_PREFILL_SAMPLES]; // cyclic: the last steps without prompts
    int n_plain;                  // number of these so far
    int n_wanted;                 // further steps without prompts that are still to be measured
    int n_since;                  // steps of sequences since the last plain one
    int n_rows;                   // rows of the last step of sequences
    double token_s;               // c; 0: not known
    double weight;                // sum of the squared tokens that c was learned from; older ones count less
    double differ_s;              // mean difference of two consecutive steps; 0: not known
    double last_s;                // time of the last step without its prompt tokens, by c; 0: not known
    double last_above_s;          // by how much that step exceeded the spread
    int last_tokens, last_rows;   // of that step
    int largest;                  // most prompt tokens in a step that token_s was learned from
    double slowest;               // 1 / x; 0: not known
    bool is_sure;                 // `slowest` is reliable
    int n_next;                   // steps with only prompt tokens since the last step of sequences
    int n_steps;                  // steps that may be in flight for the sake of prompts
} kin_prefill;

// The load of generating sequences while a step is in flight.
typedef struct kin_prefill_beside {
    int n_rows;          // rows of sequences in each concurrent step, without drafts; 0: no sequence is generating
    int n_steps;         // concurrent steps
    int n_least, n_most; // least: concurrent steps without prompts; most: with enough sequences
} kin_prefill_beside;

// Resets everything to not known.
void kin_prefill_init(kin_prefill *prefill);

// True if the next steps should have no prompt tokens, so that they show T.
bool kin_prefill_wants_plain(const kin_prefill *prefill);

// Returns the number of prompt tokens for a step, at least 1.
int kin_prefill_tokens(const kin_prefill *prefill, int n_rows);

// Call when a step of sequences without drafts and prompts is back, and did not wait for prompts before it.
void kin_prefill_learn_plain(kin_prefill *prefill, int n_rows, double took_s);

// Call for any other step of sequences, with n_tokens prompt tokens.
void kin_prefill_learn(kin_prefill *prefill, const kin_prefill_beside *beside, int n_tokens, double took_s);

// Call when a step of only n_tokens prompt tokens, beside steps of sequences, is back: later_s after the step before it.
void kin_prefill_learn_next(kin_prefill *prefill, int n_tokens, double later_s);
