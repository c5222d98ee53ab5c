// Predicts the gain of a draft model before it is run: the time of a token with drafts, by the timeline model.
//
// The draft model takes its memory from the head. So another plan may become the best, and weights that no longer fit are read in
// every pass: T includes that. With k drafted tokens per pass, each right with chance `acceptance` if those before it are,
//
//     TPOT(k) = (T(k + 1) + first + (k - 1) pass + a^k more) / E(k + 1)          E(n) = 1 + a + a^2 + ... + a^(n - 1)
//
// where `first` is the draft model's own time for a token on the head's CPU, and `pass` that of a token that follows immediately:
// its weights may still be in the CPU's cache. Before the first drafted token of a step the main model has read its own weights,
// so the draft model's come from memory. If all k tokens were right, the draft model has not yet read the last one, so its first
// pass for the next step has two tokens and takes `more` time. kin chooses k in every pass (pure/plan/speculation.h); here one k
// is used for all.
//
// Pure functions: any thread.
#pragma once

#include "pure/plan/scheduler.h"
#include "pure/sampling/draft.h"

typedef struct kin_draft_gain {
    double plain_s;                         // TPOT without the draft model
    double rows_s[KIN_DRAFT_MAX + 2];       // [n] T(n) with the plan beside the draft model, n from 1
    double first_s, pass_s, second_token_s; // of the draft model; second_token_s is `more`
    double memory_bytes;
} kin_draft_gain;

// facts: without the draft model. draft: its sizes for the same work. Fails if no plan is possible beside it; the sentence says
// what is missing.
int kin_draft_gain_make(kin_draft_gain *out, const kin_facts *facts, const kin_plan_options *options,
                        const kin_plan_scheduler *scheduler, const kin_model_facts *draft, kin_err *err);

// Returns TPOT with n_drafted tokens in every pass.
double kin_draft_gain_tpot(const kin_draft_gain *gain, double acceptance, int n_drafted);

// Returns the number of drafted tokens that gives the lowest TPOT.
int kin_draft_gain_best(const kin_draft_gain *gain, double acceptance);

// Returns the lowest acceptance, in steps of 0.01, at which tokens come at least 5 % faster than without the draft model; above
// 1: none.
double kin_draft_gain_worth_from(const kin_draft_gain *gain);
