// The body of /v1/chat/completions, into which the other chat APIs translate theirs. Thread: any; see request.h.
#pragma once

#include "serve/request/request.h"

// True for roles that OpenAI's API defines. If a template prints another role, it counts as text, like everything that clients
// write.
bool kin_request_knows_role(const json_t *role);

// True if it is a string that a tool may be called by: 1 to KIN_REQUEST_MAX_TOOL_NAME letters, digits, '_', '-' or '.'.
bool kin_request_is_tool_name(const json_t *name);

// For OpenAI's own endpoints: 400 if a message has another role; the request then needs no fini. Other APIs accept any role.
int kin_request_check_roles(kin_request *request, kin_api_error *err);

// Parses the body. Takes it over, even on failure, and changes it; after a failure `out` needs no fini. Fails with 400, or with
// 501 for images and sound. Unknown fields are ignored; fields that would change the sampling in a way that kin does not support
// are refused.
int kin_request_from_chat(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err);
