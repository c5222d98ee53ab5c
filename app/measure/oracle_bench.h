// Part of kin bench: measures the gain of drafts. It alternately generates a sequence without and with drafts. The drafts come
// from an oracle that knows the sequence and errs at the requested rate (with the draft model's tokens and time, if there is a
// draft model); or from n-gram lookup, where the sequence is an edited copy of its prompt: one token in 24 is replaced regardless
// of the model, as if it had been asked to change a name; or from all sources that the session has.
#pragma once

#include "cluster/session.h"
#include "pure/sampling/draft.h"

typedef struct kin_oracle_result {
    double plain_ms, drafted_ms; // per token, medians
    kin_draft_counts drafts;     // of all sequences with drafts
} kin_oracle_result;

typedef enum kin_oracle_text {
    KIN_ORACLE_KNOWS, // the model's output; the oracle drafts
    KIN_ORACLE_EDITS, // a copy of the prompt, repeated
    KIN_ORACLE_NONE,  // the model's output; the session's own sources draft
} kin_oracle_text;

typedef struct kin_oracle_options {
    kin_oracle_text text;
    double chance;        // probability that a token of the oracle is right
    double second_chance; // probability that a second candidate is right where the first is not; 0: no second one, drafts are
                          // chains
    int n_gen, n_reps;    // tokens per sequence; sequences of each kind
} kin_oracle_options;

// Generates sequences that continue prompt [n_prompt]. Also fails if two of them differ.
int kin_oracle_bench(kin_session *session, const kin_oracle_options *options, const int32_t *prompt, int n_prompt,
                     kin_oracle_result *out, kin_err *err);
