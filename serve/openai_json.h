// Pieces of JSON that OpenAI's formats and llama.cpp's have in common: errors, usage, timings, probabilities, ids of tool calls.
//
// Plain functions; NULL is "no memory", which jansson's setters take as "leave it out".
#pragma once

#include <jansson.h>

#include "serve/writer.h"

// {"error":{code, message, type, param}}; with n_prompt_tokens and n_ctx where the context is too small. code is the error's own,
// else the status as a number, as llama-server has it.
json_t *kin_openai_error(const kin_api_error *error);
void kin_openai_put_error(const kin_api_error *error, kin_text_buffer *out); // kin_api_format.error
// kin_api_format.fail: an event with it. w is not looked at.
void kin_openai_fail(kin_writer *w, const kin_api_error *error, kin_text_buffer *out);
// kin_api_format.ping: a comment, which clients ignore.
#define KIN_OPENAI_PING ":\n\n"
#define KIN_OPENAI_DONE "data: [DONE]\n\n" // the end of a stream that did not fail

// {id: PREFIX and the context's id, object, created, model, system_fingerprint, choices}. Takes `choices` over.
json_t *kin_openai_object(const kin_writer_context *context, const char *prefix, const char *object, json_t *choices);

// Sums over the choices of a response. A prompt that has several choices counts once.
typedef struct kin_usage {
    kin_timings timings;
    int n_reasoning, n_choices;
} kin_usage;

void kin_usage_add(kin_usage *usage, const kin_finish *finish, bool is_first_of_prompt);
json_t *kin_usage_json(const kin_usage *usage);
// Adds `usage` and `timings` to a response, or to the last chunk of a stream.
// __verbose, if the request wants it: the prompt as the model got it, and the settings. Of the choice that has finished.
void kin_openai_set_verbose(json_t *object, const kin_writer_context *context, const kin_finish *finish);
void kin_openai_set_usage(json_t *object, const kin_usage *usage);

kin_timings kin_finish_timings(const kin_finish *finish);
// llama-server's, of n_choices choices together. The first token of each comes out of the prompt: speeds count the others.
json_t *kin_timings_json(const kin_timings *timings, int n_choices);
// prompt_progress: {total, cache, processed, time_ms}
json_t *kin_progress_json(int n_done, int n_cached, int n_prompt, double ms);

// A token's probabilities: {id, token, bytes, logprob, top_logprobs: [...]}, or prob and top_probs (is_prob).
json_t *kin_probs_json(const kin_token_probs *probs, bool is_prob);
// What JSON can say: no infinity.
double kin_probs_number(float logprob);

// An id for a tool call, NUL-terminated: the model's own, so that the prompt in which it comes back is what the model wrote; if
// it has none, or one that is not 1 to 64 letters, digits, '_' and '-', nine letters and digits: Mistral's templates take no
// other.
enum { KIN_CALL_ID = 65 };
void kin_call_id(const kin_writer_context *context, int choice, int tool, kin_str own, char id[KIN_CALL_ID]);
