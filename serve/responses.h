// OpenAI's /v1/responses: its body as that of chat completions. The answers are written by kin_format_responses (serve/writer.h).
#pragma once

#include "serve/request.h"

// *out: a new body for kin_request_from_chat. Beside what that reads it has KIN_RESPONSES_ECHO: the fields of the request that a
// response repeats, with their defaults, for the writer. Plain function.
#define KIN_RESPONSES_ECHO "responses_echo"

int kin_responses_to_chat(json_t **out, const json_t *body, kin_api_error *err);
