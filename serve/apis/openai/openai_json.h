// JSON pieces shared by OpenAI's formats and llama.cpp's: errors, usage, timings, probabilities, ids of tool calls.
//
// Plain functions; NULL means "out of memory", which jansson's setters treat as "leave it out".
#pragma once

#include <jansson.h>

#include "serve/writer.h"

// Returns {"error":{code, message, type, param}}, with n_prompt_tokens and n_ctx if the context is too small. code is the error's
// own, else the status as a number, as in llama-server.
json_t *kin_openai_error(const kin_api_error *error);
void kin_openai_put_error(const kin_api_error *error, kin_text_buffer *out); // for kin_api_format.error
// For kin_api_format.fail: appends the error as an event. Ignores w.
void kin_openai_fail(kin_writer *w, const kin_api_error *error, kin_text_buffer *out);
// For kin_api_format.ping: a comment, which clients ignore.
#define KIN_OPENAI_PING ":\n\n"
#define KIN_OPENAI_DONE "data: [DONE]\n\n" // the end of a stream that did not fail

// Returns {id: PREFIX and the context's id, object, created, model, system_fingerprint, choices}. Takes over `choices`.
json_t *kin_openai_object(const kin_writer_context *context, const char *prefix, const char *object, json_t *choices);

// Sums over the choices of a response. A prompt with several choices counts once.
typedef struct kin_usage {
    kin_timings timings;
    int n_reasoning, n_choices;
} kin_usage;

void kin_usage_add(kin_usage *usage, const kin_finish *finish, bool is_first_of_prompt);
json_t *kin_usage_json(const kin_usage *usage);
// set_verbose adds __verbose if the request asks for it: the prompt as the model received it, and the settings, for the choice
// that has finished. set_usage adds `usage` and `timings` to a response, or to the last chunk of a stream.
void kin_openai_set_verbose(json_t *object, const kin_writer_context *context, const kin_finish *finish);
void kin_openai_set_usage(json_t *object, const kin_usage *usage);

kin_timings kin_finish_timings(const kin_finish *finish);
// Returns llama-server's timings of n_choices choices together. Speeds do not count the first token of each choice, which comes
// out of the prompt.
json_t *kin_timings_json(const kin_timings *timings, int n_choices);
// prompt_progress: {total, cache, processed, time_ms}
json_t *kin_progress_json(int n_done, int n_cached, int n_prompt, double ms);

// Appends the probabilities of the delta's tokens, if it has them, to an array: {id, token, bytes, logprob, top_logprobs: [...]},
// or prob and top_probs if is_prob.
void kin_openai_add_probs(json_t *array, const kin_delta *delta, bool is_prob);
// Converts a log-probability to a number that JSON can represent: no infinity.
double kin_probs_number(float logprob);

// Writes a NUL-terminated id for a tool call. Uses the model's own id, so that a later prompt repeats exactly the text that the
// model wrote. If it has none, or one that is not 1 to 64 letters, digits, '_' and '-': nine letters and digits, the only form
// that Mistral's templates accept.
enum { KIN_CALL_ID = 65 };
void kin_call_id(const kin_writer_context *context, int choice, int tool, kin_str own, char id[KIN_CALL_ID]);
