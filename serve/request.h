// What a client asks the model for, whatever API it speaks: the parsed, checked, normalised form of a request's body.
//
// The APIs for chats (Anthropic, Responses, Ollama) translate their body into that of OpenAI's chat completions, and the rest is
// done once. Made outside of the loop's thread (a body may be large); afterwards it does not change.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/text/sampler.h"
#include "serve/api_error.h"

typedef enum kin_tool_choice { KIN_TOOLS_AUTO, KIN_TOOLS_NONE, KIN_TOOLS_REQUIRED, KIN_TOOLS_NAMED } kin_tool_choice;
typedef enum kin_reasoning { KIN_REASONING_AUTO, KIN_REASONING_ON, KIN_REASONING_OFF } kin_reasoning; // auto: the template's
typedef enum kin_tristate { KIN_UNSET = -1, KIN_NO, KIN_YES } kin_tristate;

enum {
    KIN_REQUEST_MAX_STOPS = 64,
    KIN_REQUEST_MAX_STOP_BYTES = 1024,
    KIN_REQUEST_MAX_BIAS = 4096,
    KIN_REQUEST_MAX_CHOICES = 128,  // of a prompt
    KIN_REQUEST_MAX_PROMPTS = 2048, // and prompts * choices
    KIN_REQUEST_MAX_PROBS = 100,
    KIN_REQUEST_MAX_FIELDS = 256, // response_fields
    KIN_REQUEST_MAX_TOOLS = 1024,
    KIN_REQUEST_PING_OF_SERVER = -2,
    KIN_REQUEST_MAX_TOOL_NAME = 64, // letters, digits, '_', '-', '.'
};

typedef struct kin_request {
    json_t *body;      // owned: the (translated) body; what follows points into it. NULL for none
    const char *model; // NULL: not said

    // A chat: messages as OpenAI has them, normalised: each content is a string (text parts are joined by "\n"), or null or
    // missing in an assistant's message that calls tools; "developer" is "system"; arguments of tool calls are strings.
    bool is_chat;
    const json_t *messages, *tools; // arrays; tools NULL: none
    kin_tool_choice tool_choice;
    const char *tool_name; // KIN_TOOLS_NAMED
    bool parallel_tool_calls;
    const json_t *template_kwargs;       // object or NULL
    kin_tristate thinking;               // enable_thinking; reasoning_effort "none", thinking {type: disabled}
    int thinking_budget;                 // tokens; -1: none
    const char *thinking_budget_message; // what is put in where the budget ends; NULL: nothing
    bool reasoning_in_content;           // reasoning_format "none"
    bool add_generation_prompt;
    bool continues_last; // prefill: the last message is the assistant's, has content and no tool calls, and is gone on with

    // Or prompts, each a string, or an array of ids (0 .. INT32_MAX) and strings.
    const json_t *prompts; // array, not empty
    bool add_special, parse_special;
    bool echo; // completions
    // Completions: the text that follows, for prompts that are to be framed by the vocabulary's tokens for infilling
    // (kin_request_frame_prompts). NULL: none.
    const json_t *suffix;

    int n_predict;    // -1: until the context is full; 0: the prompt only
    int n_choices;    // of each prompt: n, n_cmpl, best_of
    int n_best;       // completions: so many of them are returned, the likeliest; 0: all
    bool hides_probs; // they are wanted for that only
    int n_probs;      // tokens with probabilities at each place (top_logprobs); -1: none wanted, 0: only the chosen one's
    bool post_sampling_probs;
    int64_t t_max_predict_ms; // 0: none
    int n_indent;             // a line, but the first, with less white space at its start ends the text; 0: off
    kin_str stops[KIN_REQUEST_MAX_STOPS];
    int n_stops;
    kin_sampler_options sampler; // .bias points to `bias`
    bool has_seed;               // else one is drawn for each choice
    kin_logit_bias *bias;        // owned. Biases given as text are in `text_bias`, for who has the tokenizer
    const json_t *text_bias;     // array of [text, number or false (forbidden)]; NULL: none
    bool ignore_eos;
    const char *grammar;   // GBNF; NULL: none
    char *schema;          // JSON schema as text (response_format, json_schema, format); owned; NULL: none
    bool schema_is_strict; // what is not supported in it is an error

    bool stream, include_usage, timings_per_token, return_tokens, return_progress, cache_prompt;
    bool verbose;                  // the answer says under __verbose what was computed from what
    int id_slot;                   // -1: any
    const json_t *response_fields; // native; NULL: all
    int sse_ping_s;                // KIN_REQUEST_PING_OF_SERVER: not said; 0, -1: never
} kin_request;

void kin_request_fini(kin_request *request);

// What is made of a body with more bytes is freed outside of the loop's thread: it may be millions of values.
enum { KIN_LARGE_BODY = 256 << 10 };
// When it is freed, in the pool: what the allocator keeps of much memory goes back to the OS. n: bytes that were held.
void kin_request_trim(size_t n);
// In the pool: bodies of more bytes are prepared one after the other, so that what it takes to render and to tokenize them is
// there once. n: bytes of the body; after the last use of what was made of it, leave.
enum { KIN_HUGE_BODY = 4 << 20 };
void kin_request_enter(size_t n);
void kin_request_leave(size_t n);

// A body as JSON, a new reference; NULL with a 400 that tells the line. Strings may contain U+0000.
json_t *kin_request_parse(kin_str body, kin_api_error *err);

// The body of /v1/chat/completions, /v1/completions, /completion. Takes the body over, also when it fails, and changes it; then
// `out` needs no fini. Fails with 400; 501 for images and sound. Fields that are not known are ignored; what would change the
// sampling in a way that kin does not have is refused.
// `defaults`: sampling and n_predict of the server's command line, where the body says nothing.
typedef struct kin_request_defaults {
    kin_sampler_options sampler;
    int n_predict;
    bool limits_thinking;
    int thinking_budget;       // if it limits
    kin_reasoning reasoning;   // of chats that do not say whether to think
    bool reasoning_in_content; // likewise, where it goes
    bool verbose;
} kin_request_defaults;

// Roles that OpenAI's API has. What a template prints of another one is text, as all that clients write.
bool kin_request_knows_role(const json_t *role);
// Of OpenAI's own endpoints: 400 for a message of another role; then the request needs no fini. Other APIs take any.
int kin_request_check_roles(kin_request *request, kin_api_error *err);

int kin_request_from_chat(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err);
int kin_request_from_completions(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err);
int kin_request_from_native(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err);
