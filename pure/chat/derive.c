#include "pure/chat/derive.h"

#include <stdlib.h>
#include <string.h>

#include "pure/chat/reply_grammar.h"
#include "pure/chat/trial.h"
#include "pure/grammar/matcher.h"
#include "pure/text/json.h"

#define KEY "kin_key"
#define NUM "kin_num"
#define VALUE "kin value"
#define NUMBER "41753"
#define ID "abcdef123"

static const kin_trial_call calls[] = {
    {0, "{\"" KEY "\": \"" VALUE "\", \"" NUM "\": " NUMBER "}"},
    {1, "{\"" KEY "\": \"kin other\", \"" NUM "\": 90210}"},
};
static const kin_trial_call nested_call = {
    0, "{\"" KEY "\": \"x \xc3\xa9\xe2\x82\xac, y\", \"kin_list\": [1, {\"a\": \"b\"}], \"" NUM "\": -2, \"kin_yes\": true}"};

static const kin_trial_call slash_call = {0, "{\"" KEY "\": \"a\\\\nb\"}"}; // a backslash and an n

// What the template renders, from the end of the question on.
typedef struct rendering {
    kin_text_buffer text;
    bool is_rendered;
} rendering;

typedef struct study {
    const kin_jinja *jinja;
    const char *id;
    rendering open, answer, one, two, nested, slash;
    kin_str header;   // what begins an assistant's message
    kin_str turn_end; // what ends it
    kin_chat_format think;
    kin_chat_derived *out;
} study;

// ---- strings

static kin_str str(const char *text) {
    return (kin_str){text, strlen(text)};
}

static kin_str rest(kin_str text, size_t from) {
    return (kin_str){text.at + from, text.len - from};
}

static kin_str first(kin_str text, size_t n) {
    return (kin_str){text.at, n};
}

static kin_str trim(kin_str text) {
    while (text.len > 0 && kin_is_space(text.at[0])) text = rest(text, 1);
    while (text.len > 0 && kin_is_space(text.at[text.len - 1])) text.len--;
    return text;
}

// Returns the offset of the word, or the text's length.
static size_t find(kin_str text, kin_str word) {
    for (size_t i = 0; i + word.len <= text.len; i++) {
        if (memcmp(text.at + i, word.at, word.len) == 0) return i;
    }
    return text.len;
}

static bool has(kin_str text, const char *word) {
    return find(text, str(word)) < text.len;
}

// Returns the offset of the last byte c, or the text's length.
static size_t find_last(kin_str text, char c) {
    for (size_t i = text.len; i > 0; i--) {
        if (text.at[i - 1] == c) return i - 1;
    }
    return text.len;
}

static bool ends_with(kin_str text, kin_str end) {
    return text.len >= end.len && memcmp(text.at + text.len - end.len, end.at, end.len) == 0;
}

static size_t common_prefix(kin_str a, kin_str b) {
    size_t n = 0;
    while (n < a.len && n < b.len && a.at[n] == b.at[n]) n++;
    return n;
}

static size_t common_suffix(kin_str a, kin_str b) {
    size_t n = 0;
    while (n < a.len && n < b.len && a.at[a.len - 1 - n] == b.at[b.len - 1 - n]) n++;
    return n;
}

// Cuts a tag off that is incomplete at the end: "</a>\n<b" becomes "</a>\n".
static kin_str whole_tags(kin_str text) {
    size_t open = find_last(text, '<'), close = find_last(text, '>');
    bool is_cut = open < text.len && (close == text.len || close < open);
    return is_cut ? first(text, open) : text;
}

// Stores a mark without the white space around it. Returns false if it is too long.
static bool set(char *mark, size_t room, kin_str text) {
    text = trim(text);
    if (text.len >= room || memchr(text.at, 0, text.len)) return false;
    memcpy(mark, text.at, text.len);
    mark[text.len] = 0;
    return true;
}
#define SET(mark, text) set(mark, sizeof(mark), text)

// ---- renderings

static int render(study *s, kin_trial t, rendering *to) {
    t.has_tools = true;
    t.id = s->id;
    t.arguments_as_text = s->out->arguments_are_text;
    t.content_is_null = s->out->content_is_null;
    to->text.len = 0;
    if (kin_trial_render(s->jinja, &t, &to->text, &to->is_rendered) != 0) return KIN_FAIL;
    kin_str text = kin_text_str(&to->text), question = str(KIN_TRIAL_QUESTION);
    size_t at = find(text, question);
    if (at == text.len) to->is_rendered = false;
    if (!to->is_rendered) return 0;
    at += question.len;
    memmove(to->text.at, to->text.at + at, to->text.len - at);
    to->text.len -= at;
    return 0;
}

enum { N_TRIALS = 6, N_SIMPLE = 3 }; // the simple ones: prompt, answer, one call
static int render_first(study *s, int n) {
    const kin_trial trials[] = {{.is_open = true},
                                {.has_answer = true},
                                {.calls = calls, .n_calls = 1},
                                {.calls = calls, .n_calls = 2},
                                {.calls = &nested_call, .n_calls = 1},
                                {.calls = &slash_call, .n_calls = 1}};
    rendering *const to[] = {&s->open, &s->answer, &s->one, &s->two, &s->nested, &s->slash};
    for (int i = 0; i < n; i++) {
        if (render(s, trials[i], to[i]) != 0) return KIN_FAIL;
    }
    return 0;
}

static void fini(study *s) {
    kin_text_fini(&s->open.text);
    kin_text_fini(&s->answer.text);
    kin_text_fini(&s->one.text);
    kin_text_fini(&s->two.text);
    kin_text_fini(&s->nested.text);
    kin_text_fini(&s->slash.text);
}

// Cuts a tag off that ends text, not the turn: after a call there is another one.
static kin_str common_end(kin_str after_answer, kin_str after_call) {
    kin_str end = rest(after_answer, after_answer.len - common_suffix(after_answer, after_call));
    size_t open = find(end, str("<"));
    return open < end.len ? rest(end, open) : after_answer;
}

// Finds what begins and ends an assistant's message, from its generation prompt, an answer and a call.
static void find_frame(study *s) {
    kin_str open = kin_text_str(&s->open.text), answer = kin_text_str(&s->answer.text);
    size_t at = find(answer, str(KIN_TRIAL_ANSWER));
    kin_str before = first(answer, at);
    if (!s->open.is_rendered || !s->answer.is_rendered || at == answer.len) before = (kin_str){"", 0};
    s->header = whole_tags(first(open, common_prefix(open, before)));
    s->turn_end = at == answer.len ? (kin_str){"", 0} : trim(rest(answer, at + strlen(KIN_TRIAL_ANSWER)));
    s->turn_end = common_end(s->turn_end, trim(kin_text_str(&s->one.text)));
}

// Returns what the model writes for a message with calls: without the header, reasoning without content, and the end of the turn.
static kin_str reply_of(const study *s, const rendering *from) {
    kin_str text = kin_text_str(&from->text), end = str(s->think.think_end);
    size_t n = common_prefix(text, s->header);
    text = rest(text, n == s->header.len ? n : whole_tags(first(text, n)).len);
    size_t at = end.len > 0 ? find(text, end) : text.len;
    if (at < text.len && at < find(text, str(KIN_TRIAL_TOOL))) text = rest(text, at + end.len);
    text = trim(text);
    if (s->turn_end.len > 0 && ends_with(text, s->turn_end)) text.len -= s->turn_end.len;
    return trim(text);
}

// ---- confirmation

typedef struct heard {
    kin_text_buffer arguments; // of all calls, each after its name
    kin_text_buffer call;
    kin_text_buffer text;
    int n_ended;
} heard;

static bool put_canonical(kin_text_buffer *to, kin_str name, kin_str arguments) {
    kin_json json;
    if (kin_json_parse(&json, arguments.at, arguments.len, NULL) != 0) return false;
    kin_text_put(to, name.at, name.len);
    kin_json_write(&json, json.values, to);
    kin_json_fini(&json);
    return true;
}

static bool add_events(heard *h, const kin_reply_event *events, int n) {
    for (int i = 0; i < n; i++) {
        const kin_reply_event *e = &events[i];
        if (e->kind == KIN_REPLY_REASONING) return false;
        if (e->kind == KIN_REPLY_TEXT) kin_text_put(&h->text, e->text.at, e->text.len);
        if (e->kind == KIN_REPLY_TOOL_BEGIN) h->call.len = 0;
        if (e->kind == KIN_REPLY_TOOL_BEGIN) kin_text_put(&h->arguments, e->name.at, e->name.len);
        if (e->kind == KIN_REPLY_TOOL_ARGUMENTS) kin_text_put(&h->call, e->text.at, e->text.len);
        if (e->kind != KIN_REPLY_TOOL_END) continue;
        h->n_ended++;
        if (!put_canonical(&h->arguments, (kin_str){"", 0}, kin_text_str(&h->call))) return false;
    }
    return true;
}

// True for no text, or a token that ends the turn.
static bool is_end(kin_str text) {
    text = trim(text);
    bool is_token = text.len > 2 && text.len < KIN_CHAT_MAX_MARK && text.at[0] == '<' && text.at[text.len - 1] == '>';
    return text.len == 0 || (is_token && find_last(text, '<') == 0);
}

// Parses the reply. *same: it has these calls and nothing else.
static int parse(const kin_chat_format *format, kin_str reply, const kin_trial_call *expected, int n_expected, bool *same) {
    const kin_reply_options options = {.format = format, .tools = kin_trial_tools, .n_tools = 2, .reasoning = true};
    const kin_reply_event *events;
    kin_reply_parser *p;
    kin_text_buffer wanted = {0};
    heard h = {.n_ended = 0};
    int n;
    *same = false;
    if (kin_reply_parser_new(&p, &options, NULL) != 0) return KIN_FAIL;
    int rc = kin_reply_parser_push(p, reply.at, reply.len, &events, &n);
    bool ok = rc == 0 && add_events(&h, events, n);
    if (rc == 0) rc = kin_reply_parser_flush(p, false, &events, &n);
    ok = ok && rc == 0 && add_events(&h, events, n);
    kin_reply_parser_free(p);
    for (int i = 0; i < n_expected; i++)
        put_canonical(&wanted, kin_trial_tools[expected[i].tool].name, str(expected[i].arguments));
    *same = ok && h.n_ended == n_expected && is_end(kin_text_str(&h.text)) && h.arguments.len == wanted.len && wanted.len > 0 &&
            memcmp(h.arguments.at, wanted.at, wanted.len) == 0;
    if (h.arguments.failed || h.call.failed || h.text.failed || wanted.failed) rc = KIN_FAIL;
    kin_text_fini(&h.arguments);
    kin_text_fini(&h.call);
    kin_text_fini(&h.text);
    kin_text_fini(&wanted);
    return rc;
}

// *allows: the grammar of the format allows the reply, or its beginning: a token that ends the turn may follow.
static int ask_grammar(const kin_chat_format *format, kin_str reply, bool parallel, bool *allows) {
    const kin_reply_rules rules = {
        .format = format, .tools = kin_trial_tools, .n_tools = 2, .required = true, .parallel = parallel};
    kin_grammar *grammar;
    kin_matcher *matcher;
    kin_place place = {0};
    kin_err why;
    *allows = false;
    size_t end = find_last(reply, '<');
    if (kin_reply_grammar_new(&grammar, &rules, NULL, &why) != 0) return 0; // no such grammar
    int rc = kin_matcher_new(&matcher, grammar, NULL, NULL);
    for (int i = 0; i < 2 && rc == 0 && !*allows; i++) { // with what may end the turn, and without it
        kin_str text = trim(i == 0 || end == reply.len ? reply : first(reply, end));
        rc = kin_matcher_begin(matcher, &place);
        if (rc == 0) rc = kin_matcher_accept_bytes(matcher, &place, text.at, text.len, allows);
        *allows = *allows && kin_place_may_end(&place);
    }
    kin_place_fini(&place);
    if (rc == 0) kin_matcher_free(matcher);
    kin_grammar_free(grammar);
    return rc;
}

// True unless the format pads values with line ends and the template does so on one side only: parsing does not tell.
static bool pads_alike(const kin_chat_format *format, kin_str reply) {
    return !format->pads_values || has(reply, "\n" VALUE "\n");
}

// Determines whether the format reads and writes what the template renders.
static int confirm(const study *s, const kin_chat_format *format, bool *ok) {
    const kin_str one = reply_of(s, &s->one), two = reply_of(s, &s->two), nested = reply_of(s, &s->nested);
    bool has_two = s->two.is_rendered;
    int rc = parse(format, one, calls, 1, ok);
    *ok = *ok && pads_alike(format, one);
    if (rc == 0 && *ok && has_two) rc = parse(format, two, calls, 2, ok);
    if (rc == 0 && *ok) rc = parse(format, nested, &nested_call, 1, ok);
    if (rc == 0 && *ok) rc = ask_grammar(format, one, false, ok);
    if (rc == 0 && *ok && has_two && format->syntax != KIN_CALL_CHANNELS) rc = ask_grammar(format, two, true, ok);
    return rc;
}

// ---- derivation

// A call in a rendering: what stands before its name, between its parts, and after it.
typedef struct parts {
    kin_str before, name_to_key, key_to_value, value_to_key, key_to_number, after;
} parts;

static bool cut_before(kin_str *text, const char *word, kin_str *before) {
    size_t at = find(*text, str(word));
    if (at == text->len) return false;
    *before = first(*text, at);
    *text = rest(*text, at + strlen(word));
    return true;
}

static bool cut_call(kin_str text, const char *tool, const char *value, const char *number, parts *out) {
    return cut_before(&text, tool, &out->before) && cut_before(&text, KEY, &out->name_to_key) &&
           cut_before(&text, value, &out->key_to_value) && cut_before(&text, NUM, &out->value_to_key) &&
           cut_before(&text, number, &out->key_to_number) && (out->after = text, true);
}

// Splits marks before a name into the first tag and the rest.
static bool set_begin(kin_chat_format *f, kin_str marks, bool is_in_calls) {
    marks = trim(marks);
    char close = marks.len > 0 && marks.at[0] == '[' ? ']' : '>';
    const char *end = marks.len > 0 ? memchr(marks.at, close, marks.len) : NULL;
    bool is_tag = end && (marks.at[0] == '<' || marks.at[0] == '[');
    size_t n = is_tag ? (size_t)(end - marks.at) + 1 : marks.len;
    if (!is_tag && is_in_calls) return SET(f->name_begin, marks);
    return SET(f->call_begin, first(marks, n)) && SET(f->name_begin, rest(marks, n));
}

// Splits marks after the arguments likewise: the last tag ends the call if a tag began it.
static bool set_end(kin_chat_format *f, kin_str marks) {
    marks = trim(marks);
    size_t last = find_last(marks, '<');
    bool is_split = last < marks.len && f->call_begin[0] && marks.len > 0;
    size_t n = is_split ? last : marks.len;
    return SET(f->arguments_end, first(marks, n)) && SET(f->call_end, rest(marks, n));
}

// Members before the name: one, which has a number as an id.
static bool derive_first_id(kin_chat_format *f, kin_str members) {
    const char *begin = memchr(members.at, '"', members.len);
    if (!begin) return true;
    members = rest(members, (size_t)(begin - members.at) + 1);
    const char *end = memchr(members.at, '"', members.len);
    f->id_first = true;
    return end && SET(f->id_key, first(members, (size_t)(end - members.at)));
}

// {"name": NAME, "arguments": {...}}: takes the object off both ends.
static bool derive_object(kin_chat_format *f, parts *p) {
    kin_str keys = p->name_to_key, before = p->before;
    size_t brace = find_last(before, '{');
    if (brace == before.len) return false;
    kin_str members = trim(rest(before, brace + 1));
    f->syntax = KIN_CALL_OBJECT;
    p->before = first(before, brace);
    if (members.len > 1) { // the last key before the name is the name's
        kin_str key = first(members, members.len - 1);
        size_t colon = find_last(key, ':');
        key = trim(first(key, colon == key.len ? 0 : colon));
        if (key.len < 3 || key.at[key.len - 1] != '"') return false;
        key.len--;
        size_t quote = find_last(key, '"');
        if (quote == key.len || !SET(f->name_key, rest(key, quote + 1))) return false;
        if (!derive_first_id(f, first(key, quote))) return false;
        size_t from = 0;
        while (from < keys.len && (kin_is_space(keys.at[from]) || memchr("\",", keys.at[from], 2))) from++;
        keys = rest(keys, from);
        const char *end = memchr(keys.at, '"', keys.len);
        if (!end || !SET(f->arguments_key, first(keys, (size_t)(end - keys.at)))) return false;
    }
    // Closing braces, and an id before the last one.
    size_t close = find(p->after, str("}"));
    if (close < p->after.len) close += 1 + find(rest(p->after, close + 1), str("}"));
    if (close >= p->after.len) return false;
    kin_str tail = first(p->after, close);
    size_t id = find(tail, str("\"" ID "\""));
    if (id < tail.len) {
        kin_str key = trim(first(tail, id));
        if (key.len > 0 && key.at[key.len - 1] == ':') key = trim(first(key, key.len - 1));
        if (key.len > 0) key.len--;
        size_t quote = find_last(key, '"');
        if (quote < key.len && !SET(f->id_key, rest(key, quote + 1))) return false;
    }
    p->after = rest(p->after, close + 1);
    return true;
}

// NAME and JSON; the id may stand between them, or be the name.
static bool derive_json(kin_chat_format *f, parts *p) {
    static const char functions[] = "functions.";
    size_t brace = find_last(p->name_to_key, '{'), close = find(p->after, str("}"));
    if (brace == p->name_to_key.len || close == p->after.len) return false;
    kin_str between = first(p->name_to_key, brace);
    f->syntax = KIN_CALL_JSON;
    if (between.len > 2 && between.at[0] == ':' && ends_with(p->before, str(functions))) {
        f->id_names = true;
        between = rest(between, 2);
        p->before.len -= strlen(functions);
    }
    size_t id = find(between, str(ID));
    if (id < between.len) {
        if (!SET(f->id_begin, first(between, id))) return false;
        between = rest(between, id + strlen(ID));
    }
    p->after = rest(p->after, close + 1);
    return SET(f->name_end, between);
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// What follows a key differs between strings and numbers if the model names the types.
static bool derive_type(kin_chat_format *f, const parts *p) {
    kin_str a = p->key_to_value, b = p->key_to_number;
    size_t n = common_prefix(a, b), n_end = common_suffix(a, b);
    if (a.len == b.len && n == a.len) return SET(f->key_end, a);
    while (n > 0 && is_word(a.at[n - 1])) n--;
    while (n_end > 0 && is_word(a.at[a.len - n_end])) n_end--;
    if (n == 0 || n + n_end >= a.len || n_end == 0) return false;
    kin_str other = first(rest(b, n), b.len - n - n_end);
    if (find(other, str("number")) > 0 && !SET(f->other_type, other)) return false; // otherwise the names of JSON's types
    return SET(f->key_end, first(a, n)) && SET(f->type_end, rest(a, a.len - n_end)) &&
           SET(f->string_type, first(rest(a, n), a.len - n - n_end));
}

static bool derive_parameters(kin_chat_format *f, parts *p) {
    size_t tag = find_last(p->name_to_key, '<');
    if (tag == p->name_to_key.len) return false;
    kin_str key_begin = rest(p->name_to_key, tag), value_end = p->value_to_key;
    if (!ends_with(value_end, key_begin)) return false;
    value_end.len -= key_begin.len;
    f->syntax = KIN_CALL_PARAMETERS;
    f->pads_values = value_end.len > 0 && value_end.at[0] == '\n';
    value_end = trim(value_end);
    size_t at = find(p->after, value_end);
    if (value_end.len == 0 || at == p->after.len) return false;
    p->after = rest(p->after, at + value_end.len);
    return SET(f->name_end, first(p->name_to_key, tag)) && SET(f->key_begin, key_begin) && SET(f->value_end, value_end) &&
           derive_type(f, p);
}

// NAME(KEY=VALUE) and NAME{KEY:VALUE}.
static bool derive_loose(kin_chat_format *f, parts *p) {
    bool is_python = p->name_to_key.at[0] == '(';
    kin_str quote = rest(p->key_to_value, 1);
    size_t close = find(p->after, str(is_python ? ")" : "}"));
    if (close == p->after.len) return false;
    f->syntax = is_python ? KIN_CALL_PYTHON : KIN_CALL_QUOTED;
    p->after = rest(p->after, close + 1);
    return is_python || SET(f->quote, quote);
}

static bool derive_syntax(kin_chat_format *f, parts *p) {
    kin_str to_key = trim(p->name_to_key), before = trim(p->before);
    if (to_key.len == 0) return false;
    bool is_quoted = before.len > 0 && before.at[before.len - 1] == '"' && to_key.at[0] == '"' && has(to_key, "{");
    if (is_quoted) return derive_object(f, p);
    if (to_key.len == 1 && (to_key.at[0] == '(' || to_key.at[0] == '{')) return derive_loose(f, p);
    if (to_key.at[to_key.len - 1] == '"' && has(to_key, "{")) return derive_json(f, p);
    return derive_parameters(f, p);
}

// Derives the marks around calls from one call, and from two if the template renders them.
static bool derive_marks(const study *s, kin_chat_format *f, const parts *one, const parts *two) {
    kin_str before = trim(one->before), after = trim(one->after), call_begin = before, call_end = after;
    kin_str calls_begin = {"", 0}, calls_end = {"", 0};
    if (s->two.is_rendered) {
        kin_str between = two->before;
        call_end = whole_tags(first(between, common_prefix(between, one->after)));
        kin_str more = trim(rest(between, call_end.len));
        f->is_list = more.len > 0 && more.at[0] == ',';
        if (f->is_list) more = trim(rest(more, 1));
        size_t n = common_suffix(more, before);
        call_begin = n == more.len ? more : (kin_str){"", 0};
        calls_begin = trim(first(before, before.len - call_begin.len));
        calls_end = trim(rest(one->after, call_end.len));
    }
    if (ends_with(calls_begin, str("[")) && calls_end.len > 0 && calls_end.at[0] == ']') {
        f->is_list = true;
        calls_begin.len--;
        calls_end = rest(calls_end, 1);
    }
    bool is_cut = is_end(calls_end) && s->turn_end.len == 0;
    f->is_bare = trim(before).len == 0 || (calls_begin.len == 0 && call_begin.len == 0);
    return SET(f->calls_begin, calls_begin) && (is_cut || SET(f->calls_end, calls_end)) &&
           set_begin(f, call_begin, calls_begin.len > 0) && set_end(f, call_end);
}

static bool derive(const study *s, kin_chat_format *f) {
    parts one, two = {.before = {"", 0}};
    kin_chat_format other = *f;
    if (!cut_call(reply_of(s, &s->one), KIN_TRIAL_TOOL, VALUE, NUMBER, &one) || !derive_syntax(f, &one)) return false;
    if (s->two.is_rendered) {
        kin_str both = reply_of(s, &s->two);
        parts before;
        if (!cut_call(both, KIN_TRIAL_TOOL, VALUE, NUMBER, &before) || !derive_syntax(&other, &before)) return false;
        if (!cut_call(before.after, KIN_TRIAL_OTHER_TOOL, "kin other", "90210", &two) || !derive_syntax(&other, &two))
            return false;
    }
    return derive_marks(s, f, &one, &two);
}

// ---- the search

// Determines whether strings as in Python have escapes: LFM2.5's template writes none.
static int find_escapes(const study *s, kin_chat_format *format) {
    bool has_escapes;
    if (format->syntax != KIN_CALL_PYTHON || !s->slash.is_rendered) return 0;
    int rc = parse(format, reply_of(s, &s->slash), &slash_call, 1, &has_escapes);
    format->is_raw = rc == 0 && !has_escapes;
    return rc;
}

static bool is_tag(kin_str text) {
    return text.len > 2 && text.at[0] == '<' && find_last(text, '<') == 0 && find(text, str(">")) == text.len - 1;
}

// Finds the tags around the text of an answer: <|START_TEXT|> and the like. Those of a known format stay if there are none.
static bool find_text_marks(const study *s, kin_chat_format *f) {
    kin_str answer = kin_text_str(&s->answer.text), thought = str(f->think_end);
    size_t at = find(answer, str(KIN_TRIAL_ANSWER)), n = common_prefix(answer, s->header);
    if (f->syntax == KIN_CALL_CHANNELS || at == answer.len || n < s->header.len || n > at) return true;
    kin_str before = first(rest(answer, n), at - n), after = trim(rest(answer, at + strlen(KIN_TRIAL_ANSWER)));
    size_t end = thought.len > 0 ? find(before, thought) : before.len;
    before = trim(end < before.len ? rest(before, end + thought.len) : before);
    size_t close = find(after, str(">"));
    if (!is_tag(before) || close + 1 >= after.len || !is_tag(first(after, close + 1))) return true;
    return SET(f->text_begin, before) && SET(f->text_end, first(after, close + 1));
}

static int accept(study *s, kin_chat_format *candidate, bool is_known) {
    bool ok, is_begun = candidate->call_begin[0] && ends_with(trim(kin_text_str(&s->open.text)), str(candidate->call_begin));
    if (candidate->is_begun != is_begun) return 0;
    if (confirm(s, candidate, &ok) != 0) return KIN_FAIL;
    if (!ok) return 0;
    if (find_escapes(s, candidate) != 0) return KIN_FAIL;
    if (!find_text_marks(s, candidate)) return 0;
    s->out->is_certain = true;
    s->out->is_known = is_known;
    s->out->format = *candidate;
    s->out->one_call = !s->two.is_rendered;
    return 0;
}

static int search(study *s) {
    if (render_first(s, N_TRIALS) != 0) return KIN_FAIL;
    if (!s->one.is_rendered || !s->nested.is_rendered || !has(kin_text_str(&s->one.text), VALUE)) return 0;
    if (!has(kin_text_str(&s->two.text), KIN_TRIAL_OTHER_TOOL))
        s->two.is_rendered = false; // gpt-oss's writes the first call only
    find_frame(s);
    for (int i = KIN_CHAT_PLAIN + 1; i < KIN_CHAT_N_KNOWN && !s->out->is_certain; i++) {
        kin_chat_format candidate = *kin_chat_format_known((kin_chat_known)i);
        memcpy(candidate.think_begin, s->think.think_begin, sizeof candidate.think_begin);
        memcpy(candidate.think_end, s->think.think_end, sizeof candidate.think_end);
        if (accept(s, &candidate, true) != 0) return KIN_FAIL;
    }
    kin_chat_format candidate = s->think;
    return s->out->is_certain || !derive(s, &candidate) ? 0 : accept(s, &candidate, false);
}

// Ways to write a conversation: ids, arguments and content, in this order.
enum { N_WAYS = 8 };

static study study_of(const kin_jinja *jinja, const kin_chat_format *think, int way, kin_chat_derived *out) {
    out->arguments_are_text = way & 2;
    out->content_is_null = way & 1;
    return (study){.jinja = jinja, .id = way < 4 ? ID : NULL, .think = *think, .out = out};
}

int kin_chat_derive(const kin_jinja *jinja, const kin_chat_format *think, kin_chat_derived *out) {
    int rc = 0;
    *out = (kin_chat_derived){.is_certain = false};
    for (int i = 0; i < N_WAYS && rc == 0 && !out->is_certain; i++) {
        study s = study_of(jinja, think, i, out);
        rc = search(&s);
        fini(&s);
    }
    return rc;
}

int kin_chat_reads_calls(const kin_jinja *jinja, const kin_chat_format *format, bool *reads) {
    kin_chat_derived unused;
    bool renders = false;
    int rc = 0;
    *reads = false;
    for (int i = 0; i < N_WAYS && rc == 0 && !*reads; i++) {
        study s = study_of(jinja, format, i, &unused);
        rc = render_first(&s, N_SIMPLE);
        kin_str one = kin_text_str(&s.one.text);
        if (rc == 0 && s.one.is_rendered && has(one, KIN_TRIAL_TOOL) && has(one, VALUE)) {
            renders = true;
            find_frame(&s);
            rc = parse(format, reply_of(&s, &s.one), calls, 1, reads);
        }
        fini(&s);
    }
    *reads |= !renders;
    return rc;
}
