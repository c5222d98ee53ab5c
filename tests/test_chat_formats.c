// Formats of calls: a template renders calls, the format is found from it, and parsing what it rendered gives the calls again,
// however the bytes are cut; rendered once more they are the same bytes, so a history of them is found in the prefix cache.
//
// The templates here are short ones in the form of the models'.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/chat/derive.h"
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

static void every_models_format_is_found_from_its_template(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        kin_jinja *jinja;
        kin_tool_format format = format_of(models[i].source, &jinja);
        kin_chat_format expected = *kin_chat_format_known(models[i].known);
        memcpy(expected.think_begin, format.chat.think_begin, sizeof expected.think_begin);
        memcpy(expected.think_end, format.chat.think_end, sizeof expected.think_end);
        kin_jinja_free(jinja);
        expected.is_raw = format.chat.is_raw;
        bool is_expected = models[i].known == KIN_CHAT_PLAIN || memcmp(&expected, &format.chat, sizeof expected) == 0;
        if (format.is_confirmed && is_expected) continue;
        fail_msg("%s: confirmed %d, syntax %d, calls '%s' call '%s' name '%s'", models[i].name, format.is_confirmed,
                 format.chat.syntax, format.chat.calls_begin, format.chat.call_begin, format.chat.name_begin);
    }
}

// Formats of no known model.
static void an_unknown_format_is_derived(void **state) {
    (void)state;
    static const struct {
        const char *source;
        kin_chat_format expected;
    } all[] = {
        {CHAT("<calls>" EACH("<call tool=\"" NAME
                             "\">" PARAMETERS("<arg n='{{ k }}'>" TEXT_OR_JSON "</arg>") "</call>") "</calls>"),
         {.syntax = KIN_CALL_PARAMETERS,
          .calls_begin = "<calls>",
          .calls_end = "</calls>",
          .name_begin = "<call tool=\"",
          .name_end = "\">",
          .arguments_end = "</call>",
          .key_begin = "<arg n='",
          .key_end = "'>",
          .value_end = "</arg>"}},
        {CHAT(EACH("<|use|>" NAME "<|with|>" ARGUMENTS "<|/use|>\n")),
         {.syntax = KIN_CALL_JSON, .call_begin = "<|use|>", .name_end = "<|with|>", .call_end = "<|/use|>"}},
        {CHAT("<use>" LIST("{\"no\": \"{{ loop.index }}\", \"tool\": \"" NAME "\", \"input\": " ARGUMENTS "}") "</use>"),
         {.syntax = KIN_CALL_OBJECT,
          .is_list = true,
          .id_first = true,
          .calls_begin = "<use>",
          .calls_end = "</use>",
          .name_key = "tool",
          .arguments_key = "input",
          .id_key = "no"}},
        {CHAT("<use>" LIST("{\"" NAME "\": " ARGUMENTS "}") "</use>"),
         {.syntax = KIN_CALL_OBJECT, .is_list = true, .calls_begin = "<use>", .calls_end = "</use>"}},
        {PY CHAT("<py>" LIST(PYTHON_CALL) "</py>"),
         {.syntax = KIN_CALL_PYTHON, .is_list = true, .calls_begin = "<py>", .calls_end = "</py>"}},
        {CHAT("<py>" LIST(NAME "(" PARAMETERS(
             "{{ k }}={{ \"'\" ~ v ~ \"'\" if v is string else v | tojson }}{% if not loop.last %}, {% endif %}") ")") "</py>"),
         {.syntax = KIN_CALL_PYTHON, .is_list = true, .is_raw = true, .calls_begin = "<py>", .calls_end = "</py>"}},
        {CHAT(EACH("<use>" NAME "{{ '{' }}" PARAMETERS(
             "{{ k }}:{% if v is string %}\xc2\xab{{ v }}\xc2\xab{% else %}{{ v | tojson }}{% endif %}"
             "{% if not loop.last %},{% endif %}") "}</use>")),
         {.syntax = KIN_CALL_QUOTED, .call_begin = "<use>", .call_end = "</use>", .quote = "\xc2\xab"}},
        {CHAT("<calls>\n" EACH("<call>\n<tool>" NAME
                               "</tool>\n" PARAMETERS("<k>{{ k }}</k><t>{{ 's' if v is string else 'o' "
                                                      "}}</t><v>" TEXT_OR_JSON "</v>\n") "</call>\n") "</calls>"),
         {.syntax = KIN_CALL_PARAMETERS,
          .calls_begin = "<calls>",
          .calls_end = "</calls>",
          .call_begin = "<call>",
          .call_end = "</call>",
          .name_begin = "<tool>",
          .name_end = "</tool>",
          .key_begin = "<k>",
          .key_end = "</k><t>",
          .string_type = "s",
          .other_type = "o",
          .type_end = "</t><v>",
          .value_end = "</v>"}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        kin_jinja *jinja;
        kin_tool_format format = format_of(all[i].source, &jinja);
        kin_jinja_free(jinja);
        if (format.is_confirmed && memcmp(&format.chat, &all[i].expected, sizeof format.chat) == 0) continue;
        fail_msg("%zu: confirmed %d, generic %d, syntax %d, calls '%s' call '%s' name '%s' '%s' keys '%s' '%s' '%s'", i,
                 format.is_confirmed, format.is_generic, format.chat.syntax, format.chat.calls_begin, format.chat.call_begin,
                 format.chat.name_begin, format.chat.name_end, format.chat.key_begin, format.chat.key_end, format.chat.type_end);
    }
}

static void what_cannot_be_confirmed_is_not_derived(void **state) {
    (void)state;
    static const char *const sources[] = {
        CHAT(EACH("I call " NAME ".")), // without arguments
        CHAT(EACH("<c>" NAME " with {{ c.function.arguments | length }} arguments</c>")),
        CHAT("{{ raise_exception('no calls') }}"),
        TOOLS "{% for m in messages %}{{ m.content }}{% endfor %}",
        TOOLS "{% for i in range(100000) %}{% for k in range(1000) %}{{ i }}{% endfor %}{% endfor %}", // takes too long
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        kin_jinja *jinja;
        kin_tool_format format = format_of(sources[i], &jinja);
        kin_jinja_free(jinja);
        assert_false(format.is_confirmed);
        assert_true(format.is_generic);
        assert_int_equal(format.chat.syntax, KIN_CALL_OBJECT);
    }
}

// ---- conversations

static const struct {
    int needs;
    const char *arguments;
} sets[] = {
    {0, "{\"kin_key\": \"Rom\", \"kin_num\": 3}"},
    {WITH_EMPTY, "{}"},
    {0, "{\"kin_list\": [1, {\"a\": [], \"b\": \"c\"}, [2.5, true]], \"kin_yes\": false}"},
    {WITH_NULL, "{\"kin_list\": [null, {}], \"kin_num\": null}"},
    {0, "{\"kin_key\": \"\xc3\xa9\xe2\x82\xac \xf0\x9f\x98\x80\"}"},
    {WITH_QUOTES, "{\"kin_key\": \"say \\\"hi\\\", it's {so} \\\\ (or [not])\"}"},
    {WITH_QUOTES, "{\"kin_key\": \"two\\nlines\\n\\tand\\n\", \"kin_num\": -1}"},
    {WITH_MARKS, "{\"kin_key\": \"a </parameter> <tool_call> </arg_value> [ARGS] <|tool_call_end|> </function> b\"}"},
};
enum { N_SETS = sizeof sets / sizeof *sets };

// What the model writes in the message with these calls.
static char *rendered(const model *m, const kin_jinja *jinja, const kin_tool_format *format, const kin_trial_call *calls,
                      int n_calls) {
    const kin_trial trial = {.has_tools = true,
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
#define rendered(...) FROM_TEST(rendered(__VA_ARGS__))

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

static bool says(const model *m, int i) {
    return (sets[i].needs & ~m->says) == 0;
}

// The fractions of JSON are left out of what is rendered here: trial conversations have whole numbers only.
static bool has_fraction(const char *arguments) {
    return strstr(arguments, "2.5") != NULL;
}

static void rendered_calls_are_parsed_into_the_same_calls(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        kin_jinja *jinja;
        kin_tool_format format = format_of(models[i].source, &jinja);
        for (int k = 0; k < N_SETS * N_SETS; k++) {
            const kin_trial_call calls[] = {{0, sets[k / N_SETS].arguments}, {1, sets[k % N_SETS].arguments}};
            int n_calls = k % (N_SETS + 1) == 0 ? 1 : 2; // once alone, then with each other
            if (!says(&models[i], k / N_SETS) || !says(&models[i], k % N_SETS) || (n_calls == 2 && format.one_call)) continue;
            if (has_fraction(calls[0].arguments) || has_fraction(calls[1].arguments)) continue;
            char *reply = rendered(&models[i], jinja, &format, calls, n_calls);
            size_t step = n_calls == 1 ? 1 : 7;
            for (size_t cut = 0; cut <= strlen(reply); cut += step) {
                parsed p = parse(&format.chat, reply, cut, false);
                expect_calls(&models[i], &p, reply, "", calls, n_calls);
                if (cut == 0) expect_identity(&models[i], jinja, &format, &p, reply, calls, n_calls);
                fini(&p);
            }
            free(reply);
        }
        kin_jinja_free(jinja);
    }
}

// What the format writes before an answer, and between an answer and a call.
static const char *before_text(const kin_chat_format *format) {
    return format->is_begun                      ? format->text_begin + strlen(format->call_begin)
           : format->syntax == KIN_CALL_CHANNELS ? "<|channel|>final<|message|>"
                                                 : format->text_begin;
}

static const char *after_text(const kin_chat_format *format) {
    bool has_channels = format->syntax == KIN_CALL_CHANNELS;
    return format->is_begun ? format->call_begin : has_channels ? "<|end|><|start|>assistant" : format->text_end;
}

static void expect_text(const model *m, const kin_chat_format *format, const char *reply, size_t n_thought, const char *text) {
    for (size_t cut = 0; cut <= strlen(reply); cut++) {
        parsed p = parse(format, reply, cut, false);
        if (p.n_calls > 0 || p.thought.len != n_thought || p.text.len != strlen(text) || memcmp(p.text.at, text, p.text.len) != 0)
            fail_msg("%s: %d calls, thought '%.*s', text '%.*s': %s", m->name, p.n_calls, (int)p.thought.len, p.thought.at,
                     (int)p.text.len, p.text.at, reply);
        fini(&p);
    }
}
#define expect_text(...) FROM_TEST(expect_text(__VA_ARGS__))

static void set_thinking(kin_chat_format *format) {
    bool has_channels = format->syntax == KIN_CALL_CHANNELS;
    snprintf(format->think_begin, sizeof format->think_begin, has_channels ? "<|channel|>analysis<|message|>" : "<think>");
    snprintf(format->think_end, sizeof format->think_end, has_channels ? "<|end|>" : "</think>");
}

static const char *after_thought(const kin_chat_format *format) {
    return format->syntax == KIN_CALL_CHANNELS ? "<|start|>assistant" : "\n\n";
}

static void text_is_text_with_and_without_reasoning(void **state) {
    (void)state;
    static const char said[] = "If a < b, use {x} or [y] >> \"q\" <tool 'z' to=\n\n- <|x|> \xc3\xa9";
    for (int i = 0; i < N_MODELS; i++) {
        kin_jinja *jinja;
        kin_tool_format format = format_of(models[i].source, &jinja);
        char text[4096];
        snprintf(text, sizeof text, "%s%s%s", before_text(&format.chat), said, format.chat.text_end);
        expect_text(&models[i], &format.chat, text, 0, said);
        set_thinking(&format.chat);
        snprintf(text, sizeof text, "%sHm.%s%s%s%s%s", format.chat.think_begin, format.chat.think_end,
                 after_thought(&format.chat), before_text(&format.chat), said, format.chat.text_end);
        if (!format.chat.is_begun) expect_text(&models[i], &format.chat, text, 3, said); // Functionary does not reason
        kin_jinja_free(jinja);
    }
}

static void a_call_follows_text_or_reasoning(void **state) {
    (void)state;
    const kin_trial_call call = {0, sets[0].arguments};
    for (int i = 0; i < N_MODELS; i++) {
        kin_jinja *jinja;
        kin_tool_format format = format_of(models[i].source, &jinja);
        char *reply = rendered(&models[i], jinja, &format, &call, 1), text[4096];
        snprintf(text, sizeof text, "%sI look.%s%s", before_text(&format.chat), after_text(&format.chat), reply);
        for (size_t cut = 0; cut <= strlen(text) && !format.chat.is_bare; cut++) {
            parsed p = parse(&format.chat, text, cut, false);
            expect_calls(&models[i], &p, text, "I look.", &call, 1);
            fini(&p);
        }
        set_thinking(&format.chat);
        snprintf(text, sizeof text, "%sHm.%s%s%s", format.chat.think_begin, format.chat.think_end, after_thought(&format.chat),
                 reply);
        for (size_t cut = 0; cut <= strlen(text) && !format.chat.is_begun; cut++) {
            parsed p = parse(&format.chat, text, cut, false);
            expect_calls(&models[i], &p, text, "", &call, 1);
            assert_int_equal(p.thought.len, 3);
            fini(&p);
        }
        free(reply);
        kin_jinja_free(jinja);
    }
}

static void a_call_that_is_cut_off_has_no_end(void **state) {
    (void)state;
    const kin_trial_call call = {0, sets[0].arguments};
    for (int i = 0; i < N_MODELS; i++) {
        kin_jinja *jinja;
        kin_tool_format format = format_of(models[i].source, &jinja);
        char *reply = rendered(&models[i], jinja, &format, &call, 1), text[4096];
        for (size_t n = 0; n < strlen(reply); n++) {
            snprintf(text, sizeof text, "%.*s", (int)n, reply);
            parsed p = parse(&format.chat, text, n / 2, true);
            assert_true(p.n_calls <= 1 && p.n_ended <= p.n_calls);
            if (p.text.len > (format.chat.is_bare ? 40 : 10))
                fail_msg("%s: cut to '%s', text '%.*s'", models[i].name, text, (int)p.text.len, p.text.at);
            fini(&p);
        }
        free(reply);
        kin_jinja_free(jinja);
    }
}

static void a_call_of_no_offered_tool_is_text(void **state) {
    (void)state;
    const kin_trial_call call = {0, sets[0].arguments};
    for (int i = 0; i < N_MODELS; i++) {
        kin_jinja *jinja;
        kin_tool_format format = format_of(models[i].source, &jinja);
        char *reply = rendered(&models[i], jinja, &format, &call, 1), *name = strstr(reply, KIN_TRIAL_TOOL);
        assert_non_null(name);
        for (; name; name = strstr(name, KIN_TRIAL_TOOL)) memcpy(name, "kin_no", 6);
        for (size_t cut = 0; cut <= strlen(reply); cut++) {
            parsed p = parse(&format.chat, reply, cut, false);
            assert_int_equal(p.n_calls, 0);
            assert_true(p.text.len > 0);
            fini(&p);
        }
        free(reply);
        kin_jinja_free(jinja);
    }
}

// ---- mutations: the same templates with other marks, quotes and orders

static const char *const mutations[][2] = {
    {"<tool_call>", "<do-it>"},
    {"</tool_call>", "</do-it>"},
    {"</tool_call>", ""},
    {"<tool_call>", "```tool\n"},
    {"</tool_call>", "\n```"},
    {"<tool_calls>", "<|uses|>"},
    {"[TOOL_CALLS]", "[DO]"},
    {"[ARGS]", "[WITH]"},
    {"[ARGS]", " "},
    {"[CALL_ID]", "#"},
    {"<|tool_call|>", "<|calls|>"},
    {"<|tool_call>", "<|use>"},
    {"<tool_call|>", "<use|>"},
    {"<|tool_call_start|>", "<|use|>"},
    {"<|tool_call_end|>", "<|/use|>"},
    {"<function=", "<act:"},
    {"<function=", "<function name=\""},
    {"</function>", "</act>"},
    {"</function>", ""},
    {"<parameter=", "<p "},
    {"</parameter>", "</p>"},
    {"</parameter>", ";"},
    {"parameter>", "argument>"},
    {"invoke", "run"},
    {"name=\"", "tool='"},
    {"\">", "'>"},
    {"<arg_key>", "<k>"},
    {"</arg_key>", ": "},
    {"<arg_value>", "<v>"},
    {"</arg_value>", "</v>"},
    {"</arg_value>", "\n"},
    {"\n</parameter>", "</parameter>"},
    {"\"name\"", "\"tool\""},
    {"\"arguments\"", "\"input\""},
    {"\"parameters\"", "\"args\""},
    {"\"tool_name\"", "\"function\""},
    {"\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}",
     "\"arguments\": {{ c.function.arguments | tojson }}, \"name\": \"{{ c.function.name }}\""},
    {"\"name\": \"{{ c.function.name }}\",", "\"type\": \"function\", \"name\": \"{{ c.function.name }}\","},
    {"\"name\": \"{{ c.function.name }}\",", "\"name\": '{{ c.function.name }}',"},
    {"{% for c in m.tool_calls %}", "{% for c in m.tool_calls | reverse %}"},
    {"{% for k, v in c.function.arguments.items() %}", "{% for k, v in c.function.arguments | dictsort %}"},
    {"{{ c.function.arguments | tojson }}", "{{ c.function.arguments | tojson(indent=2) }}"},
    {"{{ c.function.arguments | tojson }}", "{{ c.function.arguments | tojson | tojson }}"},
    {"{{ c.function.arguments | tojson }}", "{{ c.function.arguments }}"},
    {"{{ v if v is string else v | tojson }}", "{{ v | tojson }}"},
    {"{{ v if v is string else v | tojson }}", "{{ v }}"},
    {"{{ v if v is string else v | tojson }}", "'{{ v }}'"},
    {"{{ k }}=", "{{ k }}:"},
    {"<|\"|>", "<q>"},
    {", {% endif %}", "{% endif %}"},
    {"json<|message|>", "<|constrain|>json<|message|>"},
    {"functions.", ""},
    {">>>", "@@@"},
    {"function call", "call"},
};

static char *replaced(const char *source, const char *from, const char *to) {
    kin_text_buffer out = {0};
    size_t n = strlen(from);
    for (const char *at = source; *at;) {
        bool is_here = strncmp(at, from, n) == 0;
        kin_text_put(&out, is_here ? to : at, is_here ? strlen(to) : 1);
        at += is_here ? n : 1;
    }
    kin_text_put(&out, "", 1);
    return out.at;
}

// Renders and parses calls of all sets that the model's format can say, alone and together.
static void expect_round_trips(const model *m, const kin_jinja *jinja, const kin_tool_format *format) {
    for (int k = 0; k < 2 * N_SETS; k++) {
        const kin_trial_call calls[] = {{0, sets[k / 2].arguments}, {1, sets[0].arguments}};
        int n_calls = 1 + k % 2;
        if (!says(m, k / 2) || has_fraction(calls[0].arguments) || (n_calls == 2 && format->one_call)) continue;
        char *reply = rendered(m, jinja, format, calls, n_calls);
        parsed p = parse(&format->chat, reply, strlen(reply) / 2, false);
        expect_calls(m, &p, reply, "", calls, n_calls);
        expect_identity(m, jinja, format, &p, reply, calls, n_calls);
        fini(&p);
        free(reply);
    }
}
#define expect_round_trips(...) FROM_TEST(expect_round_trips(__VA_ARGS__))

// A format that was found by its marks reads at least one call, which is written as for the unchanged template.
static void expect_simple_call(const model *m, const kin_jinja *jinja, const kin_tool_format *format, const char *unchanged) {
    const kin_trial_call call = {0, sets[0].arguments};
    kin_jinja *other;
    kin_tool_format written = format_of(unchanged, &other);
    char *reply = rendered(m, jinja, &written, &call, 1);
    parsed p = parse(&format->chat, reply, strlen(reply) / 2, false);
    if (p.n_ended != 1 || p.text.len > 0) fail_msg("%s: a call is not read: %s", m->name, reply);
    fini(&p);
    free(reply);
    kin_jinja_free(other);
}
#define expect_simple_call(...) FROM_TEST(expect_simple_call(__VA_ARGS__))

static void a_changed_template_has_a_format_that_fits_or_the_generic_one(void **state) {
    (void)state;
    int n_confirmed = 0, n_generic = 0;
    for (size_t i = 0; i < N_MODELS * sizeof mutations / sizeof *mutations; i++) {
        model m = models[i % N_MODELS];
        const char *const *mutation = mutations[i / N_MODELS];
        char title[200];
        kin_jinja *jinja;
        kin_err err;
        if (!strstr(m.source, mutation[0])) continue;
        char *source = replaced(m.source, mutation[0], mutation[1]);
        snprintf(title, sizeof title, "%s with '%s' for '%s'", m.name, mutation[1], mutation[0]);
        m.name = title;
        if (kin_jinja_new(&jinja, source, strlen(source), &err) == 0) {
            kin_tool_format format;
            assert_int_equal(kin_tool_format_of(&format, jinja, source, strlen(source), &err), 0);
            n_confirmed += format.is_confirmed;
            n_generic += format.is_generic;
            if (format.is_confirmed) expect_round_trips(&m, jinja, &format);
            if (!format.is_confirmed && !format.is_generic) expect_simple_call(&m, jinja, &format, m.source);
            kin_jinja_free(jinja);
        }
        free(source);
    }
    assert_true(n_confirmed > 150 && n_generic > 30); // both happen
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(every_models_format_is_found_from_its_template),
        cmocka_unit_test(an_unknown_format_is_derived),
        cmocka_unit_test(what_cannot_be_confirmed_is_not_derived),
        cmocka_unit_test(rendered_calls_are_parsed_into_the_same_calls),
        cmocka_unit_test(text_is_text_with_and_without_reasoning),
        cmocka_unit_test(a_call_follows_text_or_reasoning),
        cmocka_unit_test(a_call_that_is_cut_off_has_no_end),
        cmocka_unit_test(a_call_of_no_offered_tool_is_text),
        cmocka_unit_test(a_changed_template_has_a_format_that_fits_or_the_generic_one),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
