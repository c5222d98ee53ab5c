// Translates any JSON as a body of the Anthropic, Responses and Ollama APIs. The result is an error with a status and a sentence,
// or a body that becomes a request or is refused with such an error.
#include "base/err.h"
#include "serve/apis/anthropic/messages.h"
#include "serve/apis/ollama/ollama.h"
#include "serve/apis/responses/responses.h"
#include "serve/request/request_chat.h"
#include "serve/request/request_prompts.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_error(const kin_api_error *err) {
    kin_assert(err->status >= 400 && err->status < 600 && err->type && err->message[0]);
}

// Parses a translated body as a chat or native request; on failure of the translation checks its error.
static void request(int rc, json_t *translated, bool is_chat, const kin_api_error *err) {
    kin_request_defaults defaults = {.sampler = kin_sampler_options_defaults(), .n_predict = -1};
    kin_request made;
    kin_api_error wrong = {0};
    if (rc != 0) {
        kin_assert(rc == KIN_FAIL);
        check_error(err);
        return;
    }
    kin_assert(json_is_object(translated));
    rc = is_chat ? kin_request_from_chat(&made, translated, &defaults, &wrong)
                 : kin_request_from_native(&made, translated, &defaults, &wrong);
    if (rc == 0) kin_request_fini(&made);
    if (rc != 0) check_error(&wrong);
}

static void ollama(int rc, kin_ollama_kind kind, json_t *translated, const kin_api_error *err) {
    if (rc != 0 || kind == KIN_OLLAMA_CHAT || kind == KIN_OLLAMA_NATIVE)
        request(rc, translated, kind == KIN_OLLAMA_CHAT, err);
    else
        json_decref(translated);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    json_t *body = json_loadb((const char *)bytes, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL), *out = NULL;
    kin_ollama_kind kind = KIN_OLLAMA_CHAT;
    kin_api_error err = {0};
    if (!body) return 0;
    int rc = kin_messages_to_chat(&out, body, &err);
    request(rc, out, true, &err);
    rc = kin_responses_to_chat(&out, body, &err);
    request(rc, out, true, &err);
    rc = kin_ollama_translate_chat(&kind, &out, body, &err);
    ollama(rc, kind, out, &err);
    rc = kin_ollama_translate_generate(&kind, &out, body, &err);
    ollama(rc, kind, out, &err);
    rc = kin_ollama_translate_embed(&out, body, &err);
    if (rc == 0) json_decref(out);
    if (rc != 0) check_error(&err);
    json_decref(body);
    return 0;
}
