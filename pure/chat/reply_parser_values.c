#include "pure/chat/reply_parser_values.h"

#include <string.h>

#include "pure/grammar/parameter.h"

static void emit_text(kin_reply_parser *p, const char *json) {
    kin_reply_emit(p, KIN_REPLY_TOOL_ARGUMENTS, json, strlen(json));
}

// ---- parameters between marks

static void open_schema(kin_reply_parser *p, int64_t tool) {
    kin_str text = p->options.tools[tool].parameters;
    if (p->has_schema) kin_json_fini(&p->schema);
    p->has_schema = text.len > 0 && kin_json_parse(&p->schema, text.at, text.len, NULL) == 0;
    kin_string_table_fini(&p->keys);
    if (kin_string_table_init(&p->keys, 16, 256) != 0) p->failed = true;
}

void kin_reply_begin_parameters(kin_reply_parser *p, int64_t tool) {
    if (tool < 0) {
        kin_reply_release(p);
        return;
    }
    open_schema(p, tool);
    kin_reply_begin_call(p, tool, (kin_str){"", 0}, KIN_REPLY_BEFORE_PARAMETER);
    emit_text(p, "{");
}

static bool step_before_parameter(kin_reply_parser *p, char c) {
    if (kin_is_space(c)) return true;
    p->label.begin = p->held.len;
    p->place = KIN_REPLY_AT_PARAMETER;
    p->state = KIN_REPLY_IN_LABEL;
    return false;
}

// Reads a key, which the first byte of the next mark ends; then a type, likewise.
static bool step_key(kin_reply_parser *p, char c, kin_reply_range *word, const char *mark, kin_reply_place place) {
    word->end = p->held.len;
    if (word->end - word->begin > KIN_REPLY_MAX_NAME) return kin_reply_is_no_call(p);
    if (c != mark[0]) {
        kin_reply_hold_in_call(p, c);
        return true;
    }
    p->place = place;
    p->label.begin = p->held.len;
    p->state = KIN_REPLY_IN_LABEL;
    return false;
}

static kin_str without_padding(kin_str value) {
    if (value.len > 0 && value.at[0] == '\n') value = (kin_str){value.at + 1, value.len - 1};
    if (value.len > 0 && value.at[value.len - 1] == '\n') value.len--;
    return value;
}

// Writes the value as JSON: of the type that the model has named, or of the schema's.
static void put_value(kin_reply_parser *p, kin_str key, kin_str value, kin_text_buffer *json) {
    kin_json parsed;
    bool is_named = p->format->type_end[0], is_string = kin_str_eq(kin_reply_held(p, p->type), p->format->string_type);
    if (is_named && is_string) {
        kin_json_write_string(value, json);
    } else if (is_named && kin_json_parse(&parsed, value.at, value.len, NULL) == 0) {
        kin_json_write(&parsed, parsed.values, json);
        kin_json_fini(&parsed);
    } else {
        kin_parameter_put(&p->schema, p->has_schema ? kin_parameter_root(&p->schema) : NULL, key, value, json);
    }
}

// The first value of a key is used.
static void emit_parameter(kin_reply_parser *p) {
    kin_str key = kin_reply_held(p, p->name), value = kin_reply_held(p, p->value);
    kin_text_buffer json = {0};
    uint32_t n = p->keys.n;
    if (kin_string_table_add(&p->keys, key.at, key.len) < 0) p->failed = true;
    if (p->failed || p->keys.n == n) return;
    if (p->format->pads_values) value = without_padding(value);
    if (n > 0) kin_text_print(&json, ", ");
    kin_json_write_string(key, &json);
    kin_text_print(&json, ": ");
    put_value(p, key, value, &json);
    if (json.failed) p->failed = true;
    kin_reply_emit(p, KIN_REPLY_TOOL_ARGUMENTS, json.at, json.len);
    kin_text_fini(&json);
}

static bool step_value(kin_reply_parser *p, char c) {
    const char *end = p->format->value_end;
    size_t n = strlen(end), begin = p->value.begin;
    if (!kin_reply_hold_in_call(p, c)) return true;
    if (c != end[n - 1] || p->held.len - begin < n || memcmp(p->held.at + p->held.len - n, end, n) != 0) return true;
    p->value.end = p->held.len - n;
    p->label.begin = p->held.len;
    p->state = KIN_REPLY_AFTER_VALUE;
    return true;
}

// A value may contain the mark that ends values: it has ended if another parameter or the end of the call follows.
static bool step_after_value(kin_reply_parser *p, char c) {
    const kin_chat_format *f = p->format;
    const char *const marks[] = {f->key_begin, f->arguments_end, f->call_end, f->calls_end};
    bool may_follow;
    if (!kin_reply_hold_in_call(p, c)) return true;
    int mark = kin_reply_read_label(p, marks, 4, &may_follow);
    if (mark >= 0) {
        emit_parameter(p);
        p->place = KIN_REPLY_AT_PARAMETER;
        kin_reply_enter_parameter_mark(p, mark);
    } else if (!may_follow) {
        p->held.len--;
        p->state = KIN_REPLY_IN_VALUE;
        return false;
    }
    return true;
}

static void begin_value(kin_reply_parser *p) {
    p->value.begin = p->held.len;
    p->state = KIN_REPLY_IN_VALUE;
}

void kin_reply_enter_parameter_mark(kin_reply_parser *p, int mark) {
    switch (p->place) {
    case KIN_REPLY_AT_PARAMETER:
        kin_reply_forget(p);
        if (mark == 0) {
            p->name = (kin_reply_range){0, 0};
            p->state = KIN_REPLY_IN_KEY;
            break;
        }
        emit_text(p, "}");
        kin_reply_emit(p, KIN_REPLY_TOOL_END, NULL, 0);
        kin_reply_leave_call(p);
        break;
    case KIN_REPLY_AT_TYPE:
        p->type = (kin_reply_range){p->held.len, p->held.len};
        p->state = KIN_REPLY_IN_TYPE;
        if (!p->format->type_end[0]) begin_value(p);
        break;
    default: begin_value(p);
    }
}

// ---- arguments in the format's own syntax

void kin_reply_begin_loose(kin_reply_parser *p, int64_t tool) {
    kin_reply_begin_call(p, tool, (kin_str){"", 0}, KIN_REPLY_IN_LOOSE);
    p->loose = (kin_loose_scan){0};
}

static bool step_loose(kin_reply_parser *p, char c) {
    kin_text_buffer json = {0};
    if (!kin_reply_hold_in_call(p, c)) return true;
    kin_loose_scan_push(&p->loose, p->format, c);
    if (p->loose.depth > 0) return true;
    bool ok = kin_loose_put_json(p->format, (kin_str){p->held.at, p->held.len}, &json);
    if (json.failed) p->failed = true;
    if (ok) {
        kin_reply_emit(p, KIN_REPLY_TOOL_ARGUMENTS, json.at, json.len);
        kin_reply_emit(p, KIN_REPLY_TOOL_END, NULL, 0);
        kin_reply_leave_call(p);
    } else {
        kin_reply_release(p);
    }
    kin_text_fini(&json);
    return true;
}

bool kin_reply_step_values(kin_reply_parser *p, char c) {
    const kin_chat_format *f = p->format;
    switch (p->state) {
    case KIN_REPLY_BEFORE_PARAMETER: return step_before_parameter(p, c);
    case KIN_REPLY_IN_KEY: return step_key(p, c, &p->name, f->key_end, KIN_REPLY_AT_TYPE);
    case KIN_REPLY_IN_TYPE: return step_key(p, c, &p->type, f->type_end, KIN_REPLY_AT_VALUE);
    case KIN_REPLY_IN_VALUE: return step_value(p, c);
    case KIN_REPLY_AFTER_VALUE: return step_after_value(p, c);
    case KIN_REPLY_IN_LOOSE: return step_loose(p, c);
    default: kin_assert(false); return true;
    }
}
