#include "serve/history.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

// Appends a text to what is there, with a blank line between them.
static void add_text(kin_text_buffer *to, kin_str text) {
    if (to->len > 0 && text.len > 0) kin_text_put(to, "\n\n", 2);
    kin_text_put(to, text.at, text.len);
}

static void join(json_t *message, kin_str first, kin_str second) {
    kin_text_buffer text = {0};
    add_text(&text, first);
    add_text(&text, second);
    set_string(message, "content", &text);
    kin_text_fini(&text);
}

static kin_str content_of(const json_t *message) {
    return string_of(json_object_get(message, "content"));
}

void kin_history_merge_system(json_t *messages) {
    json_t *first = json_array_get(messages, 0), *second = json_array_get(messages, 1);
    if (!is_by(first, "system")) return;
    if (!is_by(second, "user")) {
        json_object_set_new(first, "role", json_string("user"));
        return;
    }
    join(second, content_of(first), content_of(second));
    json_array_remove(messages, 0);
}

// System messages whose place is not known yet: their text, and the message that it is appended to; NULL: the next one decides.
typedef struct pending_system {
    kin_text_buffer text;
    json_t *onto;
} pending_system;

// Puts the text where it belongs, given the message after it; NULL: the chat ends there. Results of calls stay together.
static void place_system(pending_system *p, json_t *to, json_t *next) {
    kin_str text = kin_text_str(&p->text);
    if (text.len == 0 || (!p->onto && is_by(next, "tool"))) return;
    if (p->onto)
        join(p->onto, content_of(p->onto), text);
    else if (is_by(next, "user"))
        join(next, text, content_of(next));
    else
        json_array_append_new(to, json_pack("{s:s, s:o}", "role", "user", "content", json_stringn(text.at, text.len)));
    p->text.len = 0;
}

void kin_history_merge_later_system(json_t *messages) {
    json_t *merged = json_array(), *message;
    pending_system pending = {.onto = NULL};
    size_t i;
    json_array_foreach(messages, i, message) {
        json_t *last = json_array_get(merged, json_array_size(merged) - 1);
        if (i > 0 && is_by(message, "system")) {
            if (pending.text.len == 0) pending.onto = is_by(last, "system") || is_by(last, "user") ? last : NULL;
            add_text(&pending.text, content_of(message));
            continue;
        }
        place_system(&pending, merged, message);
        json_array_append(merged, message);
    }
    place_system(&pending, merged, NULL);
    if (!pending.text.failed) {
        json_array_clear(messages);
        json_array_extend(messages, merged);
    }
    json_decref(merged);
    kin_text_fini(&pending.text);
}

// ---- schemas of tools

typedef struct member {
    const char *key;
    size_t place; // among the members as given
    json_t *value;
} member;

// Jinja's dictsort: without regard to case, and stable.
static int compare_members(const void *a, const void *b) {
    const member *x = a, *y = b;
    int order = strcasecmp(x->key, y->key);
    return order != 0 ? order : (x->place > y->place) - (x->place < y->place);
}

static json_t *sort_object(const json_t *object) {
    const size_t n = json_object_size(object);
    member *members = calloc(n ? n : 1, sizeof *members);
    json_t *sorted = members ? json_object() : NULL, *value;
    const char *key;
    size_t i = 0;
    if (sorted) {
        json_object_foreach((json_t *)object, key, value) {
            members[i] = (member){.key = key, .place = i, .value = value};
            i++;
        }
        qsort(members, n, sizeof *members, compare_members);
        for (i = 0; i < n; i++) json_object_set_new(sorted, members[i].key, kin_history_sort_keys(members[i].value));
    }
    free(members);
    return sorted;
}

json_t *kin_history_sort_keys(const json_t *value) {
    json_t *item;
    size_t i;
    if (json_is_object(value)) return sort_object(value);
    if (!json_is_array(value)) return json_incref((json_t *)value);
    json_t *sorted = json_array();
    json_array_foreach(value, i, item) json_array_append_new(sorted, kin_history_sort_keys(item));
    return sorted;
}
