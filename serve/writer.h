// A response writer: turns what a generation gives (text, reasoning, tool calls, its end) into the bytes of one API, as a stream
// of events or as one JSON document. One table of functions an API.
//
// Pure translation: no I/O, no threads; times and ids come from outside. Owner and thread: the loop's.
#pragma once

#include "pure/text/draft.h"
#include "pure/text/reply_parser.h" // kin_reply_event
#include "pure/text/text_buffer.h"
#include "serve/request.h"

// A token with its probability, and the likeliest others at its place.
typedef struct kin_token_prob {
    int32_t id;
    kin_str piece; // its bytes, perhaps no UTF-8
    float logprob; // natural; -INFINITY is possible. With request->post_sampling_probs: of what the sampler draws from
} kin_token_prob;

typedef struct kin_token_probs {
    kin_token_prob chosen;
    const kin_token_prob *top; // [n_top]
    int n_top;
} kin_token_probs;

// How far a choice is: tokens, and milliseconds.
typedef struct kin_timings {
    int n_prompt, n_cached, n_generated; // n_cached of n_prompt were in the prefix cache
    double prompt_ms, generated_ms;
    kin_draft_counts drafts;
} kin_timings;

// What one step of a choice gave: events (zero or more; text of several tokens may come late, held back), and its tokens.
typedef struct kin_delta {
    int choice;                    // 0 .. n - 1: prompt * n_choices + which
    const kin_reply_event *events; // [n_events]
    int n_events;
    const int32_t *tokens;        // [n_tokens] written since the last delta of the choice
    const kin_token_probs *probs; // [n_tokens], NULL: not wanted
    int n_tokens;
    // The tokens are the prompt's: request->echo with probabilities, before anything else of the choice. No events. The first
    // token's logprob is NAN, it has none.
    bool is_prompt;
    kin_timings so_far;
} kin_delta;

typedef enum kin_finish_reason {
    KIN_FINISH_EOS,
    KIN_FINISH_STOP_WORD,
    KIN_FINISH_LENGTH,
    KIN_FINISH_TOOL_CALLS
} kin_finish_reason;

typedef struct kin_finish {
    int choice;
    kin_finish_reason reason;
    kin_str stop_word;                                // KIN_FINISH_STOP_WORD
    int n_prompt, n_cached, n_generated, n_reasoning; // tokens; n_cached of n_prompt were in the prefix cache
    double prompt_ms, generated_ms;
    kin_draft_counts drafts;
    bool truncated; // the context is full
    uint64_t seed;
    int slot;
} kin_finish;

// What a writer must know of the server and the request.
typedef struct kin_writer_context {
    const kin_request *request;
    const char *model;       // its alias
    const char *fingerprint; // system_fingerprint
    char id[40];             // random letters and digits; each API puts its own prefix before it
    int64_t created_s;       // seconds since 1970
    int n_choices;           // all: prompts * n_choices
    int n_prompt;            // tokens of the first prompt, for APIs that tell before the first delta
    const kin_str *prompts;  // [number of prompts] as UTF-8 text, for `echo` and the native API; may be NULL
} kin_writer_context;

typedef struct kin_writer kin_writer; // an API's own state

typedef struct kin_api_format {
    const char *name;
    const char *stream_type; // "text/event-stream" or "application/x-ndjson"
    int (*open)(kin_writer **out, const kin_writer_context *context, kin_err *err); // the context is borrowed until close
    void (*close)(kin_writer *w);
    // Each appends to `out`. With request->stream: events. Else nothing but in `end`, which appends the document.
    void (*start)(kin_writer *w, kin_text_buffer *out); // before the first delta; a client may get it long before that
    void (*progress)(kin_writer *w, int choice, int n_done, int n_cached, int n_prompt, double ms,
                     kin_text_buffer *out); // NULL: no
    void (*delta)(kin_writer *w, const kin_delta *delta, kin_text_buffer *out);
    void (*finish)(kin_writer *w, const kin_finish *finish, kin_text_buffer *out); // of one choice
    void (*end)(kin_writer *w, kin_text_buffer *out);                              // of all
    void (*fail)(kin_writer *w, const kin_api_error *error, kin_text_buffer *out); // in a stream; w NULL: before its start
    const char *ping; // what keeps an idle stream alive and no client takes for text; NULL: the API has nothing of the kind
    // The body of an answer with error->status. No writer is needed.
    void (*error)(const kin_api_error *error, kin_text_buffer *out);
} kin_api_format;

extern const kin_api_format kin_format_chat, kin_format_completions, kin_format_native; // serve/format_*.c
extern const kin_api_format kin_format_responses, kin_format_messages;                  // Responses, Anthropic
extern const kin_api_format kin_format_ollama_chat, kin_format_ollama_generate;
