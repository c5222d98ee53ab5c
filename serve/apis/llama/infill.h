// /infill: generates the text between two given texts. The prompt frames them with the vocabulary's fill-in-the-middle tokens, in
// llama.cpp's order:
//   [repo]myproject [sep]file, text; ... [sep]filename [prefix]before, prompt [suffix]after [middle]
#pragma once

#include "pure/tokenizer/vocab.h"
#include "serve/request/request.h"

typedef struct kin_fim_tokens {
    int32_t prefix, suffix, middle; // required
    int32_t repo, separator;        // KIN_TOKEN_NONE: files are separated by text
} kin_fim_tokens;

// Finds the tokens by the file's keys, else by the names that llama.cpp knows. KIN_TOKEN_NONE for each that is missing.
kin_fim_tokens kin_fim_tokens_of(const kin_vocab *vocab);

// Reads input_prefix and input_suffix (each a string, or ids and strings), input_extra [{filename, text}], prompt (the beginning
// of the generated text), and the fields of the native API. Control tokens in texts are plain text. Drops "infill" from the
// samplers: kin has no such stage. 501 if the vocabulary lacks the tokens. Takes over the body, even on failure.
int kin_request_from_infill(kin_request *out, json_t *body, const kin_fim_tokens *tokens, const kin_request_defaults *defaults,
                            kin_api_error *err);

// Frames the prompts of completions that have a suffix: each becomes [prefix]prompt[suffix]suffix[middle]. Control tokens in them
// become plain text. 400 if the vocabulary lacks the tokens.
int kin_request_frame_prompts(kin_request *request, const kin_fim_tokens *tokens, kin_api_error *err);
