// Ollama's API: translates its bodies into those of OpenAI or llama.cpp, and writes its small answers. kin_format_ollama_chat and
// kin_format_ollama_generate (serve/writer.h) write the generations.
#pragma once

#include "serve/json_out.h"
#include "serve/request/request.h"
#include "serve/server_json.h" // kin_model_card

// The version that /api/version reports. Clients compare it with Ollama's versions, so it is the API's version, not kin's.
#define KIN_OLLAMA_VERSION "0.14.0"

// The kind of request in a body, which determines the parser of *out.
typedef enum kin_ollama_kind {
    KIN_OLLAMA_CHAT,   // kin_request_from_chat
    KIN_OLLAMA_NATIVE, // kin_request_from_native: `raw`
    KIN_OLLAMA_LOAD,   // no generation: only load the model. *out is {model}; see kin_ollama_put_loaded
    KIN_OLLAMA_UNLOAD, // only unload it
} kin_ollama_kind;

// *out: a new body, with `stream` on unless the client turns it off. Plain functions.
int kin_ollama_translate_chat(kin_ollama_kind *kind, json_t **out, const json_t *body, kin_api_error *err);     // /api/chat
int kin_ollama_translate_generate(kin_ollama_kind *kind, json_t **out, const json_t *body, kin_api_error *err); // /api/generate
// /api/embed and its predecessor /api/embeddings: *out is a body of /v1/embeddings.
int kin_ollama_translate_embed(json_t **out, const json_t *body, kin_api_error *err);

// True if a body's keep_alive (0, "0", "0s"; NULL: absent) asks to unload the model.
bool kin_ollama_lets_go(const json_t *keep_alive);

// ---- answers

void kin_ollama_put_loaded(kin_ollama_kind kind, bool is_chat, const char *model, int64_t now_s, kin_text_buffer *out);
void kin_ollama_put_version(kin_text_buffer *out);
void kin_ollama_put_tags(const kin_model_card *cards, int n, kin_text_buffer *out);
// /api/ps: the loaded models.
void kin_ollama_put_ps(const kin_model_card *cards, int n, kin_text_buffer *out);
void kin_ollama_put_show(const kin_model_card *card, kin_text_buffer *out);

typedef struct kin_ollama_embeddings {
    const char *model;
    const float *vectors; // [n, n_embd]
    int n, n_embd, n_prompt;
    double ms;
} kin_ollama_embeddings;

void kin_ollama_put_embed(const kin_ollama_embeddings *e, kin_text_buffer *out);      // /api/embed
void kin_ollama_put_embeddings(const kin_ollama_embeddings *e, kin_text_buffer *out); // /api/embeddings: the first vector

// "2026-11-22T13:00:00Z"
json_t *kin_ollama_time(int64_t s);
