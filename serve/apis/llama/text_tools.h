// Bodies of /tokenize, /detokenize and /apply-template: parsed requests, and answers as JSON. No tokenizer, no template.
//
// Plain functions. Answers are new references; NULL: out of memory.
#pragma once

#include "serve/request/request.h"

typedef struct kin_tokenize_request {
    json_t *body;    // owned
    kin_str content; // in the body
    bool add_special, parse_special, with_pieces;
} kin_tokenize_request;

// Takes over the body, even on failure. Missing content is empty content.
int kin_tokenize_parse(kin_tokenize_request *out, json_t *body, kin_api_error *err);
void kin_tokenize_fini(kin_tokenize_request *request);
// pieces: [n] bytes of the tokens; NULL: ids only. A piece that is not UTF-8 becomes an array of its bytes.
json_t *kin_tokenize_answer(const int32_t *ids, const kin_str *pieces, int n);

enum { KIN_DETOKENIZE_MAX = 1 << 22 }; // ids

// *ids: [*n], 0 .. INT32_MAX, free it; NULL if there are none. Takes over the body, even on failure.
int kin_detokenize_parse(int32_t **ids, int *n, json_t *body, kin_api_error *err);
json_t *kin_detokenize_answer(kin_str content);

// The body of /apply-template is a chat (kin_request_from_chat).
json_t *kin_apply_template_answer(kin_str prompt);
