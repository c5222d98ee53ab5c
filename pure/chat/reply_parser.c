#include "pure/chat/reply_parser.h"

#include <stdlib.h>
#include <string.h>

#include "pure/chat/reply_parser_call.h"
#include "pure/chat/reply_parser_channels.h"

// ---- marks

typedef enum mark_kind { THINK, END_THINK, CALLS, CALL, NAME, END_CALL, HEADER, DROPPED } mark_kind;

typedef struct mark {
    const char *text;
    mark_kind kind;
} mark;

enum { MAX_MARKS = 16 };

// Lists the marks that are searched for now; empty ones are left out.
static int list_marks(const kin_reply_parser *p, mark *marks) {
    const kin_chat_format *f = p->format;
    int n = 0;
    bool in_reasoning = p->state == KIN_REPLY_IN_REASONING, is_after = p->state == KIN_REPLY_AFTER_CALL;
    bool may_think = p->state == KIN_REPLY_IN_TEXT && p->at_beginning && p->options.reasoning && !p->had_reasoning;
    bool has_channels = f->syntax == KIN_CALL_CHANNELS, has_calls = p->has_calls && !in_reasoning && !has_channels;
    // A call may begin with its second mark: Qwen3-Coder often leaves <tool_call> out.
    bool is_tag = f->name_begin[0] == '<' && (f->call_begin[0] || f->calls_begin[0]);
    const struct {
        bool is_searched;
        mark mark;
    } all[] = {
        {may_think && !has_channels, {f->think_begin, THINK}},
        {in_reasoning, {f->think_end, END_THINK}},
        {has_channels, {"<|start|>", HEADER}},
        {has_channels, {"<|channel|>", HEADER}},
        {has_channels && p->at_beginning && !in_reasoning, {"to=", HEADER}},
        {has_channels && !in_reasoning, {"<|end|>", DROPPED}},
        {has_channels && !in_reasoning, {"<|message|>", DROPPED}},
        {has_calls, {f->calls_begin, CALLS}},
        {has_calls, {f->call_begin, CALL}},
        {has_calls && is_tag, {f->name_begin, NAME}},
        {is_after, {f->arguments_end, END_CALL}},
        {is_after, {f->call_end, END_CALL}},
        {is_after, {f->calls_end, END_CALL}},
        {!in_reasoning, {f->text_begin, DROPPED}},
        {!in_reasoning, {f->text_end, DROPPED}},
        {!in_reasoning, {f->turn_end, DROPPED}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].is_searched && all[i].mark.text[0]) marks[n++] = all[i].mark;
    }
    return n;
}

static kin_mark_match match_mark(const char *mark, kin_str text) {
    size_t len = strlen(mark);
    if (strchr(mark, KIN_MARK_NAME[0]))
        return text.len > len + KIN_REPLY_MAX_NAME ? KIN_MARK_DIFFERS : kin_chat_mark_match(mark, text);
    if (text.len > len || memcmp(text.at, mark, text.len) != 0) return KIN_MARK_DIFFERS;
    return text.len == len ? KIN_MARK_EQUAL : KIN_MARK_PREFIX;
}

// Finds the mark that equals these bytes, or the first one that begins with them. White space within marks that end calls has no
// meaning.
static bool find_mark(const kin_reply_parser *p, kin_str text, mark *out, bool *is_whole) {
    mark marks[MAX_MARKS];
    int n = list_marks(p, marks);
    bool is_found = *is_whole = false;
    for (int i = 0; i < n && !*is_whole; i++) {
        bool is_end = marks[i].kind == END_CALL;
        kin_mark_match match = is_end ? kin_chat_mark_match(marks[i].text, text) : match_mark(marks[i].text, text);
        if (match == KIN_MARK_DIFFERS || (is_found && match != KIN_MARK_EQUAL)) continue;
        *out = marks[i];
        *is_whole = match == KIN_MARK_EQUAL;
        is_found = true;
    }
    return is_found;
}

static void enter_mark(kin_reply_parser *p, mark_kind kind) {
    switch (kind) {
    case THINK:
        kin_reply_pass_reasoning_mark(p);
        p->had_reasoning = true;
        p->state = KIN_REPLY_IN_REASONING;
        break;
    case END_THINK:
        kin_reply_pass_reasoning_mark(p);
        p->state = KIN_REPLY_IN_TEXT;
        break;
    case CALLS:
    case CALL:
        p->in_calls = kind == CALLS || p->in_calls;
        p->place = kind == CALLS ? KIN_REPLY_AT_CALL : KIN_REPLY_AT_NAME;
        p->state = KIN_REPLY_AFTER_MARK;
        break;
    case NAME: kin_reply_begin_name(p); break;
    case HEADER:
        p->label.begin = p->n_space;
        p->state = KIN_REPLY_IN_HEADER;
        break;
    case END_CALL:
    case DROPPED: kin_reply_forget(p); break;
    }
}

// ---- text, reasoning, and the space between calls

// Holds white space back, because a following mark would remove it.
static bool step_space(kin_reply_parser *p, char c) {
    if (p->drops_space) return true;
    if (p->held.len == KIN_REPLY_MAX_SPACE) {
        kin_reply_emit(p, kin_reply_kind_of_text(p), p->held.at, p->held.len);
        kin_reply_forget(p);
    }
    if (kin_reply_hold(p, c)) p->n_space = p->held.len;
    return true;
}

// True if a call may begin here with this byte, without a mark.
static bool may_begin_bare(const kin_reply_parser *p, char c) {
    const kin_chat_format *f = p->format;
    bool is_after = p->state == KIN_REPLY_AFTER_CALL, is_object = f->syntax == KIN_CALL_OBJECT;
    if (!p->has_calls || p->state == KIN_REPLY_IN_REASONING) return false;
    if (f->is_bare && (p->at_beginning || is_after)) return c == (is_object ? '{' : '[');
    return is_after && is_object && p->in_calls && !f->call_begin[0] && c == '{';
}

static bool step_text(kin_reply_parser *p, char c) {
    bool is_first = p->held.len == p->n_space, is_whole;
    mark found;
    if (is_first && kin_is_space(c)) return step_space(p, c);
    if (is_first && p->format->is_bare && p->state == KIN_REPLY_AFTER_CALL && c == ';') return true;
    if (!kin_reply_hold(p, c)) return true;
    if (find_mark(p, (kin_str){p->held.at + p->n_space, p->held.len - p->n_space}, &found, &is_whole)) {
        if (is_whole) enter_mark(p, found.kind);
        return true;
    }
    if (is_first && may_begin_bare(p, c)) {
        if (c == '{')
            kin_reply_begin_object(p);
        else
            kin_reply_begin_list(p);
        return true;
    }
    if (!is_first) p->held.len--; // it may be the first byte of a mark
    kin_reply_release(p);
    return is_first;
}

// True if nothing is searched for any more.
static bool is_plain(const kin_reply_parser *p) {
    mark marks[MAX_MARKS];
    return p->state == KIN_REPLY_IN_TEXT && !p->has_calls && !p->at_beginning && !p->drops_space && list_marks(p, marks) == 0;
}

// ---- the parser

// Begins the reply with the mark that the prompt ends with.
static void give_mark(kin_reply_parser *p) {
    const kin_chat_format *f = p->format;
    size_t n = f->is_begun ? strlen(f->call_begin) : 0;
    bool is_of_text = n > 0 && strncmp(f->text_begin, f->call_begin, n) == 0;
    if (!p->has_calls && !is_of_text) return;
    for (size_t i = 0; i < n; i++) step_text(p, f->call_begin[i]);
    p->n_given = n;
}

int kin_reply_parser_new(kin_reply_parser **out, const kin_reply_options *options, kin_err *err) {
    *out = NULL;
    kin_reply_parser *p = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "reply: out of memory");
    p->options = *options;
    p->format = options->format ? options->format : kin_chat_format_known(KIN_CHAT_PLAIN);
    p->has_calls = p->format->syntax != KIN_CALL_NONE && options->n_tools > 0;
    p->at_beginning = true;
    if (options->begins_in_reasoning && kin_chat_format_thinks(p->format)) {
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
        return kin_err_set(err, "tools: two tools have the same name");
    }
    if (rc != 0) {
        kin_reply_parser_free(p);
        return kin_err_set(err, "reply: out of memory");
    }
    give_mark(p);
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
    kin_reply_begin_events(p);
    for (size_t i = 0; i < len && !p->failed;) {
        if (is_plain(p)) {
            kin_reply_emit(p, KIN_REPLY_TEXT, at + i, len - i);
            break;
        }
        if (p->state == KIN_REPLY_IN_HEADER)
            i += kin_reply_step_header(p, at[i]);
        else
            i += p->state < KIN_REPLY_AFTER_MARK ? step_text(p, at[i]) : kin_reply_step_call(p, at[i]);
    }
    return kin_reply_end_events(p, events, n);
}

static bool is_of_call(mark_kind kind) {
    return kind == CALLS || kind == CALL || kind == NAME || kind == END_CALL || kind == HEADER;
}

bool kin_reply_parser_marks_call(const kin_reply_parser *p, kin_str text, bool *is_whole) {
    mark marks[MAX_MARKS];
    int n = list_marks(p, marks);
    for (int i = 0; i < n; i++) {
        kin_mark_match match = is_of_call(marks[i].kind) ? match_mark(marks[i].text, text) : KIN_MARK_DIFFERS;
        if (match == KIN_MARK_DIFFERS) continue;
        *is_whole = match == KIN_MARK_EQUAL;
        return true;
    }
    *is_whole = text.len == 1 && may_begin_bare(p, text.at[0]);
    return *is_whole;
}

bool kin_reply_parser_is_in_call(const kin_reply_parser *p) {
    return p->state >= KIN_REPLY_IN_HEADER;
}

// True if the held bytes are an unfinished call: a mark that begins one, or at least two bytes of such a mark, or an object
// with the name of a tool.
static bool is_begun_call(const kin_reply_parser *p) {
    kin_str text = {p->held.at + p->n_space, p->held.len - p->n_space};
    bool is_whole;
    mark found;
    if (p->state == KIN_REPLY_IN_REASONING) return false;
    if (p->state < KIN_REPLY_IN_HEADER) return text.len > 1 && find_mark(p, text, &found, &is_whole) && found.kind > END_THINK;
    return p->state != KIN_REPLY_IN_OBJECT || p->has_name || text.at[0] != '{';
}

int kin_reply_parser_flush(kin_reply_parser *p, bool is_cut, const kin_reply_event **events, int *n) {
    bool is_space = p->held.len == p->n_space;
    kin_reply_begin_events(p);
    p->flushed = true;
    if (is_cut && !is_space && is_begun_call(p)) return kin_reply_end_events(p, events, n);
    switch (p->state) {
    case KIN_REPLY_IN_REASONING:
        if (!is_space || p->options.reasoning_in_text) kin_reply_release(p);
        break;
    case KIN_REPLY_IN_ARGUMENTS:
    case KIN_REPLY_IN_REST:
    case KIN_REPLY_BEFORE_PARAMETER:
    case KIN_REPLY_IN_KEY:
    case KIN_REPLY_IN_TYPE:
    case KIN_REPLY_IN_VALUE:
    case KIN_REPLY_AFTER_VALUE:
    case KIN_REPLY_IN_LOOSE: break; // a call without an end
    case KIN_REPLY_IN_LABEL:
        if (p->place < KIN_REPLY_AT_PARAMETER) kin_reply_release(p);
        break;
    case KIN_REPLY_IN_LIST:
        if (!p->list_has_calls) kin_reply_release(p);
        break;
    default: kin_reply_release(p);
    }
    return kin_reply_end_events(p, events, n);
}
