// Prompts: what a model reads for a chat or a text, as tokens. Knows the model's chat template and what it can do.
//
// Immutable after open: any number of threads may make prompts at once (a server makes them in libuv's pool). The session is
// borrowed.
#pragma once

#include "node/session.h"
#include "pure/text/tool_format.h"
#include "serve/request.h"

typedef struct kin_prompter kin_prompter;

// source: a chat template in place of the model's own; NULL: the model's. Fails where `source` does not compile. Where the
// model's own does not, a warning is logged, and chats are refused with 501: texts and embeddings need no template.
int kin_prompter_open(kin_prompter **out, const kin_session *session, const char *source, kin_err *err);
void kin_prompter_close(kin_prompter *prompter);

// The chat template's text; NULL at: the model has none, and texts are put one after the other.
kin_str kin_prompter_template(const kin_prompter *prompter);
const kin_tool_format *kin_prompter_format(const kin_prompter *prompter);

// A prompt: its text, and who wrote which part of it.
typedef struct kin_prompt {
    kin_text_buffer text;
    kin_text_range *trusted; // [n_trusted] what the template wrote
    size_t n_trusted;
} kin_prompt;

void kin_prompt_fini(kin_prompt *prompt);

// Renders a chat. Fails with 400 where the template refuses the messages.
int kin_prompter_render(const kin_prompter *prompter, const kin_request *request, kin_prompt *out, kin_api_error *err);

// Its tokens, as a new array.
int kin_prompter_encode(const kin_prompter *prompter, const kin_prompt *prompt, int32_t **ids, int *n, kin_api_error *err);

// Tokens of a string, or of an array of ids and strings (one of request->prompts), as a new array.
int kin_prompter_encode_json(const kin_prompter *prompter, const json_t *from, bool add_special, bool parse_special,
                             int32_t **ids, int *n, kin_api_error *err);

// The text of tokens; control tokens as they are written if `special`.
int kin_prompter_text(const kin_prompter *prompter, const int32_t *ids, int n, bool special, kin_text_buffer *out, kin_err *err);
