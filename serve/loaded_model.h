// A model that a server has loaded: the session, the prompter and token trie, and the service that computes its requests.
//
// Owner: the caller of open. Thread: the computing thread.
#pragma once

#include "serve/prepare.h"

typedef struct kin_loaded_model_options {
    kin_session_options session;    // its `model` is the file
    int n_ctx;                      // unless the session's options set it; at most the context that the model was trained with
    const char *chat_template_file; // NULL: the model's own
    const char *chat_template;      // likewise, as text; not together with a file
    bool has_seed;                  // see kin_preparer
    uint64_t seed;
    kin_service_options service; // without its session
} kin_loaded_model_options;

typedef struct kin_loaded_model {
    kin_session session;
    kin_prompter *prompter;
    kin_token_trie *trie;
    uint8_t *template;
    kin_service *service;
    kin_preparer preparer; // made of the fields above
} kin_loaded_model;

// Fills *model, which must not move until close. Close it after a failure, too.
int kin_loaded_model_open(kin_loaded_model *model, const kin_loaded_model_options *options, kin_err *err);
void kin_loaded_model_close(kin_loaded_model *model); // does nothing if all zero
