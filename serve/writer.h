// A response writer: turns the output of a generation (text, reasoning, tool calls, its end) into the bytes of one API, as a
// stream of events or as one JSON document. One table of functions per API.
//
// Pure translation: no I/O, no threads; times and ids are arguments. Owner and thread: the loop's.
#pragma once

#include "pure/chat/reply_parser.h" // kin_reply_event
#include "pure/sampling/draft.h"
#include "pure/text/text_buffer.h"
#include "serve/request/request.h"

// A token with its probability, and the likeliest alternatives.
typedef struct kin_token_prob {
    int32_t id;
    kin_str piece; // its bytes, not always UTF-8
    float logprob; // natural; may be -INFINITY. With request->post_sampling_probs: of what the sampler draws from
} kin_token_prob;

typedef struct kin_token_probs {
    kin_token_prob chosen;
    const kin_token_prob *top; // [n_top]
    int n_top;
} kin_token_probs;

// Progress of a choice: tokens and milliseconds.
typedef struct kin_timings {
    int n_prompt, n_cached, n_generated; // n_cached of n_prompt were in the prefix cache
    double prompt_ms, generated_ms;
    kin_draft_counts drafts;
} kin_timings;

// The output of one step of a choice: events (possibly none; text may be held back over several tokens), and its tokens.
typedef struct kin_delta {
    int choice;                    // 0 .. n - 1: prompt * n_choices + index
    const kin_reply_event *events; // [n_events]
    int n_events;
    const int32_t *tokens;        // [n_tokens] generated since the choice's last delta
    const kin_token_probs *probs; // [n_tokens], NULL: not wanted
    int n_tokens;
    // The tokens are the prompt's: request->echo with probabilities. Comes before anything else of the choice, without events.
    // The first token's logprob is NAN: it has none.
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
    kin_str stop_word;                                // for KIN_FINISH_STOP_WORD
    int n_prompt, n_cached, n_generated, n_reasoning; // tokens; n_cached of n_prompt were in the prefix cache
    double prompt_ms, generated_ms;
    kin_draft_counts drafts;
    bool truncated; // the context is full
    uint64_t seed;
    int slot;
} kin_finish;

// Facts about the server and the request that a writer needs.
typedef struct kin_writer_context {
    const kin_request *request;
    const char *model;       // the name that clients see
    const char *fingerprint; // system_fingerprint
    char id[40];             // random letters and digits; each API adds its own prefix
    int64_t created_s;       // seconds since 1970
    int n_choices;           // in total: prompts * n_choices
    int n_prompt;            // tokens of the first prompt, for APIs that report them before the first delta
    const kin_str *prompts;  // [number of prompts] as UTF-8 text, for `echo` and the native API; may be NULL
} kin_writer_context;

typedef struct kin_writer kin_writer; // an API's own state

typedef struct kin_api_format {
    const char *name;
    const char *stream_type; // "text/event-stream" or "application/x-ndjson"
    int (*open)(kin_writer **out, const kin_writer_context *context, kin_err *err); // the context is borrowed until close
    void (*close)(kin_writer *w);
    // Each appends to `out`: events if request->stream; otherwise nothing, except for `end`, which appends the document.
    void (*start)(kin_writer *w, kin_text_buffer *out); // before the first delta, possibly long before
    void (*progress)(kin_writer *w, int choice, int n_done, int n_cached, int n_prompt, double ms,
                     kin_text_buffer *out); // NULL: not supported
    void (*delta)(kin_writer *w, const kin_delta *delta, kin_text_buffer *out);
    void (*finish)(kin_writer *w, const kin_finish *finish, kin_text_buffer *out); // of one choice
    void (*end)(kin_writer *w, kin_text_buffer *out);                              // of all choices
    void (*fail)(kin_writer *w, const kin_api_error *error, kin_text_buffer *out); // in a stream; w NULL: before its start
    const char *ping; // keeps an idle stream alive; clients do not take it for text; NULL: the API has no such element
    // Appends the body of an answer with error->status. Needs no writer.
    void (*error)(const kin_api_error *error, kin_text_buffer *out);
} kin_api_format;

extern const kin_api_format kin_format_chat, kin_format_completions, kin_format_native; // serve/apis/*/format_*.c
extern const kin_api_format kin_format_responses, kin_format_messages;                  // Responses, Anthropic
extern const kin_api_format kin_format_ollama_chat, kin_format_ollama_generate;
