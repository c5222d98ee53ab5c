// Translates the body of OpenAI's /v1/responses into that of chat completions. kin_format_responses (serve/writer.h) writes the
// answers.
#pragma once

#include "serve/request/request.h"

// *out: a new body for kin_request_from_chat. It also has KIN_RESPONSES_ECHO, which the writer needs: the request's fields that a
// response repeats, with their defaults. Plain function.
#define KIN_RESPONSES_ECHO "responses_echo"

int kin_responses_to_chat(json_t **out, const json_t *body, kin_api_error *err);
