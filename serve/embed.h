// Embedding requests, which turn texts into vectors: /v1/embeddings, llama.cpp's /embedding, Ollama's /api/embed and its
// predecessor /api/embeddings.
//
//   body ─► libuv's pool: parse, tokenize ─► jobs with pooling ─► vectors ─► libuv's pool: their JSON ─► response
//
// Owner and thread: the loop's, except for the work in the pool.
#pragma once

#include <uv.h>

#include "model/model.h"
#include "serve/http/http_exchange.h"
#include "serve/lane.h"
#include "serve/model_names.h"
#include "serve/prompt.h"
#include "serve/service.h"

typedef enum kin_embed_api { KIN_EMBED_OPENAI, KIN_EMBED_LLAMA, KIN_EMBED_OLLAMA, KIN_EMBED_OLLAMA_OLD } kin_embed_api;

// State shared by all requests of a model; outlives them.
typedef struct kin_embed_shared {
    uv_loop_t *loop;
    kin_lane *huge; // bodies of more than KIN_HUGE_BODY
    kin_service *service;
    const kin_prompter *prompter;
    const char *model;
    kin_model_names names;
    int n_embd, n_ctx;
    kin_pooling pooling; // NONE: the model gives no vectors
    int n_open;          // open requests
} kin_embed_shared;

// Returns the pooling of a model's file, unless `said` overrides it. NONE: the model ranks documents, or its type is unknown.
kin_pooling kin_embed_pooling(const kin_model *model, kin_pooling said);

void kin_embed_begin(kin_embed_shared *shared, kin_embed_api api, kin_http_exchange *x);

// Handles an event of a job whose `user` is a kin_embed_input.
typedef struct kin_embed_input kin_embed_input;
void kin_embed_handle(kin_job_event *event);
