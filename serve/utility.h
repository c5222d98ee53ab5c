// Utility requests, which are answered without computing the model: tokens of a text, a rendered prompt, a count. They run in
// libuv's pool, because a body may be large.
//
// Thread: the loop's.
#pragma once

#include <uv.h>

#include "serve/http/http_exchange.h"
#include "serve/lane.h"
#include "serve/prepare.h"

// Runs in the pool. Takes over the reference to body. *answer: a new reference.
typedef int (*kin_utility_fn)(const kin_preparer *preparer, const kin_request_defaults *defaults, json_t *body, json_t **answer,
                              kin_api_error *err);

// Runs `fn` and answers. format: the form of errors. The preparer and the defaults are borrowed until the loop has ended. huge:
// the lane of bodies of more than KIN_HUGE_BODY. *n_open counts the requests in progress.
void kin_utility_begin(kin_lane *huge, const kin_preparer *preparer, const kin_request_defaults *defaults, kin_utility_fn fn,
                       const kin_api_format *format, int *n_open, kin_http_exchange *x);

int kin_utility_tokenize(const kin_preparer *p, const kin_request_defaults *d, json_t *body, json_t **answer, kin_api_error *err);
int kin_utility_detokenize(const kin_preparer *p, const kin_request_defaults *d, json_t *body, json_t **answer,
                           kin_api_error *err);
int kin_utility_apply_template(const kin_preparer *p, const kin_request_defaults *d, json_t *body, json_t **answer,
                               kin_api_error *err);
// Return {"input_tokens": n}: Anthropic's count_tokens, and OpenAI's input_tokens for chats and for responses.
int kin_utility_count_messages(const kin_preparer *p, const kin_request_defaults *d, json_t *body, json_t **answer,
                               kin_api_error *err);
int kin_utility_count_chat(const kin_preparer *p, const kin_request_defaults *d, json_t *body, json_t **answer,
                           kin_api_error *err);
int kin_utility_count_responses(const kin_preparer *p, const kin_request_defaults *d, json_t *body, json_t **answer,
                                kin_api_error *err);
