// Parses any bytes as the body of a request of OpenAI's or llama.cpp's APIs. The result is an error with a status of 4xx or 5xx,
// or a request within its bounds; nothing leaks. The first byte chooses the API.
#include <stdlib.h>
#include <string.h>

#include "serve/apis/llama/infill.h"
#include "serve/apis/llama/text_tools.h"
#include "serve/apis/openai/embeddings.h"
#include "serve/request/request_chat.h"
#include "serve/request/request_prompts.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

typedef int parse_request(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err);

static void check_error(const kin_api_error *err) {
    kin_assert(err->status >= 400 && err->status < 600 && err->message[0] && err->type);
}

static void check_sampler(const kin_sampler_options *options) {
    kin_sampler *sampler;
    kin_err err = {""};
    if (kin_sampler_new(&sampler, 8, options, &err) == 0)
        kin_sampler_free(sampler);
    else
        kin_assert(strstr(err.text, "bias")); // the only error: a bias for a token outside the vocabulary
}

static void check_request(const kin_request *r) {
    kin_assert(r->n_choices >= 1 && r->n_choices <= KIN_REQUEST_MAX_CHOICES && r->n_predict >= -1);
    kin_assert(r->n_probs >= -1 && r->n_probs <= KIN_REQUEST_MAX_PROBS && r->n_stops <= KIN_REQUEST_MAX_STOPS);
    for (int i = 0; i < r->n_stops; i++) kin_assert(r->stops[i].len > 0 && r->stops[i].len <= KIN_REQUEST_MAX_STOP_BYTES);
    kin_assert(!r->grammar || !r->schema);
    kin_assert((r->tool_choice == KIN_TOOLS_NAMED) == (r->tool_name != NULL));
    size_t i;
    json_t *one;
    json_array_foreach(r->messages, i, one) {
        json_t *content = json_object_get(one, "content");
        kin_assert(json_string_length(json_object_get(one, "role")) > 0);
        kin_assert(!content || json_is_null(content) || json_is_string(content));
    }
    json_array_foreach(r->prompts, i, one) kin_assert(json_is_string(one) || json_is_array(one));
    kin_assert(json_array_size(r->is_chat ? r->messages : r->prompts) > 0);
    check_sampler(&r->sampler);
}

static int parse_infill(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err) {
    static const kin_fim_tokens tokens = {1, 2, 3, 4, 5};
    return kin_request_from_infill(out, body, &tokens, defaults, err);
}

// Parses a generation request of one API.
static void try_request(parse_request *parse, json_t *body) {
    kin_request_defaults defaults = {.sampler = kin_sampler_options_defaults(), .n_predict = -1};
    kin_request request;
    kin_api_error err = {0};
    if (parse(&request, body, &defaults, &err) == 0) {
        check_request(&request);
        kin_request_fini(&request);
    } else {
        check_error(&err);
        kin_assert(!request.body);
    }
}

static void try_embeddings(json_t *body) {
    kin_embeddings_request request;
    kin_api_error err = {0};
    if (kin_embeddings_parse(&request, body, 8, &err) == 0) {
        kin_assert(json_array_size(request.inputs) > 0);
        kin_embeddings_fini(&request);
    } else {
        check_error(&err);
    }
}

static void try_tokenize(json_t *body) {
    kin_tokenize_request request;
    kin_api_error err = {0};
    if (kin_tokenize_parse(&request, body, &err) == 0)
        kin_tokenize_fini(&request);
    else
        check_error(&err);
}

static void try_detokenize(json_t *body) {
    int32_t *ids;
    int n;
    kin_api_error err = {0};
    if (kin_detokenize_parse(&ids, &n, body, &err) < 0) check_error(&err);
    for (int i = 0; i < n; i++) kin_assert(ids[i] >= 0);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    kin_api_error err = {0};
    if (size < 1) return 0;
    json_t *body = kin_request_parse((kin_str){(const char *)bytes + 1, size - 1}, &err);
    if (!body) {
        check_error(&err);
        return 0;
    }
    switch (bytes[0]) {
    case '0': try_request(kin_request_from_chat, body); break;
    case '1': try_request(kin_request_from_completions, body); break;
    case '2': try_request(kin_request_from_native, body); break;
    case '3': try_request(parse_infill, body); break;
    case '4': try_embeddings(body); break;
    case '5': try_tokenize(body); break;
    case '6': try_detokenize(body); break;
    default: json_decref(body);
    }
    return 0;
}
