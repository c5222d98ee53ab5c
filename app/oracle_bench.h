// Of kin bench: what drafts gain at a known acceptance. A text is written without drafts, then again with drafts of an oracle
// that knows it, and is wrong as often as was asked for; in turns.
#pragma once

#include "node/session.h"
#include "pure/text/draft.h"

typedef struct kin_oracle_result {
    double plain_ms, drafted_ms; // per token, medians
    kin_draft_counts drafts;     // of all texts with drafts
} kin_oracle_result;

// Texts of n_gen tokens behind prompt [n_prompt], n_reps times each, where drafted tokens are right with `chance`. Fails also
// when two of the texts differ.
int kin_oracle_bench(kin_session *session, const int32_t *prompt, int n_prompt, int n_gen, int n_reps, double chance,
                     kin_oracle_result *out, kin_err *err);
