#include "pure/chat/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/text/json.h"

enum { MAX_BYTES = 4 << 20, MAX_STEPS = 1 << 20 };

#define PARAMETERS                                                                                                               \
    "{\"type\":\"object\",\"properties\":{\"kin_key\":{\"type\":\"string\",\"description\":\"a\"},\"kin_list\":{\"type\":"       \
    "\"array\",\"description\":\"a\"},\"kin_num\":{\"type\":\"integer\",\"description\":\"a\"},\"kin_yes\":{\"type\":"           \
    "\"boolean\",\"description\":\"a\"}}}"

const kin_reply_tool kin_trial_tools[2] = {
    {.name = {KIN_TRIAL_TOOL, sizeof KIN_TRIAL_TOOL - 1}, .parameters = {PARAMETERS, sizeof PARAMETERS - 1}},
    {.name = {KIN_TRIAL_OTHER_TOOL, sizeof KIN_TRIAL_OTHER_TOOL - 1}, .parameters = {PARAMETERS, sizeof PARAMETERS - 1}},
};

// ---- values

static kin_value *text_of(kin_values *v, const char *at) {
    return kin_value_string(v, at, strlen(at), KIN_ORIGIN_INPUT);
}

static void put(kin_values *v, kin_value *dict, const char *key, kin_value *item) {
    kin_value_put(v, dict, key, strlen(key), item);
}

static kin_value *number_of(kin_values *v, kin_str text) {
    char copy[32];
    bool is_whole = !memchr(text.at, '.', text.len) && !memchr(text.at, 'e', text.len) && !memchr(text.at, 'E', text.len);
    if (!is_whole) {
        snprintf(copy, sizeof copy, "%.*s", (int)text.len, text.at);
        return kin_value_float(v, strtod(copy, NULL));
    }
    bool is_negative = text.len > 0 && text.at[0] == '-';
    int64_t n = 0;
    for (size_t i = is_negative; i < text.len; i++) n = n * 10 + (text.at[i] - '0');
    return kin_value_int(v, is_negative ? -n : n);
}

static kin_value *value_of(kin_values *v, const kin_json *json, const kin_json_value *from);

static kin_value *items_of(kin_values *v, const kin_json *json, const kin_json_value *from) {
    bool is_object = from->kind == KIN_JSON_OBJECT;
    kin_value *to = is_object ? kin_value_dict(v) : kin_value_list(v);
    for (const kin_json_value *i = kin_json_first(json, from); i; i = kin_json_next(json, i)) {
        kin_value *item = value_of(v, json, i);
        if (is_object)
            kin_value_put(v, to, i->key.at, i->key.len, item);
        else
            kin_value_append(v, to, item);
    }
    return to;
}

static kin_value *value_of(kin_values *v, const kin_json *json, const kin_json_value *from) {
    switch (from->kind) {
    case KIN_JSON_FALSE:
    case KIN_JSON_TRUE: return kin_value_bool(v, from->kind == KIN_JSON_TRUE);
    case KIN_JSON_NUMBER: return number_of(v, from->text);
    case KIN_JSON_STRING: return kin_value_string(v, from->text.at, from->text.len, KIN_ORIGIN_INPUT);
    case KIN_JSON_ARRAY:
    case KIN_JSON_OBJECT: return items_of(v, json, from);
    case KIN_JSON_NULL: break;
    }
    return kin_value_none(v);
}

// ---- conversations

// Templates name it differently.
static void put_reasoning(kin_values *v, kin_value *message, const char *reasoning) {
    if (!reasoning) return;
    put(v, message, "reasoning_content", text_of(v, reasoning));
    put(v, message, "thinking", text_of(v, reasoning));
}

static void append_message(kin_values *v, kin_value *messages, const char *role, const char *content, const char *reasoning) {
    kin_value *message = kin_value_dict(v);
    put(v, message, "role", text_of(v, role));
    put(v, message, "content", content ? text_of(v, content) : kin_value_none(v));
    put_reasoning(v, message, reasoning);
    kin_value_append(v, messages, message);
}

// The texts of the values live in `json`, which is freed after rendering.
static kin_value *parsed(kin_values *v, const char *text, kin_json *json) {
    if (kin_json_parse(json, text, strlen(text), NULL) != 0) {
        *json = (kin_json){0};
        return kin_value_none(v);
    }
    return value_of(v, json, json->values);
}

enum { MAX_CALLS = 2 };

// Kimi's template writes the id instead of the name.
static kin_value *id_of(kin_values *v, const kin_trial *t, int i) {
    static const char *const ids[][MAX_CALLS] = {
        {"functions." KIN_TRIAL_TOOL ":0", "functions." KIN_TRIAL_TOOL ":1"},
        {"functions." KIN_TRIAL_OTHER_TOOL ":0", "functions." KIN_TRIAL_OTHER_TOOL ":1"}};
    return text_of(v, t->id ? t->id : ids[t->calls[i].tool][i]);
}

static void append_calls(kin_values *v, kin_value *messages, const kin_trial *t, kin_json *json) {
    kin_value *calls = kin_value_list(v), *message = kin_value_dict(v);
    for (int i = 0; i < t->n_calls; i++) {
        kin_value *function = kin_value_dict(v), *call = kin_value_dict(v);
        const char *arguments = t->calls[i].arguments;
        put(v, function, "name", text_of(v, kin_trial_tools[t->calls[i].tool].name.at));
        put(v, function, "arguments", t->arguments_as_text ? text_of(v, arguments) : parsed(v, arguments, &json[i]));
        put(v, call, "id", id_of(v, t, i));
        put(v, call, "type", text_of(v, "function"));
        put(v, call, "function", function);
        kin_value_append(v, calls, call);
    }
    put(v, message, "role", text_of(v, "assistant"));
    put(v, message, "content", t->content_is_null ? kin_value_none(v) : text_of(v, ""));
    put_reasoning(v, message, t->reasoning);
    put(v, message, "tool_calls", calls);
    kin_value_append(v, messages, message);
    for (int i = 0; i < t->n_calls && t->has_results; i++) {
        kin_value *result = kin_value_dict(v);
        put(v, result, "role", text_of(v, "tool"));
        put(v, result, "tool_call_id", id_of(v, t, i));
        put(v, result, "name", text_of(v, kin_trial_tools[t->calls[i].tool].name.at));
        put(v, result, "content", text_of(v, "c"));
        kin_value_append(v, messages, result);
    }
}

static kin_value *make_tools(kin_values *v, kin_json *json) {
    kin_value *tools = kin_value_list(v);
    for (int i = 0; i < 2; i++) {
        kin_value *function = kin_value_dict(v), *tool = kin_value_dict(v);
        put(v, function, "name", text_of(v, kin_trial_tools[i].name.at));
        put(v, function, "description", text_of(v, "a"));
        put(v, function, "parameters", parsed(v, kin_trial_tools[i].parameters.at, &json[i]));
        put(v, tool, "type", text_of(v, "function"));
        put(v, tool, "function", function);
        kin_value_append(v, tools, tool);
    }
    return tools;
}

int kin_trial_render(const kin_jinja *jinja, const kin_trial *t, kin_text_buffer *out, bool *is_rendered) {
    kin_json json[MAX_CALLS + 2] = {0};
    kin_jinja_text prompt;
    kin_values *v = kin_values_new(MAX_BYTES);
    *is_rendered = false;
    if (!v) return KIN_FAIL;
    kin_values_limit_steps(v, MAX_STEPS);
    kin_value *variables = kin_value_dict(v), *messages = kin_value_list(v);
    if (t->has_system) append_message(v, messages, "system", KIN_TRIAL_SYSTEM, NULL);
    append_message(v, messages, "user", KIN_TRIAL_QUESTION, NULL);
    if (t->n_calls > 0)
        append_calls(v, messages, t, json);
    else if (t->has_answer)
        append_message(v, messages, "assistant", KIN_TRIAL_ANSWER, t->reasoning);
    put(v, variables, "messages", messages);
    if (t->has_tools) put(v, variables, "tools", make_tools(v, json + MAX_CALLS));
    put(v, variables, "bos_token", text_of(v, ""));
    put(v, variables, "eos_token", text_of(v, ""));
    put(v, variables, "add_generation_prompt", kin_value_bool(v, t->is_open));
    *is_rendered = kin_jinja_render(jinja, v, variables, 0, &prompt, NULL) == 0;
    if (*is_rendered) kin_text_put(out, prompt.at, prompt.len);
    kin_values_free(v);
    for (int i = 0; i < MAX_CALLS + 2; i++) kin_json_fini(&json[i]);
    return out->failed ? KIN_FAIL : 0;
}
