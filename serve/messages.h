// Anthropic's /v1/messages and /v1/messages/count_tokens: their bodies as the body of OpenAI's chat completions. The answers are
// written by kin_format_messages (serve/writer.h).
#pragma once

#include "serve/request.h"

// *out: a new body for kin_request_from_chat. That of count_tokens may lack what only generating needs. Plain function.
int kin_messages_to_chat(json_t **out, const json_t *body, kin_api_error *err);
