// Tool calls: from the marker that begins a call to its end. The whole call is held until it is certain to be one.
#include <string.h>

#include "pure/text/parameter.h"
#include "pure/text/reply_parser_impl.h"

enum { KEY_NONE, KEY_NAME, KEY_ARGUMENTS, KEY_OTHER }; // keys of a call that is an object

static kin_str held(const kin_reply_parser *p, kin_reply_range range) {
    return (kin_str){p->held.at + range.begin, range.end - range.begin};
}

static bool is_text(kin_str text, const char *other) {
    return text.len == strlen(other) && memcmp(text.at, other, text.len) == 0;
}

static bool is_offered(const kin_reply_parser *p, kin_str name) {
    return kin_string_table_find(&p->names, name.at, name.len) >= 0;
}

// The current byte cannot be part of a call: releases the held bytes as text. The byte is not consumed.
static bool is_no_call(kin_reply_parser *p) {
    kin_reply_release(p);
    return false;
}

// Holds the byte. Returns false if it exceeds the size limit of a call.
static bool hold(kin_reply_parser *p, char c) {
    if (!kin_reply_hold(p, c)) return false;
    if (p->held.len < KIN_REPLY_MAX_HELD) return true;
    kin_reply_release(p);
    return false;
}

// ---- begin and end

static void begin_call(kin_reply_parser *p, kin_str name, kin_str id, kin_reply_state state) {
    kin_reply_emit_begin(p, name, id);
    kin_reply_forget(p);
    p->list_has_calls = true;
    p->state = state;
}

static void leave_call(kin_reply_parser *p) {
    kin_reply_forget(p);
    p->state = p->in_list ? KIN_REPLY_IN_LIST : KIN_REPLY_AFTER_CALL;
    p->at_beginning = false;
    p->drops_space = true;
}

static void emit_text(kin_reply_parser *p, const char *json) {
    kin_reply_emit(p, KIN_REPLY_TOOL_ARGUMENTS, json, strlen(json));
}

// ---- a call as an object: {"name": ..., "arguments": {...}}, in any order; other members are allowed

void kin_reply_begin_object(kin_reply_parser *p) {
    p->scan = (kin_json_scan){0};
    kin_json_scan_push(&p->scan, '{');
    p->state = KIN_REPLY_IN_OBJECT;
    p->bare = p->has_name = false;
    p->key = KEY_NONE;
    p->object_begin = p->held.len - 1;
}

static int key_named(kin_str name) {
    if (is_text(name, "name")) return KEY_NAME;
    if (is_text(name, "arguments") || is_text(name, "parameters")) return KEY_ARGUMENTS;
    return is_text(name, "type") || is_text(name, "id") ? KEY_OTHER : KEY_NONE;
}

// Called at the end of a string of the object itself. Returns false if it cannot be part of a call.
static bool read_string(kin_reply_parser *p) {
    kin_str text = held(p, (kin_reply_range){p->string_begin, p->held.len - 1});
    if (p->scan.is_key) {
        p->key = key_named(text);
        return p->key != KEY_NONE;
    }
    if (p->key != KEY_NAME || p->has_name || memchr(text.at, '\\', text.len)) return true; // escapes are decoded later
    p->has_name = true;
    p->name = (kin_reply_range){p->string_begin, p->held.len - 1};
    return is_offered(p, text);
}

// Missing arguments and null mean the empty object.
static bool may_be_arguments(const kin_json_value *value) {
    return !value || value->kind == KIN_JSON_NULL || value->kind == KIN_JSON_OBJECT;
}

static void emit_value(kin_reply_parser *p, const kin_json *json, const kin_json_value *value) {
    kin_text_buffer text = {0};
    if (value && value->kind == KIN_JSON_OBJECT)
        kin_json_write(json, value, &text);
    else
        kin_text_print(&text, "{}");
    if (text.failed) p->failed = true;
    kin_reply_emit(p, KIN_REPLY_TOOL_ARGUMENTS, text.at, text.len);
    kin_text_fini(&text);
}

// Emits a complete call whose arguments were not passed on: they came before the name, are missing, or are written as a string.
static bool read_whole_call(kin_reply_parser *p, const kin_json *call) {
    const kin_json_value *name = kin_json_get(call, call->values, "name", 4);
    const kin_json_value *arguments = kin_json_get(call, call->values, "arguments", 9);
    kin_json inner = {0};
    const kin_json *json = call;
    if (!arguments) arguments = kin_json_get(call, call->values, "parameters", 10);
    if (!name || name->kind != KIN_JSON_STRING || !is_offered(p, name->text)) return false;
    if (arguments && arguments->kind == KIN_JSON_STRING) {
        if (kin_json_parse(&inner, arguments->text.at, arguments->text.len, NULL) != 0) return false;
        json = &inner;
        arguments = inner.values;
    }
    bool ok = may_be_arguments(arguments);
    if (ok) {
        begin_call(p, name->text, (kin_str){"", 0}, KIN_REPLY_IN_ARGUMENTS);
        emit_value(p, json, arguments);
        kin_reply_emit(p, KIN_REPLY_TOOL_END, NULL, 0);
        leave_call(p);
    }
    if (json == &inner) kin_json_fini(&inner);
    return ok;
}

static void end_object(kin_reply_parser *p) {
    kin_json call;
    size_t begin = p->object_begin;
    bool ok = false;
    if (kin_json_parse(&call, p->held.at + begin, p->held.len - begin, NULL) == 0) {
        ok = read_whole_call(p, &call);
        kin_json_fini(&call);
    }
    if (!ok) kin_reply_release(p);
}

static bool step_object(kin_reply_parser *p, char c) {
    kin_json_scan before = p->scan;
    if (!kin_json_scan_push(&p->scan, c)) return is_no_call(p);
    if (before.depth == 1 && before.expected == KIN_JSON_AT_VALUE && c == '{' && p->key == KEY_ARGUMENTS && p->has_name) {
        begin_call(p, held(p, p->name), (kin_str){"", 0}, KIN_REPLY_IN_ARGUMENTS);
        kin_reply_emit(p, KIN_REPLY_TOOL_ARGUMENTS, &c, 1);
        return true;
    }
    if (!hold(p, c)) return true;
    bool was_string = before.expected == KIN_JSON_IN_STRING, is_string = p->scan.expected == KIN_JSON_IN_STRING;
    if (p->scan.depth == 0)
        end_object(p);
    else if (before.depth == 1 && p->scan.depth == 1 && is_string && before.expected < KIN_JSON_IN_STRING)
        p->string_begin = p->held.len;
    else if (p->scan.depth == 1 && was_string && p->scan.expected < KIN_JSON_IN_STRING && !read_string(p))
        kin_reply_release(p);
    return true;
}

static bool step_arguments(kin_reply_parser *p, char c) {
    if (!kin_json_scan_push(&p->scan, c)) return is_no_call(p);
    kin_reply_emit(p, KIN_REPLY_TOOL_ARGUMENTS, &c, 1);
    if (p->scan.depth > (p->bare ? 0 : 1)) return true;
    kin_reply_emit(p, KIN_REPLY_TOOL_END, NULL, 0);
    p->state = KIN_REPLY_IN_REST;
    if (p->bare) leave_call(p);
    return true;
}

// Reads the rest of the object. Some models omit its last '}', so any other byte ends the call too.
static bool step_rest(kin_reply_parser *p, char c) {
    bool goes_on = kin_json_scan_push(&p->scan, c);
    if (!goes_on || p->scan.depth == 0) leave_call(p);
    return goes_on;
}

// ---- markers and lists

static bool step_after_marker(kin_reply_parser *p, char c) {
    kin_reply_format format = p->options.format;
    size_t begin = p->held.len;
    if (!hold(p, c) || kin_reply_is_space(c)) return true;
    if (c == '{') {
        kin_reply_begin_object(p);
    } else if (format == KIN_REPLY_XML && c == '<') {
        p->label = (kin_reply_range){begin, begin};
        p->state = KIN_REPLY_IN_LABEL;
    } else if ((format == KIN_REPLY_MISTRAL || format == KIN_REPLY_MISTRAL_ARGS) && c == '[') {
        p->in_list = true;
        p->list_has_calls = false;
        p->state = KIN_REPLY_IN_LIST;
    } else if (format == KIN_REPLY_MISTRAL || format == KIN_REPLY_MISTRAL_ARGS) {
        p->name = p->id = (kin_reply_range){begin, begin};
        p->state = KIN_REPLY_IN_NAME;
    } else {
        p->held.len--;
        return is_no_call(p);
    }
    return true;
}

static bool step_list(kin_reply_parser *p, char c) {
    bool is_between = kin_reply_is_space(c) || c == ',';
    if (c == ']' && p->list_has_calls) {
        p->in_list = false;
        leave_call(p);
        return true;
    }
    if (!is_between && c != '{') return is_no_call(p);
    if (hold(p, c) && c == '{') kin_reply_begin_object(p);
    return true;
}

// ---- labels within a call: [CALL_ID], [ARGS], <function=

// Compares the bytes from label.begin on with the labels: -1: no match, 0: the beginning of a label, else its index + 1.
static int read_label(const kin_reply_parser *p, const char *const *labels, int n) {
    kin_str text = {p->held.at + p->label.begin, p->held.len - p->label.begin};
    int result = -1;
    for (int i = 0; i < n; i++) {
        size_t len = strlen(labels[i]);
        if (text.len > len || memcmp(text.at, labels[i], text.len) != 0) continue;
        result = text.len == len ? i + 1 : 0;
    }
    return result;
}

static bool step_label(kin_reply_parser *p, char c) {
    static const char *const labels[] = {"[ARGS]", "[CALL_ID]", "<function="};
    if (!hold(p, c)) return true;
    switch (read_label(p, labels, 3)) {
    case -1: p->held.len--; return is_no_call(p);
    case 0: return true;
    case 1: p->state = KIN_REPLY_BEFORE_ARGUMENTS; return true;
    case 2:
        p->id = (kin_reply_range){p->held.len, p->held.len};
        p->state = KIN_REPLY_IN_ID;
        return true;
    default: kin_reply_begin_function(p); return true;
    }
}

// ---- NAME[CALL_ID]ID[ARGS]{...}

static bool step_before_arguments(kin_reply_parser *p, char c) {
    bool is_call = c == '{' && is_offered(p, held(p, p->name));
    if (kin_reply_is_space(c)) {
        hold(p, c);
        return true;
    }
    if (!is_call) return is_no_call(p);
    p->scan = (kin_json_scan){0};
    p->bare = true;
    begin_call(p, held(p, p->name), held(p, p->id), KIN_REPLY_IN_ARGUMENTS);
    return step_arguments(p, c);
}

// Reads a name or id up to a label or the arguments.
static bool step_word(kin_reply_parser *p, char c, kin_reply_range *word) {
    word->end = p->held.len;
    if (c == '{') return step_before_arguments(p, c);
    if (kin_reply_is_space(c) || word->end - word->begin > KIN_REPLY_MAX_NAME) return is_no_call(p);
    if (c == '[') {
        p->label.begin = p->held.len;
        p->state = KIN_REPLY_IN_LABEL;
    }
    hold(p, c);
    return true;
}

// ---- <function=NAME><parameter=KEY>VALUE</parameter></function>

void kin_reply_begin_function(kin_reply_parser *p) {
    p->name = (kin_reply_range){p->held.len, p->held.len};
    p->state = KIN_REPLY_IN_FUNCTION;
}

static void open_schema(kin_reply_parser *p, int64_t tool) {
    kin_str text = p->options.tools[tool].parameters;
    if (p->has_schema) kin_json_fini(&p->schema);
    p->has_schema = text.len > 0 && kin_json_parse(&p->schema, text.at, text.len, NULL) == 0;
    kin_string_table_fini(&p->keys);
    if (kin_string_table_init(&p->keys, 16, 256) != 0) p->failed = true;
}

static bool step_function(kin_reply_parser *p, char c) {
    p->name.end = p->held.len;
    kin_str name = held(p, p->name);
    if (c != '>') {
        if (name.len > KIN_REPLY_MAX_NAME) return is_no_call(p);
        hold(p, c);
        return true;
    }
    int64_t tool = kin_string_table_find(&p->names, name.at, name.len);
    if (tool < 0) return is_no_call(p);
    open_schema(p, tool);
    begin_call(p, name, (kin_str){"", 0}, KIN_REPLY_BEFORE_PARAMETER);
    emit_text(p, "{");
    return true;
}

static bool step_before_parameter(kin_reply_parser *p, char c) {
    static const char *const labels[] = {"<parameter=", "</function>", "</tool_call>"};
    if (p->held.len == 0 && kin_reply_is_space(c)) return true;
    p->label.begin = 0;
    if (!hold(p, c)) return true;
    switch (read_label(p, labels, 3)) {
    case -1: p->held.len--; return is_no_call(p);
    case 0: return true;
    case 1:
        p->name = (kin_reply_range){p->held.len, p->held.len};
        p->state = KIN_REPLY_IN_KEY;
        return true;
    default:
        emit_text(p, "}");
        kin_reply_emit(p, KIN_REPLY_TOOL_END, NULL, 0);
        leave_call(p);
        return true;
    }
}

static bool step_key(kin_reply_parser *p, char c) {
    p->name.end = p->held.len;
    if (p->name.end - p->name.begin > KIN_REPLY_MAX_NAME) return is_no_call(p);
    hold(p, c);
    if (c != '>') return true;
    p->label.begin = p->held.len;
    p->state = KIN_REPLY_IN_VALUE;
    return true;
}

// The first value of a key is used. One line end before it and one after it belong to the format.
static void emit_parameter(kin_reply_parser *p, kin_str key, kin_str value) {
    kin_text_buffer json = {0};
    uint32_t n = p->keys.n;
    if (kin_string_table_add(&p->keys, key.at, key.len) < 0) p->failed = true;
    if (p->failed || p->keys.n == n) return;
    if (value.len > 0 && value.at[0] == '\n') value = (kin_str){value.at + 1, value.len - 1};
    if (value.len > 0 && value.at[value.len - 1] == '\n') value.len--;
    if (n > 0) kin_text_print(&json, ", ");
    kin_json_write_string(key, &json);
    kin_text_print(&json, ": ");
    kin_parameter_put(&p->schema, p->has_schema ? p->schema.values : NULL, key, value, &json);
    if (json.failed) p->failed = true;
    kin_reply_emit(p, KIN_REPLY_TOOL_ARGUMENTS, json.at, json.len);
    kin_text_fini(&json);
}

static bool step_value(kin_reply_parser *p, char c) {
    static const char end[] = "</parameter>";
    enum { N_END = sizeof end - 1 };
    if (!hold(p, c)) return true;
    size_t begin = p->label.begin, len = p->held.len - begin;
    if (c != '>' || len < N_END || memcmp(p->held.at + p->held.len - N_END, end, N_END) != 0) return true;
    emit_parameter(p, held(p, p->name), (kin_str){p->held.at + begin, len - N_END});
    kin_reply_forget(p);
    p->state = KIN_REPLY_BEFORE_PARAMETER;
    return true;
}

bool kin_reply_step_call(kin_reply_parser *p, char c) {
    switch (p->state) {
    case KIN_REPLY_AFTER_MARKER: return step_after_marker(p, c);
    case KIN_REPLY_IN_LIST: return step_list(p, c);
    case KIN_REPLY_IN_OBJECT: return step_object(p, c);
    case KIN_REPLY_IN_ARGUMENTS: return step_arguments(p, c);
    case KIN_REPLY_IN_REST: return step_rest(p, c);
    case KIN_REPLY_IN_NAME: return step_word(p, c, &p->name);
    case KIN_REPLY_IN_LABEL: return step_label(p, c);
    case KIN_REPLY_IN_ID: return step_word(p, c, &p->id);
    case KIN_REPLY_BEFORE_ARGUMENTS: return step_before_arguments(p, c);
    case KIN_REPLY_IN_FUNCTION: return step_function(p, c);
    case KIN_REPLY_BEFORE_PARAMETER: return step_before_parameter(p, c);
    case KIN_REPLY_IN_KEY: return step_key(p, c);
    case KIN_REPLY_IN_VALUE: return step_value(p, c);
    default: kin_assert(false); return true;
    }
}
