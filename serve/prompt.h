// Builds prompts: the tokens that a model reads for a chat or a text. Holds the model's chat template and its detected abilities.
//
// Immutable after open: any number of threads may build prompts at once (a server does so in libuv's pool). The session is
// borrowed.
#pragma once

#include "cluster/session.h"
#include "pure/chat/tool_format.h"
#include "serve/request/request.h"

typedef struct kin_prompter kin_prompter;

// source: a chat template that replaces the model's own; NULL: the model's. Fails if `source` does not compile. If the model's
// own does not compile, logs a warning and refuses chats with 501; texts and embeddings need no template.
int kin_prompter_open(kin_prompter **out, const kin_session *session, const char *source, kin_err *err);
void kin_prompter_close(kin_prompter *prompter);

// Returns the chat template's text; .at NULL: the model has none, and messages are concatenated.
kin_str kin_prompter_template(const kin_prompter *prompter);
const kin_tool_format *kin_prompter_format(const kin_prompter *prompter);

// A prompt's text, with the origin of each part.
typedef struct kin_prompt {
    kin_text_buffer text;
    kin_text_range *trusted; // [n_trusted] ranges written by the template
    size_t n_trusted;
} kin_prompt;

void kin_prompt_fini(kin_prompt *prompt);

// Renders a chat. Fails with 400 if the template rejects the messages.
int kin_prompter_render(const kin_prompter *prompter, const kin_request *request, kin_prompt *out, kin_api_error *err);

// Tokenizes a prompt into a new array.
int kin_prompter_encode(const kin_prompter *prompter, const kin_prompt *prompt, int32_t **ids, int *n, kin_api_error *err);

// Tokenizes a string, or an array of ids and strings (one of request->prompts), into a new array.
int kin_prompter_encode_json(const kin_prompter *prompter, const json_t *from, bool add_special, bool parse_special,
                             int32_t **ids, int *n, kin_api_error *err);

// Appends the text of tokens; with `special`, control tokens appear as text.
int kin_prompter_text(const kin_prompter *prompter, const int32_t *ids, int n, bool special, kin_text_buffer *out, kin_err *err);
