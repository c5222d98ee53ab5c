#include "serve/request/request_prompts.h"

#include <string.h>

#include "serve/request/request_sampling.h"

// ---- prompts

// Counts the kinds of elements in an array of prompts, or in one prompt.
typedef struct elements {
    int n_numbers, n_strings, n_others;
} elements;

static elements count_elements(const json_t *array) {
    elements e = {0};
    size_t i;
    json_t *one;
    json_array_foreach(array, i, one) {
        if (json_is_number(one))
            e.n_numbers++;
        else if (json_is_string(one))
            e.n_strings++;
        else
            e.n_others++;
    }
    return e;
}

// Checks one prompt of ids and strings.
static int check_ids(const char *name, const json_t *prompt, kin_api_error *err) {
    size_t i;
    json_t *one;
    int64_t id;
    json_array_foreach(prompt, i, one) {
        if (json_is_string(one)) continue;
        if (!json_is_number(one)) return kin_request_type_error(err, name, "number or string", one);
        if (kin_request_whole(name, one, 0, INT32_MAX, &id, err) < 0)
            return kin_api_error_set(
                err, 400, name,
                "Prompt contains invalid tokens: element %zu (from 0) of '%s' is %.20g, and ids of tokens are "
                "whole numbers from 0 on",
                i, name, json_number_value(one));
    }
    return 0;
}

// {prompt_string, multimodal_data}: accepted only without images and sound.
static int read_object(const char *name, const json_t *object, json_t **out, kin_api_error *err) {
    kin_fields body = {.index = -1}, fields = {.json = object, .parent = &body, .name = name, .index = -1};
    const json_t *text;
    if (json_array_size(json_object_get(object, "multimodal_data")) > 0)
        return kin_fields_wrong(&fields, "multimodal_data", err, 501, "kin supports text only");
    if (kin_fields_need(&fields, "prompt_string", KIN_FIELD_STRING, &text, err) < 0) return KIN_FAIL;
    *out = (json_t *)text;
    return 0;
}

// Appends one of several prompts.
static int add_prompt(json_t *prompts, const char *name, json_t *prompt, kin_api_error *err) {
    if (json_is_object(prompt)) {
        if (read_object(name, prompt, &prompt, err) < 0) return KIN_FAIL;
    } else if (json_is_array(prompt)) {
        if (json_array_size(prompt) == 0) return kin_api_error_set(err, 400, name, "Field '%s': a prompt has no tokens", name);
        if (check_ids(name, prompt, err) < 0) return KIN_FAIL;
    } else if (!json_is_string(prompt)) {
        return kin_request_type_error(err, name, "string or array", prompt);
    }
    return json_array_append(prompts, prompt) < 0 ? kin_api_error_memory(err) : 0;
}

// A string, or an array of ids (and strings), is one prompt; an array of strings, or one that contains arrays, is several.
static int add_prompts(json_t *prompts, const char *name, json_t *value, kin_api_error *err) {
    if (!json_is_array(value)) return add_prompt(prompts, name, value, err);
    elements e = count_elements(value);
    if (e.n_numbers > 0 && e.n_others == 0) return add_prompt(prompts, name, value, err);
    if (json_array_size(value) > KIN_REQUEST_MAX_PROMPTS)
        return kin_api_error_set(err, 400, name, "Field '%s': more than %d prompts", name, KIN_REQUEST_MAX_PROMPTS);
    size_t i;
    json_t *one;
    json_array_foreach(value, i, one) {
        if (add_prompt(prompts, name, one, err) < 0) return KIN_FAIL;
    }
    return 0;
}

int kin_request_prompts(json_t *body, const char *name, const json_t **out, kin_api_error *err) {
    json_t *value = json_object_get(body, name);
    if (json_is_array(value) && json_array_size(value) == 0)
        return kin_api_error_set(err, 400, name, "\"%s\" must not be empty", name);
    json_t *prompts = json_array();
    if (!prompts) return kin_api_error_memory(err);
    int rc = add_prompts(prompts, name, value, err);
    *out = prompts;
    if (json_object_set_new(body, name, prompts) < 0 && rc == 0) rc = kin_api_error_memory(err); // the body owns it
    return rc;
}

static int read_prompt(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    (void)value;
    return kin_request_prompts(r->body, name, &r->prompts, err);
}

static int check_prompts(kin_request *r, kin_api_error *err) {
    if (!r->prompts) return kin_api_error_set(err, 400, "prompt", "'prompt' is required");
    return kin_request_check(r, err);
}

// ---- completions

// Reads a number of tokens. Accepts true and false, too: some clients send the chat API's field.
static int read_logprobs(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    int64_t n = 0;
    if (json_is_false(value)) return 0;
    if (!json_is_true(value) && kin_request_whole(name, value, 0, KIN_REQUEST_MAX_PROBS, &n, err) < 0) return KIN_FAIL;
    if (n > r->n_probs) r->n_probs = (int)n;
    return 0;
}

static int read_suffix(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    if (!json_is_string(value)) return kin_request_type_error(err, name, "string", value);
    if (json_string_length(value) == 0) return 0;
    if (r->echo) return kin_api_error_set(err, 400, name, "Field '%s': cannot be combined with echo", name);
    r->suffix = value;
    return 0;
}

// Generates best_of sequences and returns the n best.
static int read_best_of(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    int64_t n;
    if (kin_request_whole(name, value, 0, KIN_REQUEST_MAX_CHOICES, &n, err) < 0) return KIN_FAIL;
    if (n > 0 && n < r->n_choices)
        return kin_api_error_set(err, 400, name, "Field '%s': must be at least n, which is %d", name, r->n_choices);
    if (n <= r->n_choices) return 0;
    if (r->stream) return kin_api_error_set(err, 400, name, "Field '%s': cannot be combined with stream", name);
    r->n_best = r->n_choices;
    r->n_choices = (int)n;
    r->hides_probs = r->n_probs < 0;
    if (r->hides_probs) r->n_probs = 0;
    return 0;
}

static const kin_request_field completions_fields[] = {
    KIN_ROW_OTHER("prompt", read_prompt),     KIN_ROW_BOOL("echo", echo),
    KIN_ROW_OTHER("logprobs", read_logprobs), KIN_ROW_OTHER("suffix", read_suffix),
    KIN_ROW_OTHER("best_of", read_best_of),   {.name = NULL},
};

int kin_request_from_completions(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err) {
    if (kin_request_begin(out, body, defaults, err) == 0 && kin_request_fields_read(out, kin_request_common_fields, err) == 0 &&
        kin_request_fields_read(out, completions_fields, err) == 0 && check_prompts(out, err) == 0)
        return 0;
    kin_request_fini(out);
    return KIN_FAIL;
}

// ---- native

static int read_response_fields(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    size_t i;
    json_t *one;
    if (!json_is_array(value)) return kin_request_type_error(err, name, "array", value);
    json_array_foreach(value, i, one) {
        if (!json_is_string(one)) return kin_request_type_error(err, name, "string", one);
    }
    if (json_array_size(value) > KIN_REQUEST_MAX_FIELDS)
        return kin_api_error_set(err, 400, name, "Field '%s': more than %d names", name, KIN_REQUEST_MAX_FIELDS);
    r->response_fields = json_array_size(value) > 0 ? value : NULL;
    return 0;
}

static const kin_request_field native_fields[] = {
    KIN_ROW_OTHER("prompt", read_prompt),
    KIN_ROW_OTHER("response_fields", read_response_fields),
    {.name = NULL},
};

int kin_request_from_native(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err) {
    if (kin_request_begin(out, body, defaults, err) == 0 && kin_request_fields_read(out, kin_request_common_fields, err) == 0 &&
        kin_request_fields_read(out, native_fields, err) == 0 && check_prompts(out, err) == 0)
        return 0;
    kin_request_fini(out);
    return KIN_FAIL;
}
