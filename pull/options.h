// What getting a model (pull/pull.h) and its registries (pull/registry.h) are told.
//
// Plain data, owned by the caller.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pull/download.h"

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
    // Tells from the first n bytes of a model's file what the model needs in memory beside its weights. Returns 0 and *beside;
    // KIN_ABSENT: the first *reach bytes of the file are needed; KIN_FAIL: unknown. NULL: estimated from the file's
    // size
    int (*needs)(const uint8_t *head, uint64_t n, uint64_t file_size, uint64_t *reach, uint64_t *beside);
    int n_connections;
    int patience_s; // with a server that sends next to nothing; 0: no end
    const atomic_bool *stop;
    // Gets sentences: what a short name means, which quantization was chosen and why.
    void (*log)(void *user, const char *sentence);
    // Several times a second; `file` is the name of the file, `digest` its SHA-256 (empty: unknown). Bytes of all files of the
    // model.
    void (*progress)(void *user, const char *file, const char *digest, const kin_download_progress *progress);
    void *user;
} kin_pull_options;

// Fills options from the environment: KIN_MODELS, HF_ENDPOINT, HF_TOKEN, KIN_OLLAMA_REGISTRY. Their strings live as long as it is
// unchanged.
kin_pull_options kin_pull_options_defaults(void);
