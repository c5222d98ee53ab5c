// /infill: the text between two others, as the prompt that the vocabulary's tokens for it frame, in the order of llama.cpp:
//   [repo]myproject [sep]file, text; ... [sep]filename [prefix]before, prompt [suffix]after [middle]
#pragma once

#include "pure/text/vocab.h"
#include "serve/request.h"

typedef struct kin_fim_tokens {
    int32_t prefix, suffix, middle; // needed
    int32_t repo, separator;        // KIN_TOKEN_NONE: files are separated by text
} kin_fim_tokens;

// By the file's keys, else by their names, as llama.cpp knows them. KIN_TOKEN_NONE for each that is not there.
kin_fim_tokens kin_fim_tokens_of(const kin_vocab *vocab);

// Fields: input_prefix, input_suffix (string, or ids and strings), input_extra [{filename, text}], prompt (what the text begins
// with), and those of the native API. Control tokens in texts are text. "infill" among the samplers is left out: kin has no such
// stage. 501 where the vocabulary has no tokens for it. Takes the body over, also when it fails.
int kin_request_from_infill(kin_request *out, json_t *body, const kin_fim_tokens *tokens, const kin_request_defaults *defaults,
                            kin_api_error *err);

// The prompts of completions with a suffix: each framed as [prefix]prompt[suffix]suffix[middle]. Control tokens in them are text
// from then on. 400 where the vocabulary has no tokens for it.
int kin_request_frame_prompts(kin_request *request, const kin_fim_tokens *tokens, kin_api_error *err);
