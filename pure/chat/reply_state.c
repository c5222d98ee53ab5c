#include "pure/chat/reply_state.h"

#include <string.h>

#include "pure/text/grow.h"

// ---- events

static kin_reply_event *add_event(kin_reply_parser *p, kin_reply_kind kind) {
    uint64_t n = (uint64_t)p->n_events + 1;
    if (kin_grow((void **)&p->events, &p->cap_events, n, INT32_MAX, sizeof *p->events) != 0 ||
        kin_grow((void **)&p->marks, &p->cap_marks, n, INT32_MAX, sizeof *p->marks) != 0) {
        p->failed = true;
        return NULL;
    }
    p->marks[p->n_events] = (kin_reply_mark){p->out.len, p->out.len, p->out.len};
    p->events[p->n_events] = (kin_reply_event){.kind = kind, .tool = p->n_calls - 1};
    return &p->events[p->n_events++];
}

void kin_reply_emit(kin_reply_parser *p, kin_reply_kind kind, const char *at, size_t len) {
    bool has_text = kind == KIN_REPLY_TEXT || kind == KIN_REPLY_REASONING || kind == KIN_REPLY_TOOL_ARGUMENTS;
    kin_reply_event *last = p->n_events > 0 ? &p->events[p->n_events - 1] : NULL;
    if (has_text && len == 0) return;
    if (!last || last->kind != kind || !has_text) last = add_event(p, kind);
    if (!last) return;
    last->text.len += len;
    if (len > 0) kin_text_put(&p->out, at, len);
}

void kin_reply_emit_begin(kin_reply_parser *p, kin_str name, kin_str id) {
    p->n_calls++;
    kin_reply_event *event = add_event(p, KIN_REPLY_TOOL_BEGIN);
    if (!event) return;
    event->name.len = name.len;
    event->id.len = id.len;
    p->marks[p->n_events - 1].id += name.len;
    kin_text_put(&p->out, name.at, name.len);
    kin_text_put(&p->out, id.at, id.len);
}

void kin_reply_begin_events(kin_reply_parser *p) {
    p->n_events = 0;
    p->out.len = 0;
}

int kin_reply_end_events(kin_reply_parser *p, const kin_reply_event **events, int *n) {
    if (p->out.failed || p->held.failed) p->failed = true;
    *events = p->events;
    *n = p->failed ? 0 : (int)p->n_events;
    const char *bytes = p->out.at ? p->out.at : "";
    for (int i = 0; i < *n; i++) {
        p->events[i].text.at = bytes + p->marks[i].text;
        p->events[i].name.at = bytes + p->marks[i].name;
        p->events[i].id.at = bytes + p->marks[i].id;
    }
    return p->failed ? KIN_FAIL : 0;
}

// ---- held bytes

bool kin_reply_hold(kin_reply_parser *p, char c) {
    kin_text_put(&p->held, &c, 1);
    if (p->held.failed) p->failed = true;
    return !p->failed;
}

void kin_reply_forget(kin_reply_parser *p) {
    p->held.len = p->n_space = p->n_given = 0;
}

kin_reply_kind kin_reply_kind_of_text(const kin_reply_parser *p) {
    bool is_reasoning = p->state == KIN_REPLY_IN_REASONING && !p->options.reasoning_in_text;
    return is_reasoning ? KIN_REPLY_REASONING : KIN_REPLY_TEXT;
}

// True if a call that turns out to be none is the mark of text: Functionary's >>>all begins like a call.
static bool is_text_mark(const kin_reply_parser *p) {
    const char *mark = p->format->text_begin;
    return p->state >= KIN_REPLY_AFTER_MARK && mark[0] &&
           kin_chat_mark_match(mark, (kin_str){p->held.at, p->held.len}) == KIN_MARK_EQUAL;
}

void kin_reply_release(kin_reply_parser *p) {
    size_t begin = is_text_mark(p) ? p->held.len : p->n_given;
    if (p->state != KIN_REPLY_IN_REASONING) {
        p->state = KIN_REPLY_IN_TEXT;
        p->at_beginning = p->in_list = false;
    }
    p->drops_space = false;
    if (p->held.len > begin) kin_reply_emit(p, kin_reply_kind_of_text(p), p->held.at + begin, p->held.len - begin);
    kin_reply_forget(p);
}

void kin_reply_pass_reasoning_mark(kin_reply_parser *p) {
    if (p->options.reasoning_in_text) kin_reply_emit(p, KIN_REPLY_TEXT, p->held.at, p->held.len);
    p->drops_space = !p->options.reasoning_in_text;
    kin_reply_forget(p);
}

// ---- within a call

bool kin_reply_is_no_call(kin_reply_parser *p) {
    kin_reply_release(p);
    return false;
}

bool kin_reply_hold_in_call(kin_reply_parser *p, char c) {
    if (!kin_reply_hold(p, c)) return false;
    if (p->held.len < KIN_REPLY_MAX_HELD) return true;
    kin_reply_release(p);
    return false;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

int64_t kin_reply_find_tool(const kin_reply_parser *p, kin_str text) {
    static const char prefix[] = "functions.";
    enum { N_PREFIX = sizeof prefix - 1 };
    int64_t tool = kin_string_table_find(&p->names, text.at, text.len);
    size_t n = text.len;
    if (tool >= 0) return tool;
    while (n > 0 && is_digit(text.at[n - 1])) n--;
    if (n > 0 && n < text.len && text.at[n - 1] == ':') text.len = n - 1;
    if (text.len > N_PREFIX && memcmp(text.at, prefix, N_PREFIX) == 0) text = (kin_str){text.at + N_PREFIX, text.len - N_PREFIX};
    return kin_string_table_find(&p->names, text.at, text.len);
}

void kin_reply_begin_named(kin_reply_parser *p, kin_str name, kin_str id, kin_reply_state state) {
    kin_reply_emit_begin(p, name, id);
    kin_reply_forget(p);
    p->list_has_calls = true;
    p->state = state;
}

void kin_reply_begin_call(kin_reply_parser *p, int64_t tool, kin_str id, kin_reply_state state) {
    kin_reply_begin_named(p, p->options.tools[tool].name, id, state);
}

void kin_reply_begin_json(kin_reply_parser *p, int64_t tool, kin_str id) {
    p->scan = (kin_json_scan){0};
    p->bare = true;
    kin_reply_begin_call(p, tool, id, KIN_REPLY_IN_ARGUMENTS);
}

void kin_reply_leave_call(kin_reply_parser *p) {
    kin_reply_forget(p);
    p->state = p->in_list ? KIN_REPLY_IN_LIST : KIN_REPLY_AFTER_CALL;
    p->at_beginning = false;
    p->drops_space = true;
}

int kin_reply_read_label(const kin_reply_parser *p, const char *const *marks, int n, bool *may_follow) {
    kin_str text = {p->held.at + p->label.begin, p->held.len - p->label.begin};
    *may_follow = false;
    for (int i = 0; i < n; i++) {
        kin_mark_match match = marks[i][0] ? kin_chat_mark_match(marks[i], text) : KIN_MARK_DIFFERS;
        if (match == KIN_MARK_EQUAL) return i;
        *may_follow |= match == KIN_MARK_PREFIX;
    }
    return -1;
}
