// Embeddings: requests that make vectors of texts: /v1/embeddings, llama.cpp's /embedding, Ollama's /api/embed and its elder,
// /api/embeddings.
//
//   body ─► libuv's pool: parse, tokenize ─► jobs with pooling ─► vectors ─► libuv's pool: their JSON ─► response
//
// Owner and thread: the loop's, but for what is done in the pool.
#pragma once

#include <uv.h>

#include "model/model.h"
#include "serve/http_exchange.h"
#include "serve/model_names.h"
#include "serve/prompt.h"
#include "serve/service.h"

typedef enum kin_embed_api { KIN_EMBED_OPENAI, KIN_EMBED_LLAMA, KIN_EMBED_OLLAMA, KIN_EMBED_OLLAMA_OLD } kin_embed_api;

// What requests have in common; lives longer than they.
typedef struct kin_embed_world {
    uv_loop_t *loop;
    kin_service *service;
    const kin_prompter *prompter;
    const char *model;
    kin_model_names names;
    int n_embd, n_ctx;
    kin_pooling pooling; // NONE: the model gives no vectors
    int n_open;          // requests
} kin_embed_world;

// What a model's file says, unless `said` does. NONE: it ranks documents, or something unknown.
kin_pooling kin_embed_pooling(const kin_model *model, kin_pooling said);

void kin_embed_begin(kin_embed_world *world, kin_embed_api api, kin_http_exchange *x);

// An event of one of their jobs, whose `user` is a kin_embed_input.
typedef struct kin_embed_input kin_embed_input;
void kin_embed_take(kin_job_event *event);
