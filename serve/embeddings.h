// The bodies of /v1/embeddings (OpenAI) and /embedding (llama.cpp): parsed requests, and answers as JSON. Nothing is computed
// but the vectors' length.
#pragma once

#include "serve/request.h"

typedef struct kin_embeddings_request {
    json_t *body;         // owned; the rest points into it
    const char *model;    // NULL: not said
    const json_t *inputs; // array, not empty: strings, and arrays of ids and strings
    bool is_base64;
    bool truncates; // a text that is longer than the context is cut at its end
    bool is_raw;    // embd_normalize -1: the vectors are not brought to length 1
} kin_embeddings_request;

// `input`, or llama.cpp's `content`. dimensions that are not the model's n_embd are 400. Takes the body over, also when it fails.
int kin_embeddings_parse(kin_embeddings_request *out, json_t *body, int n_embd, kin_api_error *err);
void kin_embeddings_fini(kin_embeddings_request *request);

// To length 1; zero stays zero.
void kin_embedding_normalize(float *vector, int n);

// vectors: f32 [n][n_embd], finite. NULL: no memory, or a number that is not finite.
json_t *kin_embeddings_answer(const kin_embeddings_request *request, const char *model, const float *vectors, int n, int n_embd,
                              int64_t n_tokens);
// llama.cpp's: [{index, embedding: [[...]]}]
json_t *kin_embedding_answer(const float *vectors, int n, int n_embd);
