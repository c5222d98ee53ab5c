// A model that a server has loaded: the session, what makes prompts and grammars for it, and the service that computes its texts.
//
// Owner: who opened it. Thread: the computing one.
#pragma once

#include "serve/prepare.h"

typedef struct kin_loaded_model_options {
    kin_session_options session;    // its `model` is the file
    int n_ctx;                      // unless the session's options say; at most what the model was trained for
    const char *chat_template_file; // NULL: the model's own
    const char *chat_template;      // likewise, the text itself; not with a file
    bool has_seed;                  // see kin_preparer
    uint64_t seed;
    kin_service_options service; // but its session
} kin_loaded_model_options;

typedef struct kin_loaded_model {
    kin_session session;
    kin_prompter *prompter;
    kin_token_trie *trie;
    uint8_t *template;
    kin_service *service;
    kin_preparer preparer; // of these
} kin_loaded_model;

// Fills *model, which does not move until close. After a failure it is to be closed, too.
int kin_loaded_model_open(kin_loaded_model *model, const kin_loaded_model_options *options, kin_err *err);
void kin_loaded_model_close(kin_loaded_model *model); // all zero: nothing is done
