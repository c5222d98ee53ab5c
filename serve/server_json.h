// Describes a server as JSON: models, properties, slots. Takes plain structs; uses llama-server's form.
//
// Plain functions. Answers are new references; NULL: out of memory.
#pragma once

#include "serve/writer.h"

// One model. Strings are borrowed for the call; NULL: none.
typedef struct kin_model_card {
    const char *id;             // the name that clients see
    const char *const *aliases; // [n_aliases]
    int n_aliases;
    const char *tags; // "a,b"; NULL: none
    int64_t created_s;
    const char *ftype;                // "Q4_K - Medium"
    const char *arch, *chat_template; // "qwen3"; the template is for Ollama's API
    char digest[65];                  // 64 hex digits for Ollama's API, other ones for another version of the file
    int vocab_type;                   // llama.cpp's number: 1 SentencePiece, 2 byte-level BPE
    int n_vocab, n_ctx, n_ctx_train, n_embd, n_layer;
    int64_t n_params, n_bytes;
    bool has_tools, has_thinking; // of its chat template; has_embeddings: of the server
    bool has_embeddings;
    const char *status; // if the server has several models: "loaded", "unloaded", "loading"; NULL: not reported
} kin_model_card;

// Returns one entry of /v1/models' data, as for /v1/models/:id.
json_t *kin_model_json(const kin_model_card *card);
// Returns {object, data, models}; `models` is for clients of Ollama's API and for Codex.
json_t *kin_models_json(const kin_model_card *cards, int n);

typedef struct kin_server_props {
    const kin_request *defaults; // a request without any fields
    int n_ctx, n_slots;
    const char *alias, *ftype, *path;
    const char *chat_template, *bos_token, *eos_token, *build;
    bool has_slots, has_metrics, has_ui; // enabled endpoints
    bool has_tools, has_thinking;        // of the chat template
} kin_server_props;

json_t *kin_props_json(const kin_server_props *props);

typedef struct kin_slot_view {
    int id;
    int64_t task; // -1: never used
    int n_ctx;
    bool is_processing;
    int n_prompt, n_done, n_cached; // tokens of the prompt; n_done of them are computed
    const kin_request *request;     // the slot's request while it is processing; NULL: none
    uint64_t seed;
    int n_generated;
    int n_left; // -1: until the context is full
    bool has_new_line;
} kin_slot_view;

// An unused slot has no params: clients test for that.
json_t *kin_slots_json(const kin_slot_view *slots, int n);
