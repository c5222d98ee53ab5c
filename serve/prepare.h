// From a request to jobs: prompts as tokens, samplers, grammars. All that takes time and is no computing of the model: a server
// does it in libuv's pool, never in the loop's thread or the computing one.
//
// What is prepared belongs to the caller. The model's side (prompter, trie) is immutable and shared.
#pragma once

#include "serve/prompt.h"
#include "serve/service.h"
#include "serve/writer.h"

typedef struct kin_preparer {
    const kin_session *session;
    const kin_prompter *prompter;
    const kin_token_trie *trie; // for grammars
    bool has_seed;              // of requests that name none; else one is drawn for each text
    uint64_t seed;
} kin_preparer;

// n texts: those of a prompt follow each other.
typedef struct kin_prepared {
    kin_request request;
    int n_prompts, n_texts;
    kin_job_options *jobs;         // [n_texts] without `user`
    kin_text_buffer *prompt_texts; // [n_prompts] for formats that repeat them
    kin_str *prompts;              // [n_prompts] the same
    uint64_t *seeds;               // [n_texts]
    kin_reply_tool *tools;         // [n_tools] of a chat
    char **tool_schemas;           // [n_tools]
    size_t n_tools;
    kin_reply_options reply; // how a chat's reply is read
    kin_reply_thinking thinking;
    kin_text_buffer relaxed; // what of schemas says nothing (kin_reply_rules); a header names it
} kin_prepared;

// Takes request over, also when it fails; then `out` needs no fini.
int kin_prepare(kin_prepared *out, const kin_preparer *preparer, kin_request *request, kin_api_error *err);
void kin_prepared_fini(kin_prepared *prepared);

// Only the prompt of a chat, as tokens: what its parts cost.
int kin_prepare_count(const kin_preparer *preparer, const kin_request *request, int *n, kin_api_error *err);
