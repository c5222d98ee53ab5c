// Of kin bench: what drafts gain. A text is written without drafts, then again with drafts, in turns. Of an oracle that knows the
// text, and is wrong as often as was asked for, if there is a draft model in its words and its time; or by n-gram lookup, where
// the text is an edited copy of its prompt: a token in 24 is another one, whatever the model says, as if it had been told to
// change a name; or of all sources that the session has.
#pragma once

#include "node/session.h"
#include "pure/text/draft.h"

typedef struct kin_oracle_result {
    double plain_ms, drafted_ms; // per token, medians
    kin_draft_counts drafts;     // of all texts with drafts
} kin_oracle_result;

typedef enum kin_oracle_text {
    KIN_ORACLE_KNOWS, // what the model says; the oracle drafts
    KIN_ORACLE_EDITS, // a copy of the prompt, again and again
    KIN_ORACLE_NONE,  // what the model says
} kin_oracle_text;

typedef struct kin_oracle_options {
    kin_oracle_text text;
    double chance;        // that a token of the oracle is right
    double second_chance; // that a second one is where it is not; 0: there is none, drafts are chains
    int n_gen, n_reps;    // tokens of a text; texts of each kind
} kin_oracle_options;

// Texts behind prompt [n_prompt]. Fails also when two of them differ.
int kin_oracle_bench(kin_session *session, const kin_oracle_options *options, const int32_t *prompt, int n_prompt,
                     kin_oracle_result *out, kin_err *err);
