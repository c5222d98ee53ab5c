// Bodies of /v1/embeddings (OpenAI) and /embedding (llama.cpp): parsed requests, and answers as JSON. Computes nothing except the
// vectors' lengths.
#pragma once

#include "serve/request/request.h"

typedef struct kin_embeddings_request {
    json_t *body;         // owned; the other fields point into it
    const char *model;    // NULL: not given
    const json_t *inputs; // non-empty array of strings and of arrays of ids and strings
    bool is_base64;
    bool truncates; // a text longer than the context is cut at its end
    bool is_raw;    // embd_normalize -1: vectors are not scaled to length 1
} kin_embeddings_request;

// Parses `input`, or llama.cpp's `content`. 400 if `dimensions` differs from the model's n_embd. Takes over the body, even on
// failure.
int kin_embeddings_parse(kin_embeddings_request *out, json_t *body, int n_embd, kin_api_error *err);
void kin_embeddings_fini(kin_embeddings_request *request);

// Scales the vector to length 1; zero stays zero.
void kin_embedding_normalize(float *vector, int n);

// vectors: f32 [n][n_embd], finite. Returns NULL if out of memory or if a number is not finite.
json_t *kin_embeddings_answer(const kin_embeddings_request *request, const char *model, const float *vectors, int n, int n_embd,
                              int64_t n_tokens);
// llama.cpp's form: [{index, embedding: [[...]]}]
json_t *kin_embedding_answer(const float *vectors, int n, int n_embd);
