#include "serve/apis/ollama/ollama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/chat_build.h"

// State of a translation.
typedef struct translation {
    kin_fields body;
    json_t *out;
    bool is_native;
    json_t *messages;
    json_t *open_calls; // calls without a result so far: {id, name}
    int n_calls;
} translation;

static bool has_items(const kin_fields *of, const char *name) {
    return json_array_size(kin_fields_any(of, name)) > 0;
}

static bool has_text(const kin_fields *of, const char *name) {
    return json_string_length(kin_fields_any(of, name)) > 0;
}

static int refuse_images(const kin_fields *of, kin_api_error *err) {
    return has_items(of, "images") ? kin_fields_wrong(of, "images", err, 501, "this server supports text only") : 0;
}

// ---- options

static int add_options(translation *t, kin_api_error *err) {
    static const char *const same[] = {"temperature",    "top_k",
                                       "top_p",          "min_p",
                                       "typical_p",      "seed",
                                       "stop",           "repeat_last_n",
                                       "repeat_penalty", "presence_penalty",
                                       "mirostat",       "frequency_penalty",
                                       "mirostat_tau",   "mirostat_eta",
                                       "top_n_sigma",    NULL};
    const json_t *n;
    kin_fields options;
    if (kin_fields_object(&t->body, "options", &options, err) != 0) return KIN_FAIL;
    if (!options.json) return 0;
    if (kin_fields_get(&options, "num_predict", KIN_FIELD_INTEGER, &n, err) != 0) return KIN_FAIL;
    kin_fields_copy(&options, same, t->out);
    if (!n) return 0;
    bool is_endless = json_number_value(n) < 0;
    json_object_set_new(t->out, "n_predict", is_endless ? json_integer(-1) : json_incref((json_t *)n));
    return 0;
}

// Reads "json", or a schema.
static int add_format(translation *t, kin_api_error *err) {
    const json_t *format = kin_fields_any(&t->body, "format");
    if (!format || (json_is_string(format) && !json_string_length(format))) return 0;
    bool is_any = kin_fields_is(&t->body, "format", "json");
    if (!is_any && !json_is_object(format))
        return kin_fields_wrong(&t->body, "format", err, 400, "must be \"json\" or a JSON schema");
    json_t *made = json_object();
    json_object_set_new(made, "type", json_string(t->is_native ? "object" : "json_object"));
    if (!is_any) {
        json_decref(made);
        made = t->is_native ? json_incref((json_t *)format) : kin_chat_schema_format("format", format);
    }
    json_object_set_new(t->out, t->is_native ? "json_schema" : "response_format", made);
    return 0;
}

// Reads true, false, or an effort: "low", "medium", "high".
static int add_thinking(translation *t, kin_api_error *err) {
    const json_t *think = kin_fields_any(&t->body, "think");
    if (!think || t->is_native) return 0;
    if (!json_is_boolean(think) && !json_is_string(think))
        return kin_fields_wrong(&t->body, "think", err, 400, "must be a boolean or a string (level)");
    kin_chat_set_thinking(t->out, !json_is_false(think));
    if (json_is_string(think)) kin_fields_copy_as(&t->body, "think", t->out, "reasoning_effort");
    return 0;
}

static int add_probs(translation *t, kin_api_error *err) {
    const json_t *wanted, *n;
    if (kin_fields_get(&t->body, "logprobs", KIN_FIELD_BOOL, &wanted, err) != 0) return KIN_FAIL;
    if (kin_fields_get(&t->body, "top_logprobs", KIN_FIELD_INTEGER, &n, err) != 0) return KIN_FAIL;
    if (!json_is_true(wanted)) return 0;
    if (t->is_native) {
        json_object_set_new(t->out, "n_probs", n ? json_incref((json_t *)n) : json_integer(1));
        return 0;
    }
    json_object_set_new(t->out, "logprobs", json_true());
    kin_fields_copy_as(&t->body, "top_logprobs", t->out, "top_logprobs");
    return 0;
}

static int add_common(translation *t, kin_api_error *err) {
    const json_t *stream;
    if (kin_fields_get(&t->body, "stream", KIN_FIELD_BOOL, &stream, err) != 0) return KIN_FAIL;
    json_object_set_new(t->out, "stream", json_boolean(!json_is_false(stream)));
    kin_fields_copy_as(&t->body, "model", t->out, "model");
    if (add_options(t, err) != 0 || add_format(t, err) != 0 || add_thinking(t, err) != 0) return KIN_FAIL;
    return add_probs(t, err);
}

bool kin_ollama_lets_go(const json_t *keep_alive) {
    if (json_is_number(keep_alive)) return json_number_value(keep_alive) == 0;
    if (!json_is_string(keep_alive)) return false;
    const char *text = json_string_value(keep_alive);
    do { // "0h5m" has several numbers
        char *end;
        if (strtod(text, &end) != 0 || end == text) return false;
        text = end + strcspn(end, "+-.0123456789");
    } while (*text);
    return true;
}

// A body without anything to generate only loads the model, or unloads it if keep_alive is 0.
static kin_ollama_kind only_model(translation *t) {
    const json_t *keep = kin_fields_any(&t->body, "keep_alive");
    json_object_clear(t->out);
    kin_fields_copy_as(&t->body, "model", t->out, "model");
    return kin_ollama_lets_go(keep) ? KIN_OLLAMA_UNLOAD : KIN_OLLAMA_LOAD;
}

static int finish_translation(translation *t, json_t **out, int rc) {
    json_decref(t->open_calls);
    if (rc == 0 && t->messages) json_object_set(t->out, "messages", t->messages);
    json_decref(t->messages);
    if (rc == 0) *out = t->out;
    if (rc != 0) json_decref(t->out);
    return rc;
}

// ---- chat

// Ollama's calls need no ids: calls without one get an id here, of the length that Mistral's templates require, and results are
// matched by name.
static int add_call(translation *t, const kin_fields *call, kin_chat_turn *turn, kin_api_error *err) {
    const json_t *id, *name, *arguments;
    kin_fields function;
    char made[24];
    if (kin_fields_get(call, "id", KIN_FIELD_STRING, &id, err) != 0) return KIN_FAIL;
    if (kin_fields_object(call, "function", &function, err) != 0) return KIN_FAIL;
    if (!function.json) return kin_fields_wrong(call, "function", err, 400, "is required");
    if (kin_fields_need(&function, "name", KIN_FIELD_STRING, &name, err) != 0) return KIN_FAIL;
    if (kin_fields_get(&function, "arguments", KIN_FIELD_OBJECT, &arguments, err) != 0) return KIN_FAIL;
    snprintf(made, sizeof made, "call%05d", t->n_calls++);
    json_t *own = id ? json_incref((json_t *)id) : json_string(made), *open = json_object();
    kin_chat_add_call(turn, own, name, arguments ? kin_chat_json_string(arguments) : json_string("{}"));
    json_object_set_new(open, "id", own);
    json_object_set(open, "name", (json_t *)name);
    json_array_append_new(t->open_calls, open);
    return 0;
}

static int add_assistant(translation *t, const kin_fields *message, const json_t *content, kin_api_error *err) {
    const json_t *thinking, *calls;
    kin_fields call;
    kin_chat_turn turn = {.has_text = true};
    if (kin_fields_get(message, "thinking", KIN_FIELD_STRING, &thinking, err) != 0) return KIN_FAIL;
    if (kin_fields_get(message, "tool_calls", KIN_FIELD_ARRAY, &calls, err) != 0) return KIN_FAIL;
    kin_chat_join(&turn.text, content);
    kin_chat_join(&turn.reasoning, thinking);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        if (kin_fields_item(message, "tool_calls", calls, i, &call, err) != 0 || add_call(t, &call, &turn, err) != 0) {
            kin_chat_drop_turn(&turn);
            return KIN_FAIL;
        }
    }
    kin_chat_end_turn(&turn, t->messages);
    return 0;
}

// Removes the first open call of that name, else the first one, and returns its id; NULL: none is open.
static json_t *answered_call(translation *t, const json_t *name) {
    size_t n = json_array_size(t->open_calls), i = 0;
    while (i < n && !json_equal(json_object_get(json_array_get(t->open_calls, i), "name"), name)) i++;
    if (i == n) i = 0;
    json_t *call = json_array_get(t->open_calls, i), *id = json_incref(json_object_get(call, "id"));
    json_array_remove(t->open_calls, i);
    return id;
}

static int add_tool_result(translation *t, const kin_fields *message, const json_t *content, kin_api_error *err) {
    const json_t *name, *id;
    kin_text_buffer text = {0};
    const char *field = kin_fields_any(message, "tool_name") ? "tool_name" : "name";
    if (kin_fields_get(message, field, KIN_FIELD_STRING, &name, err) != 0) return KIN_FAIL;
    if (kin_fields_get(message, "tool_call_id", KIN_FIELD_STRING, &id, err) != 0) return KIN_FAIL;
    json_t *own = id ? json_incref((json_t *)id) : answered_call(t, name);
    kin_chat_join(&text, content);
    kin_chat_add_tool_result(t->messages, own, name, &text);
    json_decref(own);
    return 0;
}

static int add_message(translation *t, const kin_fields *message, kin_api_error *err) {
    const json_t *role, *content;
    kin_text_buffer text = {0};
    if (kin_fields_need(message, "role", KIN_FIELD_STRING, &role, err) != 0 || refuse_images(message, err) != 0) return KIN_FAIL;
    if (kin_fields_get(message, "content", KIN_FIELD_STRING, &content, err) != 0) return KIN_FAIL;
    if (kin_fields_is(message, "role", "assistant")) return add_assistant(t, message, content, err);
    if (kin_fields_is(message, "role", "tool")) return add_tool_result(t, message, content, err);
    kin_chat_join(&text, content);
    kin_chat_add_message(t->messages, json_string_value(role), &text);
    return 0;
}

static int translate_chat(translation *t, kin_ollama_kind *kind, kin_api_error *err) {
    const json_t *messages, *tools;
    kin_fields message;
    *kind = KIN_OLLAMA_CHAT;
    if (add_common(t, err) != 0) return KIN_FAIL;
    if (kin_fields_get(&t->body, "messages", KIN_FIELD_ARRAY, &messages, err) != 0) return KIN_FAIL;
    if (kin_fields_get(&t->body, "tools", KIN_FIELD_ARRAY, &tools, err) != 0) return KIN_FAIL;
    if (json_array_size(messages) == 0) {
        *kind = only_model(t);
        return 0;
    }
    t->messages = json_array();
    t->open_calls = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (kin_fields_item(&t->body, "messages", messages, i, &message, err) != 0) return KIN_FAIL;
        if (add_message(t, &message, err) != 0) return KIN_FAIL;
    }
    if (json_array_size(tools) > 0) {
        kin_fields_copy_as(&t->body, "tools", t->out, "tools");
        json_object_set_new(t->out, "parallel_tool_calls", json_true());
    }
    return 0;
}

int kin_ollama_translate_chat(kin_ollama_kind *kind, json_t **out, const json_t *body, kin_api_error *err) {
    translation t = {.out = json_object()};
    int rc = kin_fields_open(&t.body, body, err);
    if (rc == 0) rc = translate_chat(&t, kind, err);
    return finish_translation(&t, out, rc);
}

// ---- generate

// Refuses fields that would change the prompt in a way that kin does not support.
static int refuse_others(const kin_fields *body, kin_api_error *err) {
    if (has_text(body, "suffix")) return kin_fields_wrong(body, "suffix", err, 501, "is not supported here: use /infill");
    if (has_text(body, "template")) return kin_fields_wrong(body, "template", err, 501, "is not supported: use raw");
    if (has_items(body, "context"))
        return kin_fields_wrong(body, "context", err, 501, "is not supported: send messages to /api/chat");
    return refuse_images(body, err);
}

static int translate_generate(translation *t, kin_ollama_kind *kind, kin_api_error *err) {
    const json_t *prompt, *system, *raw;
    kin_text_buffer text = {0};
    if (kin_fields_get(&t->body, "raw", KIN_FIELD_BOOL, &raw, err) != 0) return KIN_FAIL;
    if (kin_fields_get(&t->body, "prompt", KIN_FIELD_STRING, &prompt, err) != 0) return KIN_FAIL;
    if (kin_fields_get(&t->body, "system", KIN_FIELD_STRING, &system, err) != 0) return KIN_FAIL;
    t->is_native = json_is_true(raw);
    if (refuse_others(&t->body, err) != 0 || add_common(t, err) != 0) return KIN_FAIL;
    *kind = t->is_native ? KIN_OLLAMA_NATIVE : KIN_OLLAMA_CHAT;
    if (!has_text(&t->body, "prompt")) {
        *kind = only_model(t);
    } else if (t->is_native) {
        kin_fields_copy_as(&t->body, "prompt", t->out, "prompt");
    } else {
        t->messages = json_array();
        kin_chat_join(&text, system);
        if (text.len) kin_chat_add_message(t->messages, "system", &text);
        kin_chat_join(&text, prompt);
        kin_chat_add_message(t->messages, "user", &text);
    }
    return 0;
}

int kin_ollama_translate_generate(kin_ollama_kind *kind, json_t **out, const json_t *body, kin_api_error *err) {
    translation t = {.out = json_object()};
    int rc = kin_fields_open(&t.body, body, err);
    if (rc == 0) rc = translate_generate(&t, kind, err);
    return finish_translation(&t, out, rc);
}

// ---- embed

int kin_ollama_translate_embed(json_t **out, const json_t *body, kin_api_error *err) {
    static const char *const same[] = {"model", "input", "dimensions", NULL};
    translation t = {.out = json_object()};
    int rc = kin_fields_open(&t.body, body, err);
    if (rc == 0) {
        kin_fields_copy_as(&t.body, "prompt", t.out, "input");
        kin_fields_copy(&t.body, same, t.out);
        json_object_set_new(t.out, "truncate", json_true()); // unless the body turns it off
        kin_fields_copy_as(&t.body, "truncate", t.out, "truncate");
        const json_t *input = json_object_get(t.out, "input");
        if (!input) rc = kin_fields_wrong(&t.body, "input", err, 400, "is required");
        if (input && !json_is_string(input) && !json_is_array(input))
            rc = kin_fields_wrong(&t.body, "input", err, 400, "must be a string or an array of strings");
    }
    return finish_translation(&t, out, rc);
}
