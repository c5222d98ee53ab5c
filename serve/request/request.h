// A client's request to the model, independent of the API: the parsed, checked, normalised form of a request's body.
//
// The other chat APIs (Anthropic, Responses, Ollama) translate their body into that of OpenAI's chat completions, so everything
// else is done once. Built outside the loop's thread, because a body may be large; immutable afterwards.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/sampling/sampler.h"
#include "serve/request/api_error.h"

typedef enum kin_tool_choice { KIN_TOOLS_AUTO, KIN_TOOLS_NONE, KIN_TOOLS_REQUIRED, KIN_TOOLS_NAMED } kin_tool_choice;
// AUTO: the template decides.
typedef enum kin_reasoning { KIN_REASONING_AUTO, KIN_REASONING_ON, KIN_REASONING_OFF } kin_reasoning;
typedef enum kin_tristate { KIN_UNSET = -1, KIN_NO, KIN_YES } kin_tristate;

enum {
    KIN_REQUEST_MAX_STOPS = 64,
    KIN_REQUEST_MAX_STOP_BYTES = 1024,
    KIN_REQUEST_MAX_BIAS = 4096,
    KIN_REQUEST_MAX_CHOICES = 128,  // per prompt
    KIN_REQUEST_MAX_PROMPTS = 2048, // also the limit of prompts * choices
    KIN_REQUEST_MAX_PROBS = 100,
    KIN_REQUEST_MAX_FIELDS = 256, // of response_fields
    KIN_REQUEST_MAX_TOOLS = 1024,
    KIN_REQUEST_PING_OF_SERVER = -2,
    KIN_REQUEST_MAX_TOOL_NAME = 64, // of letters, digits, '_', '-', '.'
};

typedef struct kin_request {
    json_t *body;      // owned: the (translated) body; the fields below point into it. NULL: none
    const char *model; // NULL: not given

    // A chat: messages in OpenAI's form, normalised. Each content is a string (text parts are joined by "\n"), or null or missing
    // in an assistant's message with tool calls; "developer" becomes "system"; arguments of tool calls are strings.
    bool is_chat;
    const json_t *messages, *tools; // arrays; tools NULL: none
    kin_tool_choice tool_choice;
    const char *tool_name; // for KIN_TOOLS_NAMED
    bool parallel_tool_calls;
    const json_t *template_kwargs;       // object or NULL
    kin_tristate thinking;               // enable_thinking; reasoning_effort "none", thinking {type: disabled}
    int thinking_budget;                 // tokens; -1: none
    const char *thinking_budget_message; // inserted where the budget ends; NULL: nothing
    bool reasoning_in_content;           // reasoning_format "none"
    bool add_generation_prompt;
    bool continues_last; // prefill: continue the last message, which is the assistant's, with content and without tool calls

    // Or prompts, each a string, or an array of ids (0 .. INT32_MAX) and strings.
    const json_t *prompts; // non-empty array
    bool add_special, parse_special;
    bool echo; // for completions
    // Completions: the text after the gap, for prompts to be framed with the vocabulary's infill tokens
    // (kin_request_frame_prompts). NULL: none.
    const json_t *suffix;

    int n_predict;    // -1: until the context is full; 0: the prompt only
    int n_choices;    // per prompt: n, n_cmpl, best_of
    int n_best;       // completions: return only this many, the most likely; 0: all
    bool hides_probs; // probabilities are needed only for n_best
    int n_probs; // top_logprobs: number of likeliest tokens to report per token; -1: no probabilities, 0: only the chosen token's
    bool post_sampling_probs;
    int64_t t_max_predict_ms; // 0: none
    int n_indent;             // a line other than the first that starts with less white space ends the text; 0: off
    kin_str stops[KIN_REQUEST_MAX_STOPS];
    int n_stops;
    kin_sampler_options sampler; // .bias points to `bias`
    bool has_seed;               // otherwise one is drawn per choice
    kin_logit_bias *bias;        // owned. Biases given as text are in `text_bias`, for the code that has the tokenizer
    const json_t *text_bias;     // array of [text, number or false (forbidden)]; NULL: none
    bool ignore_eos;
    const char *grammar;   // GBNF; NULL: none
    char *schema;          // JSON schema as text (response_format, json_schema, format); owned; NULL: none
    bool schema_is_strict; // unsupported parts of the schema are an error

    bool stream, include_usage, timings_per_token, return_tokens, return_progress, cache_prompt;
    bool verbose;                  // the answer reports the prompt and the settings under __verbose
    int id_slot;                   // -1: any
    const json_t *response_fields; // native API; NULL: all
    int sse_ping_s;                // KIN_REQUEST_PING_OF_SERVER: not given; 0, -1: never
} kin_request;

void kin_request_fini(kin_request *request);

// For larger bodies, free everything made of them outside the loop's thread: it may be millions of values.
enum { KIN_LARGE_BODY = 256 << 10 };
// Call in the pool after freeing, so that memory kept by the allocator goes back to the OS. n: bytes that were held.
void kin_request_trim(size_t n);
// Larger bodies are prepared in a lane (serve/lane.h), one after the other, so that the memory for rendering and tokenizing is
// needed only once, and other requests find threads in the pool.
enum { KIN_HUGE_BODY = 4 << 20 };

// Parses a body as JSON and returns a new reference; NULL with a 400 that names the line. Strings may contain U+0000.
json_t *kin_request_parse(kin_str body, kin_api_error *err);

// Server defaults for fields that a body leaves out: the command line's sampling and n_predict.
typedef struct kin_request_defaults {
    kin_sampler_options sampler;
    int n_predict;
    bool limits_thinking;
    int thinking_budget;       // if limits_thinking
    kin_reasoning reasoning;   // for chats that do not set thinking
    bool reasoning_in_content; // for chats that do not set where reasoning goes
    bool verbose;
} kin_request_defaults;

// ---- for the modules that read a body: request_chat.h, request_prompts.h

// Stores the body, which it takes over even on failure, and sets the defaults. 400 if the body is not an object.
int kin_request_begin(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err);
// Checks combinations of fields: sampler stages, grammar or schema, number of choices. Call it last.
int kin_request_check(kin_request *request, kin_api_error *err);
