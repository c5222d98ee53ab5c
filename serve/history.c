#include "serve/history.h"

#include <string.h>

static kin_str string_of(const json_t *j) {
    return json_is_string(j) ? (kin_str){json_string_value(j), json_string_length(j)} : (kin_str){"", 0};
}

static bool is_by(const json_t *message, const char *role) {
    const char *by = json_string_value(json_object_get(message, "role"));
    return by && strcmp(by, role) == 0;
}

static void set_string(json_t *of, const char *key, const kin_text_buffer *text) {
    if (!text->failed) json_object_set_new(of, key, json_stringn(text->at ? text->at : "", text->len));
}

// ---- ids

static void fit_id(const kin_tool_format *format, json_t *of, const char *key) {
    const json_t *id = json_object_get(of, key);
    kin_text_buffer text = {0};
    if (!json_is_string(id)) return;
    kin_tool_format_put_id(format, string_of(id), &text);
    set_string(of, key, &text);
    kin_text_fini(&text);
}

// Names the n-th call of the chat after its tool. named: from the client's ids to these.
static void name_call(json_t *call, int n, json_t *named) {
    kin_str name = string_of(json_object_get(json_object_get(call, "function"), "name"));
    const char *id = json_string_value(json_object_get(call, "id"));
    kin_text_buffer text = {0};
    kin_text_put(&text, "functions.", 10);
    kin_text_put(&text, name.at, name.len);
    kin_text_print(&text, ":%d", n);
    if (id && !text.failed) json_object_set_new(named, id, json_stringn(text.at, text.len));
    set_string(call, "id", &text);
    kin_text_fini(&text);
}

static void name_ids(json_t *messages) {
    json_t *named = json_object(), *message, *call;
    size_t i, k;
    int n = 0;
    json_array_foreach(messages, i, message) {
        json_array_foreach(json_object_get(message, "tool_calls"), k, call) name_call(call, n++, named);
        const char *id = json_string_value(json_object_get(message, "tool_call_id"));
        json_t *name = id ? json_object_get(named, id) : NULL;
        if (name) json_object_set(message, "tool_call_id", name);
    }
    json_decref(named);
}

void kin_history_fit_ids(json_t *messages, const kin_tool_format *format) {
    json_t *message, *call;
    size_t i, k;
    if (format->chat.id_names && !format->is_generic) {
        name_ids(messages);
        return;
    }
    if (format->n_call_id == 0) return;
    json_array_foreach(messages, i, message) {
        fit_id(format, message, "tool_call_id");
        json_array_foreach(json_object_get(message, "tool_calls"), k, call) fit_id(format, call, "id");
    }
}

// ---- system messages

// Puts the text of `other` before or after that of `message`.
static void join(json_t *message, const json_t *other, bool before) {
    kin_str own = string_of(json_object_get(message, "content")), added = string_of(json_object_get(other, "content"));
    kin_str first = before ? added : own, second = before ? own : added;
    kin_text_buffer text = {0};
    kin_text_put(&text, first.at, first.len);
    if (first.len > 0 && second.len > 0) kin_text_put(&text, "\n\n", 2);
    kin_text_put(&text, second.at, second.len);
    set_string(message, "content", &text);
    kin_text_fini(&text);
}

void kin_history_merge_system(json_t *messages) {
    json_t *first = json_array_get(messages, 0), *second = json_array_get(messages, 1);
    if (!is_by(first, "system")) return;
    if (!is_by(second, "user")) {
        json_object_set_new(first, "role", json_string("user"));
        return;
    }
    join(second, first, true);
    json_array_remove(messages, 0);
}

void kin_history_merge_later_system(json_t *messages) {
    for (size_t i = 1; i < json_array_size(messages);) {
        json_t *message = json_array_get(messages, i), *before = json_array_get(messages, i - 1);
        json_t *after = json_array_get(messages, i + 1);
        bool is_leading = i == 1 && is_by(before, "system");
        if (!is_by(message, "system")) {
            i++;
        } else if (is_leading || is_by(before, "user")) {
            join(before, message, false);
            json_array_remove(messages, i);
        } else if (is_by(after, "user")) {
            join(after, message, true);
            json_array_remove(messages, i);
        } else {
            json_object_set_new(message, "role", json_string("user"));
            i++;
        }
    }
}
