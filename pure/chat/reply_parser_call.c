#include "pure/chat/reply_parser_call.h"

#include <string.h>

#include "pure/chat/reply_parser_values.h"

enum { KEY_NONE, KEY_NAME, KEY_ARGUMENTS, KEY_OTHER }; // keys of a call that is an object

static bool is_offered(const kin_reply_parser *p, kin_str name) {
    return kin_string_table_find(&p->names, name.at, name.len) >= 0;
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

static int key_named(const kin_chat_format *f, kin_str name) {
    if (kin_str_eq(name, "name") || kin_str_eq(name, f->name_key)) return KEY_NAME;
    if (kin_str_eq(name, "arguments") || kin_str_eq(name, "parameters") || kin_str_eq(name, f->arguments_key))
        return KEY_ARGUMENTS;
    return kin_str_eq(name, "type") || kin_str_eq(name, "id") || kin_str_eq(name, f->id_key) ? KEY_OTHER : KEY_NONE;
}

// True if the object is {NAME: {...}}.
static bool is_keyed_by_name(const kin_reply_parser *p) {
    return p->format->syntax == KIN_CALL_OBJECT && !p->format->name_key[0];
}

// Called at the end of a string of the object itself. Returns false if it cannot be part of a call.
static bool read_string(kin_reply_parser *p) {
    kin_str text = kin_reply_held(p, (kin_reply_range){p->string_begin, p->held.len - 1});
    if (p->scan.is_key && is_keyed_by_name(p) && !p->has_name && is_offered(p, text)) {
        p->has_name = true;
        p->name = (kin_reply_range){p->string_begin, p->held.len - 1};
        p->key = KEY_ARGUMENTS;
        return true;
    }
    if (p->scan.is_key) {
        bool has_escapes = is_keyed_by_name(p) && memchr(text.at, '\\', text.len); // decoded later
        p->key = has_escapes ? KEY_OTHER : key_named(p->format, text);
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

// Returns the member of the first of these keys that the object has; an empty key is none.
static const kin_json_value *member(const kin_json *json, const char *key, const char *other, const char *third) {
    const char *const keys[] = {key, other, third};
    const kin_json_value *found = NULL;
    for (int i = 0; i < 3 && !found; i++)
        if (keys[i] && keys[i][0]) found = kin_json_get(json, json->values, keys[i], strlen(keys[i]));
    return found;
}

// Emits a complete call whose arguments were not passed on: they came before the name or after one with escapes, are missing, or
// are written as a string.
static bool read_whole_call(kin_reply_parser *p, const kin_json *call) {
    const kin_chat_format *f = p->format;
    const kin_json_value *first = kin_json_first(call, call->values), *name = member(call, f->name_key, "name", NULL);
    bool is_keyed = is_keyed_by_name(p) && first && is_offered(p, first->key);
    const kin_json_value *arguments = is_keyed ? first : member(call, f->arguments_key, "arguments", "parameters");
    kin_json inner = {0};
    const kin_json *json = call;
    if (!is_keyed && (!name || name->kind != KIN_JSON_STRING || !is_offered(p, name->text))) return false;
    if (arguments && arguments->kind == KIN_JSON_STRING) {
        if (kin_json_parse(&inner, arguments->text.at, arguments->text.len, NULL) != 0) return false;
        json = &inner;
        arguments = inner.values;
    }
    bool ok = may_be_arguments(arguments);
    if (ok) {
        kin_reply_begin_named(p, is_keyed ? first->key : name->text, (kin_str){"", 0}, KIN_REPLY_IN_ARGUMENTS);
        emit_value(p, json, arguments);
        kin_reply_emit(p, KIN_REPLY_TOOL_END, NULL, 0);
        kin_reply_leave_call(p);
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
    if (!kin_json_scan_push(&p->scan, c)) return kin_reply_is_no_call(p);
    if (before.depth == 1 && before.expected == KIN_JSON_AT_VALUE && c == '{' && p->key == KEY_ARGUMENTS && p->has_name) {
        kin_reply_begin_named(p, kin_reply_held(p, p->name), (kin_str){"", 0}, KIN_REPLY_IN_ARGUMENTS);
        kin_reply_emit(p, KIN_REPLY_TOOL_ARGUMENTS, &c, 1);
        return true;
    }
    if (!kin_reply_hold_in_call(p, c)) return true;
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
    if (!kin_json_scan_push(&p->scan, c)) return kin_reply_is_no_call(p);
    kin_reply_emit(p, KIN_REPLY_TOOL_ARGUMENTS, &c, 1);
    if (p->scan.depth > (p->bare ? 0 : 1)) return true;
    kin_reply_emit(p, KIN_REPLY_TOOL_END, NULL, 0);
    p->state = KIN_REPLY_IN_REST;
    if (p->bare) kin_reply_leave_call(p);
    return true;
}

// Reads the rest of the object. Some models omit its last '}', so any other byte ends the call too.
static bool step_rest(kin_reply_parser *p, char c) {
    bool goes_on = kin_json_scan_push(&p->scan, c);
    if (!goes_on || p->scan.depth == 0) kin_reply_leave_call(p);
    return goes_on;
}

// ---- marks, lists, names

void kin_reply_begin_list(kin_reply_parser *p) {
    p->in_list = true;
    p->list_has_calls = false;
    p->state = KIN_REPLY_IN_LIST;
}

void kin_reply_begin_name(kin_reply_parser *p) {
    p->name = (kin_reply_range){p->held.len, p->held.len};
    p->id = (kin_reply_range){0, 0};
    p->state = KIN_REPLY_IN_NAME;
}

static void begin_label(kin_reply_parser *p) {
    p->label.begin = p->held.len;
    p->state = KIN_REPLY_IN_LABEL;
}

static bool step_after_mark(kin_reply_parser *p, char c) {
    const kin_chat_format *f = p->format;
    bool has_mark = f->name_begin[0] || (p->place == KIN_REPLY_AT_CALL && f->call_begin[0]);
    if (kin_is_space(c) || c == '{' || c == '[') {
        if (!kin_reply_hold_in_call(p, c)) return true;
        if (c == '{') kin_reply_begin_object(p);
        if (c == '[') kin_reply_begin_list(p);
        return true;
    }
    if (has_mark)
        begin_label(p);
    else if (f->syntax == KIN_CALL_PYTHON)
        kin_reply_begin_list(p); // without brackets
    else if (f->syntax != KIN_CALL_OBJECT)
        kin_reply_begin_name(p);
    else
        return kin_reply_is_no_call(p);
    return false;
}

static bool step_list(kin_reply_parser *p, char c) {
    const kin_chat_format *f = p->format;
    bool is_between = kin_is_space(c) || c == ',', is_python = f->syntax == KIN_CALL_PYTHON;
    bool is_end = is_python && p->list_has_calls && c == (f->calls_end[0] ? f->calls_end[0] : f->call_end[0]);
    if ((c == ']' || is_end) && p->list_has_calls) {
        p->in_list = false;
        kin_reply_leave_call(p);
        return c == ']';
    }
    if (!is_between && is_python) {
        kin_reply_begin_name(p);
        return false;
    }
    if (!is_between && c != '{') return kin_reply_is_no_call(p);
    if (kin_reply_hold_in_call(p, c) && c == '{') kin_reply_begin_object(p);
    return true;
}

static void enter_label(kin_reply_parser *p, int mark) {
    bool is_call_begin = p->place == KIN_REPLY_AT_CALL && mark == 0, is_id = p->place == KIN_REPLY_AT_ARGUMENTS && mark == 0;
    if (p->place >= KIN_REPLY_AT_PARAMETER) {
        kin_reply_enter_parameter_mark(p, mark);
    } else if (is_call_begin) {
        p->place = KIN_REPLY_AT_NAME;
        p->state = KIN_REPLY_AFTER_MARK;
    } else if (is_id) {
        p->id = (kin_reply_range){p->held.len, p->held.len};
        p->state = KIN_REPLY_IN_ID;
    } else if (p->place != KIN_REPLY_AT_ARGUMENTS) {
        kin_reply_begin_name(p);
    } else if (p->format->syntax == KIN_CALL_PARAMETERS) {
        kin_reply_begin_parameters(p, kin_reply_find_tool(p, kin_reply_held(p, p->name)));
    } else {
        p->state = KIN_REPLY_AFTER_NAME;
    }
}

static bool step_label(kin_reply_parser *p, char c) {
    const kin_chat_format *f = p->format;
    const char *const marks[][4] = {[KIN_REPLY_AT_CALL] = {f->call_begin, f->name_begin, "", ""},
                                    [KIN_REPLY_AT_NAME] = {f->name_begin, "", "", ""},
                                    [KIN_REPLY_AT_ARGUMENTS] = {f->id_begin, f->name_end, "", ""},
                                    [KIN_REPLY_AT_PARAMETER] = {f->key_begin, f->arguments_end, f->call_end, f->calls_end},
                                    [KIN_REPLY_AT_TYPE] = {f->key_end, "", "", ""},
                                    [KIN_REPLY_AT_VALUE] = {f->type_end, "", "", ""}};
    bool may_follow;
    if (!kin_reply_hold_in_call(p, c)) return true;
    int mark = kin_reply_read_label(p, marks[p->place], 4, &may_follow);
    if (mark >= 0) enter_label(p, mark);
    if (mark >= 0 || may_follow) return true;
    p->held.len--;
    return kin_reply_is_no_call(p);
}

// True if the byte ends a name or an id.
static bool ends_name(const kin_reply_parser *p, char c) {
    const kin_chat_format *f = p->format;
    if (f->syntax == KIN_CALL_PYTHON) return c == '(';
    if (c == '{' || kin_is_space(c)) return true;
    if (f->name_end[0]) return c == f->name_end[0] || (f->id_begin[0] && c == f->id_begin[0]);
    bool has_parameters = f->syntax == KIN_CALL_PARAMETERS;
    return has_parameters && (c == f->key_begin[0] || c == f->arguments_end[0] || c == f->call_end[0]);
}

// Reads a name or an id.
static bool step_word(kin_reply_parser *p, char c, kin_reply_range *word) {
    word->end = p->held.len;
    if (word->end == word->begin && kin_is_space(c)) {
        if (kin_reply_hold_in_call(p, c)) word->begin = p->held.len;
        return true;
    }
    if (ends_name(p, c)) {
        p->state = KIN_REPLY_AFTER_NAME;
        return false;
    }
    if (word->end - word->begin > KIN_REPLY_MAX_NAME) return kin_reply_is_no_call(p);
    kin_reply_hold_in_call(p, c);
    return true;
}

static bool step_after_name(kin_reply_parser *p, char c) {
    const kin_chat_format *f = p->format;
    kin_str name = kin_reply_held(p, p->name);
    int64_t tool = kin_reply_find_tool(p, name);
    if (kin_is_space(c)) {
        kin_reply_hold_in_call(p, c);
        return true;
    }
    if (tool < 0) return kin_reply_is_no_call(p);
    if (f->syntax == KIN_CALL_JSON && c == '{') {
        kin_reply_begin_json(p, tool, f->id_names ? name : kin_reply_held(p, p->id));
        return false;
    }
    if (c == (f->syntax == KIN_CALL_PYTHON ? '(' : '{') && (f->syntax == KIN_CALL_PYTHON || f->syntax == KIN_CALL_QUOTED)) {
        kin_reply_begin_loose(p, tool);
        return false;
    }
    if (f->syntax == KIN_CALL_PARAMETERS && !f->name_end[0]) {
        kin_reply_begin_parameters(p, tool);
        return false;
    }
    p->place = KIN_REPLY_AT_ARGUMENTS;
    begin_label(p);
    return false;
}

bool kin_reply_step_call(kin_reply_parser *p, char c) {
    switch (p->state) {
    case KIN_REPLY_AFTER_MARK: return step_after_mark(p, c);
    case KIN_REPLY_IN_LIST: return step_list(p, c);
    case KIN_REPLY_IN_OBJECT: return step_object(p, c);
    case KIN_REPLY_IN_ARGUMENTS: return step_arguments(p, c);
    case KIN_REPLY_IN_REST: return step_rest(p, c);
    case KIN_REPLY_IN_LABEL: return step_label(p, c);
    case KIN_REPLY_IN_NAME: return step_word(p, c, &p->name);
    case KIN_REPLY_IN_ID: return step_word(p, c, &p->id);
    case KIN_REPLY_AFTER_NAME: return step_after_name(p, c);
    default: return kin_reply_step_values(p, c);
    }
}
