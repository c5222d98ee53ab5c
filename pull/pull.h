// Gets a model by its name: looks into the folder of models first, otherwise asks the registry that the name names, chooses a
// variant, downloads its files and records where they came from.
//
// Blocking; any thread. Nothing is contacted but the host of the name, and those that it redirects to.
#pragma once

#include <stdatomic.h>

#include "pull/download.h"
#include "pull/model_store.h"

typedef struct kin_pull_options {
    const char *models_dir;
    const char *known_file;      // of short names (pull/known_models.h); NULL: only the built-in ones
    const char *mirror;          // base address in place of the registry's; NULL: none
    const char *hf_endpoint;     // NULL: https://huggingface.co
    const char *hf_token;        // NULL: none
    const char *ollama_endpoint; // NULL: https://registry.ollama.ai
    bool offline;                // nothing is contacted
    bool refreshes;              // asks the registry even if the model is here
    uint64_t room;               // memory for a model: decides the quantization if the name does not
    int n_connections;
    const atomic_bool *stop;
    // Gets sentences: what a short name means, which quantization was chosen and why.
    void (*say)(void *user, const char *sentence);
    // Several times a second; `file` is the name of the file, `digest` its SHA-256 (empty: unknown). Bytes of all files of the
    // model.
    void (*progress)(void *user, const char *file, const char *digest, const kin_download_progress *progress);
    void *user;
} kin_pull_options;

// Fills options from the environment: KIN_MODELS, HF_ENDPOINT, HF_TOKEN, KIN_OLLAMA_REGISTRY. Their strings live as long as it is
// unchanged.
kin_pull_options kin_pull_options_defaults(void);

// True if a text has the form of a name, or is a short name or the name of a fetched model: no file.
bool kin_pull_is_name(const kin_pull_options *o, const char *text);

// Fills `record` with the model's first file, whose path a command may open.
int kin_pull(const kin_pull_options *o, const char *name, kin_model_record *record, kin_err *err);

// Looks only into the folder. Returns 0, KIN_ABSENT or KIN_FAIL.
int kin_pull_find(const kin_pull_options *o, const char *name, kin_model_record *record, kin_err *err);
