// The bodies of /v1/completions and /completion: prompts instead of messages. Thread: any; see request.h.
#pragma once

#include "serve/request/request.h"

// Converts the field, which must be present, to an array of prompts, each a string, or an array of ids and strings. The array
// replaces the field.
int kin_request_prompts(json_t *body, const char *name, const json_t **out, kin_api_error *err);

// Parse the body. Take it over, even on failure, and change it; after a failure `out` needs no fini. Fail with 400. Unknown
// fields are ignored; fields that would change the sampling in a way that kin does not support are refused.
int kin_request_from_completions(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err);
int kin_request_from_native(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err);
