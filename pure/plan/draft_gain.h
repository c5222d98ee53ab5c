// What a draft model would gain, before it is run: a token's time with drafts, by the timeline model.
//
// The draft model takes its memory from the head, so another plan may be the best one, and weights that have no place any more
// are read in every pass: that is in T. With k drafted tokens in a pass, each right with chance `acceptance` if those before it
// are,
//
//     TPOT(k) = (T(k + 1) + first + (k - 1) pass + a^k more) / E(k + 1)          E(n) = 1 + a + a^2 + ... + a^(n - 1)
//
// where `first` is the draft model's own time for a token, on the head's CPU, and `pass` that of a token which follows at once:
// its weights may still be in the processor's cache. Before the first one of a step the model has read its own, so they come
// from memory. Where all k were right, the last one was never read by the draft model, and its first pass for the next step
// has two tokens: by `more` that takes longer. kin chooses k in every pass (pure/plan/speculation.h); here it is the best one for
// all.
//
// Pure functions: any thread.
#pragma once

#include "pure/plan/scheduler.h"
#include "pure/text/draft.h"

typedef struct kin_draft_gain {
    double plain_s;                         // TPOT without the draft model
    double rows_s[KIN_DRAFT_MAX + 2];       // [n] T(n) of the plan beside it, n from 1
    double first_s, pass_s, second_token_s; // of the draft model; second_token_s: `more`
    double memory_bytes;
} kin_draft_gain;

// facts: without the draft model; draft: its sizes for the same work. Fails where there is no plan beside it: the sentence says
// what is missing.
int kin_draft_gain_make(kin_draft_gain *out, const kin_facts *facts, const kin_plan_options *options,
                        const kin_plan_scheduler *scheduler, const kin_model_facts *draft, kin_err *err);

// TPOT with so many drafted tokens in every pass.
double kin_draft_gain_tpot(const kin_draft_gain *gain, double acceptance, int n_drafted);

// The number of drafted tokens that makes tokens come fastest.
int kin_draft_gain_best(const kin_draft_gain *gain, double acceptance);

// The least acceptance, in hundredths, from which tokens come at least 5 % faster than without the draft model; above 1: none.
double kin_draft_gain_worth_from(const kin_draft_gain *gain);
