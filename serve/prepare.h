// Turns a request into jobs: prompts as tokens, samplers, grammars. This is all slow work other than computing the model: a
// server does it in libuv's pool, never on the loop's thread or the computing one.
//
// The results belong to the caller. The model's side (prompter, trie) is immutable and shared.
#pragma once

#include "serve/prompt.h"
#include "serve/service.h"
#include "serve/writer.h"

typedef struct kin_preparer {
    const kin_session *session;
    const kin_prompter *prompter;
    const kin_token_trie *trie; // for grammars
    bool has_seed;              // for requests without a seed; otherwise one is drawn per sequence
    uint64_t seed;
} kin_preparer;

// n_sequences sequences; those of one prompt are adjacent.
typedef struct kin_prepared {
    kin_request request;
    int n_prompts, n_sequences;
    kin_job_options *jobs;         // [n_sequences] without `user`
    kin_text_buffer *prompt_texts; // [n_prompts] for formats that repeat the prompts
    kin_str *prompts;              // [n_prompts] the same as kin_str
    uint64_t *seeds;               // [n_sequences]
    kin_reply_tool *tools;         // [n_tools] for a chat
    char **tool_schemas;           // [n_tools]
    size_t n_tools;
    kin_reply_options reply; // how to parse a chat's reply
    kin_reply_thinking thinking;
    kin_text_buffer relaxed; // parts of schemas that are not enforced (kin_reply_rules); reported in a header
} kin_prepared;

// Prepares everything but the grammar. Takes over request, even on failure; after a failure `out` needs no fini.
int kin_prepare(kin_prepared *out, const kin_preparer *preparer, kin_request *request, kin_api_error *err);
// Compiles the grammar, if the request has one; the last step. If the budget was too small (budget->is_spent), it may be called
// again with a larger one.
int kin_prepare_grammar(kin_prepared *prepared, const kin_preparer *preparer, kin_grammar_budget *budget, kin_api_error *err);
void kin_prepared_fini(kin_prepared *prepared);

// Counts the tokens of a chat's prompt.
int kin_prepare_count(const kin_preparer *preparer, const kin_request *request, int *n, kin_api_error *err);
