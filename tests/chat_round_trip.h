// Conversations with calls: renders them with a template of tests/chat_templates.h, parses what the model would have written, and
// compares. Include after cmocka.h.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/chat/tool_format.h"
#include "pure/chat/trial.h"
#include "pure/text/json.h"
#include "tests/chat_templates.h"
#include "tests/place.h"

static kin_str str(const char *text) {
    return (kin_str){text, strlen(text)};
}

static kin_tool_format format_of(const char *source, kin_jinja **jinja) {
    kin_tool_format format;
    kin_err err = {""};
    kin_jinja_new(jinja, source, strlen(source), &err);
    assert_string_equal(err.text, "");
    assert_int_equal(kin_tool_format_of(&format, *jinja, source, strlen(source), &err), 0);
    return format;
}
#define format_of(...) FROM_TEST(format_of(__VA_ARGS__))

static const char *const sets[] = {
    // arguments
    "{\"kin_key\": \"Rom\", \"kin_num\": 3}",
    "{}",
    "{\"kin_list\": [1, {\"a\": [], \"b\": \"c\"}, [2.5, true]], \"kin_yes\": false}",
    "{\"kin_list\": [null, {}], \"kin_num\": null}",
    "{\"kin_key\": \"\xc3\xa9\xe2\x82\xac \xf0\x9f\x98\x80\"}",
    "{\"kin_key\": \"say \\\"hi\\\", it's {so} \\\\ (or [not])\"}",
    "{\"kin_key\": \"two\\nlines\\n\\tand\\n\", \"kin_num\": -1}",
    "{\"kin_key\": \"x\", \"kin_list\": [[[{\"a\": {\"b\": {}, \"c d\": [\"\xc3\xa9\", -0.125, 1e-07, 123456789012]}}]], []]}",
    "{\"kin_list\": [\"\\\"\", \"\\\\\", \"'\", \"\\n\\t\", \"]}\", {\"a\": \"}, {\"}]}",
    "{\"kin_key\": \"5\"}",
    "{\"kin_key\": \"true\", \"kin_yes\": true}",
    "{\"kin_key\": \"{\\\"a\\\": [1]}\"}",
    "{\"kin_key\": \"\", \"kin_num\": 0}",
    "{\"kin_key\": \"  two spaces  \"}",
    "{\"kin_key\": \"\\n\\n\"}",
    "{\"kin_key\": \"a </parameter> <tool_call> </arg_value> [ARGS] <|tool_call_end|> </function> b\"}",
};
enum { N_SETS = sizeof sets / sizeof *sets };

// What the model writes in the message with these calls.
static char *rendered_after(const model *m, const kin_jinja *jinja, const kin_tool_format *format, const char *reasoning,
                            const kin_trial_call *calls, int n_calls) {
    const kin_trial trial = {.has_tools = true,
                             .reasoning = reasoning,
                             .calls = calls,
                             .n_calls = n_calls,
                             .id = m->known == KIN_CHAT_KIMI ? NULL : "abcdef123",
                             .arguments_as_text = format->arguments_are_text,
                             .content_is_null = format->content_is_null};
    kin_text_buffer text = {0};
    bool is_rendered;
    assert_int_equal(kin_trial_render(jinja, &trial, &text, &is_rendered), 0);
    assert_true(is_rendered);
    kin_text_put(&text, "", 1);
    const char *begin = strstr(strstr(text.at, KIN_TRIAL_QUESTION), m->header);
    assert_non_null(begin);
    char *reply = strdup(begin + strlen(m->header));
    kin_text_fini(&text);
    size_t n = strlen(m->end), len = strlen(reply);
    assert_true(len >= n && strcmp(reply + len - n, m->end) == 0);
    reply[len - n] = 0;
    return reply;
}
#define rendered_after(...) FROM_TEST(rendered_after(__VA_ARGS__))
#define rendered(m, jinja, format, calls, n) rendered_after(m, jinja, format, NULL, calls, n)

typedef struct parsed {
    kin_text_buffer text, thought, arguments[2];
    char names[2][64];
    int n_calls, n_ended;
} parsed;

static void add(parsed *p, const kin_reply_event *events, int n) {
    for (int i = 0; i < n; i++) {
        const kin_reply_event *e = &events[i];
        if (e->kind == KIN_REPLY_TEXT) kin_text_put(&p->text, e->text.at, e->text.len);
        if (e->kind == KIN_REPLY_REASONING) kin_text_put(&p->thought, e->text.at, e->text.len);
        if (e->kind == KIN_REPLY_TOOL_BEGIN) {
            assert_true(p->n_calls < 2 && e->name.len < 64);
            memcpy(p->names[p->n_calls++], e->name.at, e->name.len);
        }
        if (e->kind == KIN_REPLY_TOOL_ARGUMENTS) kin_text_put(&p->arguments[p->n_calls - 1], e->text.at, e->text.len);
        p->n_ended += e->kind == KIN_REPLY_TOOL_END;
    }
}

// Parses in two pieces, the second byte by byte.
static parsed parse(const kin_chat_format *format, const char *reply, size_t cut, bool is_cut_off) {
    const kin_reply_options options = {.format = format, .tools = kin_trial_tools, .n_tools = 2, .reasoning = true};
    kin_reply_parser *p;
    const kin_reply_event *events;
    parsed out = {.n_calls = 0};
    int n;
    assert_int_equal(kin_reply_parser_new(&p, &options, NULL), 0);
    assert_int_equal(kin_reply_parser_push(p, reply, cut, &events, &n), 0);
    add(&out, events, n);
    for (; reply[cut]; cut++) {
        assert_int_equal(kin_reply_parser_push(p, reply + cut, 1, &events, &n), 0);
        add(&out, events, n);
    }
    assert_int_equal(kin_reply_parser_flush(p, is_cut_off, &events, &n), 0);
    add(&out, events, n);
    kin_reply_parser_free(p);
    return out;
}
#define parse(...) FROM_TEST(parse(__VA_ARGS__))

static void fini(parsed *p) {
    kin_text_fini(&p->text);
    kin_text_fini(&p->thought);
    kin_text_fini(&p->arguments[0]);
    kin_text_fini(&p->arguments[1]);
}

static char *canonical(kin_str json) {
    kin_json value;
    kin_text_buffer text = {0};
    kin_err err = {""};
    if (kin_json_parse(&value, json.at, json.len, &err) != 0) fail_msg("'%.*s': %s", (int)json.len, json.at, err.text);
    kin_json_write(&value, value.values, &text);
    kin_text_put(&text, "", 1);
    kin_json_fini(&value);
    return text.at;
}

static void expect_calls(const model *m, const parsed *p, const char *reply, const char *before, const kin_trial_call *calls,
                         int n_calls) {
    if (p->n_calls != n_calls || p->n_ended != n_calls || p->text.len != strlen(before))
        fail_msg("%s: %d calls, %d ended, text '%.*s': %s", m->name, p->n_calls, p->n_ended, (int)p->text.len, p->text.at, reply);
    for (int i = 0; i < n_calls; i++) {
        char *got = canonical(kin_text_str(&p->arguments[i])), *wanted = canonical(str(calls[i].arguments));
        if (strcmp(got, wanted) != 0) fail_msg("%s: %s instead of %s: %s", m->name, got, wanted, reply);
        assert_string_equal(p->names[i], kin_trial_tools[calls[i].tool].name.at);
        free(got);
        free(wanted);
    }
}
#define expect_calls(...) FROM_TEST(expect_calls(__VA_ARGS__))

// Renders the parsed calls again.
static void expect_identity(const model *m, const kin_jinja *jinja, const kin_tool_format *format, parsed *p, const char *reply,
                            const kin_trial_call *calls, int n_calls) {
    kin_trial_call again[2];
    for (int i = 0; i < n_calls; i++) {
        kin_text_put(&p->arguments[i], "", 1);
        again[i] = (kin_trial_call){calls[i].tool, p->arguments[i].at};
    }
    char *second = rendered(m, jinja, format, again, n_calls);
    assert_string_equal(second, reply);
    free(second);
}
#define expect_identity(...) FROM_TEST(expect_identity(__VA_ARGS__))
