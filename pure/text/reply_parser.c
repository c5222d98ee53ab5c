#include "pure/text/reply_parser_impl.h"

#include <stdlib.h>
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

static void begin_events(kin_reply_parser *p) {
    p->n_events = 0;
    p->out.len = 0;
}

static int end_events(kin_reply_parser *p, const kin_reply_event **events, int *n) {
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

bool kin_reply_is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

bool kin_reply_hold(kin_reply_parser *p, char c) {
    kin_text_put(&p->held, &c, 1);
    if (p->held.failed) p->failed = true;
    return !p->failed;
}

void kin_reply_forget(kin_reply_parser *p) {
    p->held.len = p->n_space = 0;
}

static kin_reply_kind kind_of_text(const kin_reply_parser *p) {
    bool is_reasoning = p->state == KIN_REPLY_IN_REASONING && !p->options.reasoning_in_text;
    return is_reasoning ? KIN_REPLY_REASONING : KIN_REPLY_TEXT;
}

void kin_reply_release(kin_reply_parser *p) {
    if (p->state != KIN_REPLY_IN_REASONING) {
        p->state = KIN_REPLY_IN_TEXT;
        p->at_beginning = p->in_list = false;
    }
    p->drops_space = false;
    kin_reply_emit(p, kind_of_text(p), p->held.at, p->held.len);
    kin_reply_forget(p);
}

// ---- markers. The first character of a marker occurs only once in it.

typedef enum marker_kind { THINK, END_THINK, CALL, FUNCTION, END_CALL, WITHIN_CALL } marker_kind;

enum { // sets of formats, as bits
    HERMES = 1 << KIN_REPLY_HERMES,
    XML = 1 << KIN_REPLY_XML,
    LLAMA = 1 << KIN_REPLY_LLAMA,
    MISTRAL = 1 << KIN_REPLY_MISTRAL | 1 << KIN_REPLY_MISTRAL_ARGS,
};

static const struct marker {
    const char *text;
    marker_kind kind;
    unsigned formats;
} markers[] = {
    {"<think>", THINK, 0},
    {"</think>", END_THINK, 0},
    {"<tool_call>", CALL, HERMES | XML},
    {"</tool_call>", END_CALL, HERMES | XML},
    {"<function=", FUNCTION, XML},
    {"<|python_tag|>", CALL, LLAMA},
    {"[TOOL_CALLS]", CALL, MISTRAL},
    {"[ARGS]", WITHIN_CALL, MISTRAL},
    {"[CALL_ID]", WITHIN_CALL, MISTRAL},
};
enum { N_MARKERS = sizeof markers / sizeof *markers };

bool kin_reply_is_marker(kin_str text) {
    for (int i = 0; i < N_MARKERS; i++) {
        if (text.len == strlen(markers[i].text) && memcmp(text.at, markers[i].text, text.len) == 0) return true;
    }
    return false;
}

static bool is_looked_for(const kin_reply_parser *p, const struct marker *marker) {
    bool has_format = marker->formats >> p->options.format & 1;
    switch (marker->kind) {
    case THINK: return p->state == KIN_REPLY_IN_TEXT && p->at_beginning && p->options.reasoning && !p->had_reasoning;
    case END_THINK: return p->state == KIN_REPLY_IN_REASONING;
    case CALL:
    case FUNCTION: return has_format && p->state != KIN_REPLY_IN_REASONING;
    case END_CALL: return has_format && p->state == KIN_REPLY_AFTER_CALL;
    case WITHIN_CALL: return false;
    }
    return false;
}

// Returns the marker that equals these bytes, or the first one that begins with them; NULL: none.
static const struct marker *find_marker(const kin_reply_parser *p, kin_str text, bool *is_whole) {
    for (int i = 0; i < N_MARKERS; i++) {
        size_t len = strlen(markers[i].text);
        if (text.len > len || memcmp(text.at, markers[i].text, text.len) != 0 || !is_looked_for(p, &markers[i])) continue;
        *is_whole = text.len == len;
        return &markers[i];
    }
    return NULL;
}

static void pass_reasoning_marker(kin_reply_parser *p) {
    if (p->options.reasoning_in_text) kin_reply_emit(p, KIN_REPLY_TEXT, p->held.at, p->held.len);
    p->drops_space = !p->options.reasoning_in_text;
    kin_reply_forget(p);
}

static void enter_marker(kin_reply_parser *p, marker_kind kind) {
    switch (kind) {
    case THINK:
        pass_reasoning_marker(p);
        p->had_reasoning = true;
        p->state = KIN_REPLY_IN_REASONING;
        break;
    case END_THINK:
        pass_reasoning_marker(p);
        p->state = KIN_REPLY_IN_TEXT;
        break;
    case CALL: p->state = KIN_REPLY_AFTER_MARKER; break;
    case FUNCTION: kin_reply_begin_function(p); break;
    case END_CALL:
    case WITHIN_CALL: kin_reply_forget(p); break;
    }
}

// ---- text, reasoning, and the space between calls

// Holds white space back, because a following marker would remove it.
static bool step_space(kin_reply_parser *p, char c) {
    if (p->drops_space) return true;
    if (p->held.len == KIN_REPLY_MAX_SPACE) {
        kin_reply_emit(p, kind_of_text(p), p->held.at, p->held.len);
        kin_reply_forget(p);
    }
    if (kin_reply_hold(p, c)) p->n_space = p->held.len;
    return true;
}

static bool step_text(kin_reply_parser *p, char c) {
    bool is_first = p->held.len == p->n_space, is_whole, is_llama = p->options.format == KIN_REPLY_LLAMA;
    bool is_between = p->at_beginning || p->state == KIN_REPLY_AFTER_CALL;
    if (is_first && kin_reply_is_space(c)) return step_space(p, c);
    if (is_first && is_llama && p->state == KIN_REPLY_AFTER_CALL && c == ';') return true;
    if (!kin_reply_hold(p, c)) return true;
    const struct marker *marker = find_marker(p, (kin_str){p->held.at + p->n_space, p->held.len - p->n_space}, &is_whole);
    if (marker) {
        if (is_whole) enter_marker(p, marker->kind);
        return true;
    }
    if (is_first && is_llama && is_between && c == '{' && p->state != KIN_REPLY_IN_REASONING) {
        kin_reply_begin_object(p);
        return true;
    }
    if (!is_first) p->held.len--; // it may be the first byte of a marker
    kin_reply_release(p);
    return is_first;
}

// True if nothing is searched for any more.
static bool is_plain(const kin_reply_parser *p) {
    return p->state == KIN_REPLY_IN_TEXT && p->options.format == KIN_REPLY_PLAIN && !p->at_beginning && !p->drops_space;
}

// ---- the parser

int kin_reply_parser_new(kin_reply_parser **out, const kin_reply_options *options, kin_err *err) {
    *out = NULL;
    kin_reply_parser *p = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "reply: out of memory");
    p->options = *options;
    p->at_beginning = true;
    if (options->begins_in_reasoning) {
        p->state = KIN_REPLY_IN_REASONING;
        p->had_reasoning = true;
        p->drops_space = !options->reasoning_in_text;
    }
    int rc = kin_string_table_init(&p->names, 16, 256);
    for (size_t i = 0; i < options->n_tools && rc == 0; i++) {
        if (kin_string_table_add(&p->names, options->tools[i].name.at, options->tools[i].name.len) < 0) rc = KIN_FAIL;
    }
    if (rc == 0 && p->names.n < options->n_tools) {
        kin_reply_parser_free(p);
        return kin_err_set(err, "tools: two of them have the same name");
    }
    if (rc != 0) {
        kin_reply_parser_free(p);
        return kin_err_set(err, "reply: out of memory");
    }
    *out = p;
    return 0;
}

void kin_reply_parser_free(kin_reply_parser *p) {
    if (!p) return;
    if (p->has_schema) kin_json_fini(&p->schema);
    kin_string_table_fini(&p->keys);
    kin_string_table_fini(&p->names);
    kin_text_fini(&p->out);
    kin_text_fini(&p->held);
    free(p->marks);
    free(p->events);
    free(p);
}

int kin_reply_parser_push(kin_reply_parser *p, const char *at, size_t len, const kin_reply_event **events, int *n) {
    kin_assert(!p->flushed);
    begin_events(p);
    for (size_t i = 0; i < len && !p->failed;) {
        if (is_plain(p)) {
            kin_reply_emit(p, KIN_REPLY_TEXT, at + i, len - i);
            break;
        }
        i += p->state < KIN_REPLY_AFTER_MARKER ? step_text(p, at[i]) : kin_reply_step_call(p, at[i]);
    }
    return end_events(p, events, n);
}

bool kin_reply_parser_marks_call(const kin_reply_parser *p, kin_str text, bool *is_whole) {
    bool is_between = p->at_beginning || p->state == KIN_REPLY_AFTER_CALL;
    for (int i = 0; i < N_MARKERS; i++) {
        size_t len = strlen(markers[i].text);
        bool is_of_call = markers[i].kind == CALL || markers[i].kind == FUNCTION || markers[i].kind == END_CALL;
        if (!is_of_call || text.len > len || memcmp(text.at, markers[i].text, text.len) != 0 || !is_looked_for(p, &markers[i]))
            continue;
        *is_whole = text.len == len;
        return true;
    }
    *is_whole = p->options.format == KIN_REPLY_LLAMA && is_between && p->state != KIN_REPLY_IN_REASONING && text.len == 1 &&
                text.at[0] == '{';
    return *is_whole;
}

bool kin_reply_parser_is_in_call(const kin_reply_parser *p) {
    return p->state >= KIN_REPLY_AFTER_MARKER;
}

// True if the held bytes are an unfinished call: a marker that begins one, or at least two bytes of such a marker, or an object
// with the name of a tool.
static bool is_begun_call(const kin_reply_parser *p) {
    kin_str text = {p->held.at + p->n_space, p->held.len - p->n_space};
    bool is_whole;
    if (p->state == KIN_REPLY_IN_REASONING) return false;
    if (p->state < KIN_REPLY_AFTER_MARKER) {
        const struct marker *marker = text.len > 1 ? find_marker(p, text, &is_whole) : NULL;
        return marker && (marker->kind == CALL || marker->kind == FUNCTION || marker->kind == END_CALL);
    }
    return p->state != KIN_REPLY_IN_OBJECT || p->has_name || text.at[0] != '{';
}

int kin_reply_parser_flush(kin_reply_parser *p, bool is_cut, const kin_reply_event **events, int *n) {
    bool is_space = p->held.len == p->n_space;
    begin_events(p);
    p->flushed = true;
    if (is_cut && !is_space && is_begun_call(p)) return end_events(p, events, n);
    switch (p->state) {
    case KIN_REPLY_IN_REASONING:
        if (!is_space || p->options.reasoning_in_text) kin_reply_release(p);
        break;
    case KIN_REPLY_IN_ARGUMENTS:
    case KIN_REPLY_IN_REST:
    case KIN_REPLY_BEFORE_PARAMETER:
    case KIN_REPLY_IN_KEY:
    case KIN_REPLY_IN_VALUE: break; // a call without an end
    case KIN_REPLY_IN_LIST:
        if (!p->list_has_calls) kin_reply_release(p);
        break;
    default: kin_reply_release(p);
    }
    return end_events(p, events, n);
}
