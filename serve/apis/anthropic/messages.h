// Translates the bodies of Anthropic's /v1/messages and /v1/messages/count_tokens into the body of OpenAI's chat completions.
// kin_format_messages (serve/writer.h) writes the answers.
#pragma once

#include "serve/request/request.h"

// *out: a new body for kin_request_from_chat. A body of count_tokens may lack fields that only generation needs. Plain function.
int kin_messages_to_chat(json_t **out, const json_t *body, kin_api_error *err);
