// Ollama's API: its bodies as those of OpenAI or llama.cpp, and the bodies of its small answers. Generations are answered by
// kin_format_ollama_chat and kin_format_ollama_generate (serve/writer.h).
#pragma once

#include "serve/json_out.h"
#include "serve/request.h"
#include "serve/server_json.h" // kin_model_card

// The version that /api/version tells. Clients compare it with those of Ollama: it is that of the API, not kin's.
#define KIN_OLLAMA_VERSION "0.14.0"

// What a body asks for, and whose body *out is.
typedef enum kin_ollama_kind {
    KIN_OLLAMA_CHAT,   // kin_request_from_chat
    KIN_OLLAMA_NATIVE, // kin_request_from_native: `raw`
    KIN_OLLAMA_LOAD,   // nothing to generate: the model shall be there. *out is {model}; see kin_ollama_put_loaded
    KIN_OLLAMA_UNLOAD, // or shall go
} kin_ollama_kind;

// A new body in *out, with `stream` on unless the client says no. Plain functions.
int kin_ollama_translate_chat(kin_ollama_kind *kind, json_t **out, const json_t *body, kin_api_error *err);     // /api/chat
int kin_ollama_translate_generate(kin_ollama_kind *kind, json_t **out, const json_t *body, kin_api_error *err); // /api/generate
// /api/embed and its elder, /api/embeddings: the body of /v1/embeddings.
int kin_ollama_translate_embed(json_t **out, const json_t *body, kin_api_error *err);

// Whether a body's keep_alive (0, "0", "0s"; NULL: not said) means that the model is to go.
bool kin_ollama_lets_go(const json_t *keep_alive);

// ---- answers

void kin_ollama_put_loaded(kin_ollama_kind kind, bool is_chat, const char *model, int64_t now_s, kin_text_buffer *out);
void kin_ollama_put_version(kin_text_buffer *out);
void kin_ollama_put_tags(const kin_model_card *cards, int n, kin_text_buffer *out);
// /api/ps: those that are loaded.
void kin_ollama_put_ps(const kin_model_card *cards, int n, kin_text_buffer *out);
void kin_ollama_put_show(const kin_model_card *card, kin_text_buffer *out);

typedef struct kin_ollama_embeddings {
    const char *model;
    const float *vectors; // [n, n_embd]
    int n, n_embd, n_prompt;
    double ms;
} kin_ollama_embeddings;

void kin_ollama_put_embed(const kin_ollama_embeddings *e, kin_text_buffer *out);      // /api/embed
void kin_ollama_put_embeddings(const kin_ollama_embeddings *e, kin_text_buffer *out); // /api/embeddings: the first one

// "2026-11-22T13:00:00Z"
json_t *kin_ollama_time(int64_t s);
