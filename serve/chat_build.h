// Builds bodies of OpenAI's chat completions, for the APIs that are translated into it. Plain functions; on allocation failure
// jansson leaves values out.
#pragma once

#include <jansson.h>

#include "pure/text/text_buffer.h"
#include "serve/request/fields.h"

// A message of the assistant under construction: several parts, items or blocks of the client's API make one message.
typedef struct kin_chat_turn {
    kin_text_buffer text, reasoning; // parts are joined by a newline
    json_t *calls;                   // tool_calls; NULL: none
    bool has_text;                   // the message has text, possibly empty
} kin_chat_turn;

// Appends a part to joined text; NULL appends nothing.
void kin_chat_join(kin_text_buffer *text, const json_t *part);
// Adds a tool call. Takes over `arguments`, a string of JSON.
void kin_chat_add_call(kin_chat_turn *turn, const json_t *id, const json_t *name, json_t *arguments);
// Appends the turn's message to messages, unless the turn is empty, and empties the turn.
void kin_chat_end_turn(kin_chat_turn *turn, json_t *messages);
void kin_chat_drop_turn(kin_chat_turn *turn);

// Appends {role, content}; frees the text.
void kin_chat_add_message(json_t *messages, const char *role, kin_text_buffer *text);
void kin_chat_add_tool_result(json_t *messages, const json_t *id, const json_t *name, kin_text_buffer *text); // name NULL: none

// Returns the JSON, serialised, as a JSON string.
json_t *kin_chat_json_string(const json_t *json);
// Returns {"type":"function","function":{"name":NAME}}.
json_t *kin_chat_named_choice(const json_t *name);
// Returns {"type":"json_schema","json_schema":{"name":NAME,"schema":SCHEMA}}.
json_t *kin_chat_schema_format(const char *name, const json_t *schema);
// Sets enable_thinking for the template, unless the client's own chat_template_kwargs set it.
void kin_chat_set_thinking(json_t *chat, bool on);
// Copies fields of kin's chat API that clients of the other APIs may also send: seed, sampling, grammar, chat_template_kwargs,
// ...
void kin_chat_copy_extensions(const kin_fields *body, json_t *chat);
