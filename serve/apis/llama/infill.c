#include "serve/apis/llama/infill.h"

#include <string.h>

#include "serve/request/fields.h"
#include "serve/request/request_prompts.h"

// ---- tokens

// Finds the token named by the file's keys, else by the first of these names that exists.
static int32_t find_first(const kin_vocab *vocab, kin_fim_role role, const char *const *names) {
    if (kin_vocab_fim(vocab, role) != KIN_TOKEN_NONE) return kin_vocab_fim(vocab, role);
    for (; *names; names++) {
        int32_t id = kin_vocab_find(vocab, *names, strlen(*names));
        if (id != KIN_TOKEN_NONE) return id;
    }
    return KIN_TOKEN_NONE;
}

// DeepSeek's names contain U+FF5C and U+2581, CodeLlama's U+2581.
kin_fim_tokens kin_fim_tokens_of(const kin_vocab *vocab) {
    static const char *const prefix[] = {
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim\u2581begin\uff5c>", "\u2581<PRE>", "<PRE>", NULL};
    static const char *const suffix[] = {
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim\u2581hole\uff5c>", "\u2581<SUF>", "<SUF>", NULL};
    static const char *const middle[] = {
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "\u2581<MID>", "<MID>", NULL};
    static const char *const repo[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", NULL};
    static const char *const separator[] = {"<|file_sep|>", NULL};
    return (kin_fim_tokens){find_first(vocab, KIN_FIM_PREFIX, prefix), find_first(vocab, KIN_FIM_SUFFIX, suffix),
                            find_first(vocab, KIN_FIM_MIDDLE, middle), find_first(vocab, KIN_FIM_REPO, repo),
                            find_first(vocab, KIN_FIM_SEPARATOR, separator)};
}

// ---- the prompt

static void add_text(json_t *prompt, const char *text) {
    json_array_append_new(prompt, json_string(text));
}

static void add_token(json_t *prompt, int32_t id) {
    if (id != KIN_TOKEN_NONE) json_array_append_new(prompt, json_integer(id));
}

// Adds a string, or an array of ids and strings, which is checked later with the prompt.
static int add_input(json_t *prompt, const kin_fields *body, const char *name, bool is_required, kin_api_error *err) {
    const json_t *input = kin_fields_any(body, name);
    if (!input) return is_required ? kin_fields_wrong(body, name, err, 400, "is required") : 0;
    if (json_is_array(input)) return json_array_extend(prompt, (json_t *)input) < 0 ? kin_api_error_memory(err) : 0;
    if (kin_fields_get(body, name, KIN_FIELD_STRING, &input, err) < 0) return KIN_FAIL;
    return json_array_append(prompt, (json_t *)input) < 0 ? kin_api_error_memory(err) : 0;
}

static int add_file(json_t *prompt, const kin_fields *body, const json_t *files, size_t i, int32_t separator,
                    kin_api_error *err) {
    kin_fields file;
    const json_t *name, *text;
    if (kin_fields_item(body, "input_extra", files, i, &file, err) < 0) return KIN_FAIL;
    if (kin_fields_get(&file, "filename", KIN_FIELD_STRING, &name, err) < 0) return KIN_FAIL;
    if (kin_fields_need(&file, "text", KIN_FIELD_STRING, &text, err) < 0) return KIN_FAIL;
    add_token(prompt, separator);
    if (separator != KIN_TOKEN_NONE) {
        json_array_append_new(prompt, json_sprintf("%s\n", name ? json_string_value(name) : "tmp"));
    } else {
        add_text(prompt, "\n\n--- snippet ---\n\n");
    }
    return json_array_append(prompt, (json_t *)text) < 0 ? kin_api_error_memory(err) : 0;
}

static int add_files(json_t *prompt, const kin_fields *body, const kin_fim_tokens *tokens, kin_api_error *err) {
    const json_t *files;
    if (kin_fields_get(body, "input_extra", KIN_FIELD_ARRAY, &files, err) < 0) return KIN_FAIL;
    add_token(prompt, tokens->repo);
    if (tokens->repo != KIN_TOKEN_NONE) add_text(prompt, "myproject\n");
    for (size_t i = 0; i < json_array_size(files); i++) {
        if (add_file(prompt, body, files, i, tokens->separator, err) < 0) return KIN_FAIL;
    }
    add_token(prompt, tokens->separator);
    if (tokens->separator != KIN_TOKEN_NONE) add_text(prompt, "filename\n");
    return 0;
}

static int build_prompt(json_t *prompt, const json_t *body, const kin_fim_tokens *tokens, kin_api_error *err) {
    kin_fields fields;
    const json_t *begun;
    if (kin_fields_open(&fields, body, err) < 0 || kin_fields_get(&fields, "prompt", KIN_FIELD_STRING, &begun, err) < 0)
        return KIN_FAIL;
    add_text(prompt, ""); // makes the tokenizer begin the prompt like any text
    if (add_files(prompt, &fields, tokens, err) < 0) return KIN_FAIL;
    add_token(prompt, tokens->prefix);
    if (add_input(prompt, &fields, "input_prefix", true, err) < 0 || add_input(prompt, &fields, "prompt", false, err) < 0)
        return KIN_FAIL;
    add_token(prompt, tokens->suffix);
    if (add_input(prompt, &fields, "input_suffix", true, err) < 0) return KIN_FAIL;
    add_token(prompt, tokens->middle);
    return 0;
}

// ---- the request

static void drop_infill_sampler(json_t *body) {
    json_t *samplers = json_object_get(body, "samplers");
    for (size_t i = json_array_size(samplers); i-- > 0;) {
        const char *name = json_string_value(json_array_get(samplers, i));
        if (name && strcmp(name, "infill") == 0) json_array_remove(samplers, i);
    }
}

static int check_tokens(const kin_fim_tokens *t, int status, const char *field, kin_api_error *err) {
    bool prefix = t->prefix != KIN_TOKEN_NONE, suffix = t->suffix != KIN_TOKEN_NONE, middle = t->middle != KIN_TOKEN_NONE;
    if (prefix && suffix && middle) return 0;
    return kin_api_error_set(err, status, field, "Infill is not supported by this model: %s%s%s",
                             prefix ? "" : "prefix token is missing. ", suffix ? "" : "suffix token is missing. ",
                             middle ? "" : "middle token is missing. ");
}

int kin_request_from_infill(kin_request *out, json_t *body, const kin_fim_tokens *tokens, const kin_request_defaults *defaults,
                            kin_api_error *err) {
    json_t *prompt = json_array();
    if (check_tokens(tokens, 501, NULL, err) < 0 || build_prompt(prompt, body, tokens, err) < 0) {
        json_decref(prompt);
        json_decref(body);
        *out = (kin_request){0};
        return KIN_FAIL;
    }
    drop_infill_sampler(body);
    if (json_object_set_new(body, "prompt", prompt) < 0) {
        json_decref(body);
        *out = (kin_request){0};
        return kin_api_error_memory(err);
    }
    if (kin_request_from_native(out, body, defaults, err) < 0) return KIN_FAIL;
    out->parse_special = false;
    return 0;
}

static int frame(json_t *framed, json_t *prompt, const json_t *suffix, const kin_fim_tokens *tokens) {
    json_t *ids = json_array();
    if (!ids || json_array_append_new(framed, ids) < 0) return KIN_FAIL;
    add_text(ids, ""); // makes the tokenizer begin the prompt like any text
    add_token(ids, tokens->prefix);
    int rc = json_is_array(prompt) ? json_array_extend(ids, prompt) : json_array_append(ids, prompt);
    add_token(ids, tokens->suffix);
    if (json_array_append(ids, (json_t *)suffix) < 0) rc = KIN_FAIL;
    add_token(ids, tokens->middle);
    return rc;
}

int kin_request_frame_prompts(kin_request *r, const kin_fim_tokens *tokens, kin_api_error *err) {
    json_t *framed = json_array();
    int rc = framed ? check_tokens(tokens, 400, "suffix", err) : kin_api_error_memory(err);
    for (size_t i = 0; i < json_array_size(r->prompts) && rc == 0; i++) {
        if (frame(framed, json_array_get(r->prompts, i), r->suffix, tokens) < 0) rc = kin_api_error_memory(err);
    }
    if (rc == 0 && json_object_set(r->body, "prompt", framed) < 0) rc = kin_api_error_memory(err); // the body owns it
    json_decref(framed);
    if (rc == 0) {
        r->prompts = framed;
        r->parse_special = false;
    } else {
        kin_request_fini(r);
    }
    return rc;
}
