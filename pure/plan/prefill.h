// Chunked prefill: how many tokens of prompts a step may have beside those of texts that are written, so that these are not kept
// waiting, and how many steps may be in flight.
//
// From being sent to being back a step takes T(r), where each of the steps in flight has r rows of texts, and with n tokens of
// prompts in each T(r) + c n. It may take MOST_SLOWDOWN longer:
//
//     n = MOST_SLOWDOWN T(r) / c
//
// T is the median of the last steps without prompts; where they had fewer or more rows than r, each is counted as a prompt's
// token. c is what a step takes longer than T: soon more, and only slowly less, for a piece that takes longer than expected keeps
// all texts waiting. So what makes T larger (other texts, a slower device) makes pieces smaller at first.
//
// Steps vary by themselves, over Wi-Fi by more than a piece costs. The spread is twice the mean difference between two steps in a
// row that have about as many tokens. What is within it is averaged, by the square of the tokens, as in a regression: a piece of
// one token says next to nothing of c. Only what is above it in two steps in a row makes c larger soon. A piece that makes a step
// longer by no more than the spread is not noticed, so pieces are never smaller than that.
//
// While prompts come in without a break no step shows T; after PROBE_EVERY of them, or when one took less than T, the next
// N_PROBED are without.
//
// Few texts do not keep a ring at work. Steps of prompts alone follow theirs, and come back one after another, each as much later
// as the ring's slowest member needs for it. Where T is x times that, more than x in flight only wait for each other, and so do
// the texts: x is learnt from these steps, and one more is in flight as long as there are not x. Where even a piece of one token
// takes too long, it is one less.
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
    int n_plain;                  // of these, in all
    int n_wanted;                 // further ones that are to be measured
    int n_since;                  // steps of texts since the last one
    int n_rows;                   // of the last step of texts
    double token_s;               // c; 0: not known
    double weight;                // squares of the tokens that it was learnt from, the older the less
    double differ_s;              // mean difference of two steps in a row; 0: not known
    double last_s;                // what the last step took without its tokens of prompts, by c; 0: not known
    double last_above_s;          // by so much it was above the spread
    int last_tokens, last_rows;   // that it had
    int largest;                  // most tokens of prompts in a step that token_s is known of
    double slowest;               // 1 / x; 0: not known
    bool is_sure;                 // of that
    int n_next;                   // steps of prompts alone since one of texts
    int n_steps;                  // that may be in flight for prompts' sake
} kin_prefill;

// What is written while a step is in flight.
typedef struct kin_prefill_beside {
    int n_rows;          // of texts in each of the steps at once, without drafts; 0: no text is written
    int n_steps;         // at once
    int n_least, n_most; // the same, without prompts, and where there are texts enough
} kin_prefill_beside;

// Nothing is known.
void kin_prefill_init(kin_prefill *prefill);

// Whether the next steps should have no prompts, so that they show what they take then.
bool kin_prefill_wants_plain(const kin_prefill *prefill);

// Tokens of prompts for a step, at least 1.
int kin_prefill_tokens(const kin_prefill *prefill, int n_rows);

// A step of texts without drafts and prompts was back after so long; there were no prompts before it that it had to wait for.
void kin_prefill_learn_plain(kin_prefill *prefill, int n_rows, double took_s);

// Another step of texts, with n_tokens of prompts.
void kin_prefill_learn(kin_prefill *prefill, const kin_prefill_beside *beside, int n_tokens, double took_s);

// A step of nothing but n_tokens of prompts, beside steps of texts, was back so much later than the one before it.
void kin_prefill_learn_next(kin_prefill *prefill, int n_tokens, double later_s);
