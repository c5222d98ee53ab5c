// Replies of chat models: text, reasoning and tool calls are the same however the bytes are cut.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/chat/reply_parser.h"
#include "pure/text/json.h"
#include "tests/place.h"

static kin_str str(const char *text) {
    return (kin_str){text, strlen(text)};
}

#define PARAMETERS                                                                                                               \
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"hot\":{\"type\":"     \
    "\"boolean\"},"                                                                                                              \
    "\"tags\":{\"type\":\"array\"},\"note\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},\"ref\":{\"$ref\":\"#/"      \
    "$defs/n\"},"                                                                                                                \
    "\"any\":{}},\"$defs\":{\"n\":{\"type\":\"number\"}}}"

static const kin_reply_tool tools[] = {
    {.name = {"weather", 7}, .parameters = {PARAMETERS, sizeof PARAMETERS - 1}},
    {.name = {"time", 4}},
    {.name = {"say \"hi\"", 8}},
};

static kin_reply_options options_of(kin_chat_known format) {
    return (kin_reply_options){.format = kin_chat_format_known(format), .tools = tools, .n_tools = 3, .reasoning = true};
}

// Events as text: "text(...)", "think(...)", "call 0 NAME#ID(ARGUMENTS)" with a "~" if the end is missing.
typedef struct script {
    char text[8192];
    size_t n;
    int last; // kin_reply_kind, or -1
    bool open;
    bool is_cut; // the reply was cut off
} script;

static void put(script *s, kin_str text) {
    assert_true(s->n + text.len < sizeof s->text);
    memcpy(s->text + s->n, text.at, text.len);
    s->n += text.len;
    s->text[s->n] = 0;
}

static void end_last(script *s, int next) {
    bool is_text = s->last == KIN_REPLY_TEXT || s->last == KIN_REPLY_REASONING;
    if (is_text && s->last != next) put(s, str(")"));
    if (s->open && next != KIN_REPLY_TOOL_ARGUMENTS && next != KIN_REPLY_TOOL_END) {
        put(s, str("~)"));
        s->open = false;
    }
}

static void add_events(script *s, const kin_reply_event *events, int n) {
    for (int i = 0; i < n; i++) {
        const kin_reply_event *e = &events[i];
        char begin[32];
        end_last(s, (int)e->kind);
        switch (e->kind) {
        case KIN_REPLY_TEXT:
        case KIN_REPLY_REASONING:
            assert_true(e->text.len > 0);
            if (s->last != (int)e->kind) put(s, str(e->kind == KIN_REPLY_TEXT ? "text(" : "think("));
            put(s, e->text);
            break;
        case KIN_REPLY_TOOL_BEGIN:
            snprintf(begin, sizeof begin, "call %d ", e->tool);
            put(s, str(begin));
            put(s, e->name);
            if (e->id.len > 0) put(s, str("#"));
            put(s, e->id);
            put(s, str("("));
            s->open = true;
            break;
        case KIN_REPLY_TOOL_ARGUMENTS:
            assert_true(s->open && e->text.len > 0);
            put(s, e->text);
            break;
        case KIN_REPLY_TOOL_END:
            assert_true(s->open);
            put(s, str(")"));
            s->open = false;
            break;
        }
        s->last = (int)e->kind;
    }
}

static void push(script *s, kin_reply_parser *p, const char *at, size_t len) {
    const kin_reply_event *events;
    int n;
    char *copy = malloc(len + 1); // a tight buffer, so that sanitizers find a read beyond the piece
    assert_non_null(copy);
    memcpy(copy, at, len);
    assert_int_equal(kin_reply_parser_push(p, copy, len, &events, &n), 0);
    free(copy);
    add_events(s, events, n);
}

static void flush(script *s, kin_reply_parser *p) {
    const kin_reply_event *events;
    int n;
    assert_int_equal(kin_reply_parser_flush(p, s->is_cut, &events, &n), 0);
    add_events(s, events, n);
    end_last(s, -1);
}

static void expect_end(const kin_reply_options *options, bool is_cut, const char *reply, const char *expected) {
    size_t len = strlen(reply);
    for (size_t cut = 0; cut <= len; cut++) {
        for (size_t step = 1; step <= 3; step++) { // step 1: two pieces; then pieces of 1 and 2 bytes after the cut
            kin_reply_parser *p;
            script s = {.last = -1, .is_cut = is_cut};
            assert_int_equal(kin_reply_parser_new(&p, options, NULL), 0);
            push(&s, p, reply, cut);
            for (size_t at = cut; at < len; at += step == 1 ? len : step - 1)
                push(&s, p, reply + at, step == 1 || len - at < step - 1 ? len - at : step - 1);
            flush(&s, p);
            kin_reply_parser_free(p);
            assert_string_equal(s.text, expected);
        }
    }
}

static void expect_with(const kin_reply_options *options, const char *reply, const char *expected) {
    expect_end(options, false, reply, expected);
}
#define expect_with(...) FROM_TEST(expect_with(__VA_ARGS__))

static void expect_cut(kin_chat_known format, const char *reply, const char *expected) {
    kin_reply_options options = options_of(format);
    expect_end(&options, true, reply, expected);
}
#define expect_cut(...) FROM_TEST(expect_cut(__VA_ARGS__))

static void expect(kin_chat_known format, const char *reply, const char *expected) {
    kin_reply_options options = options_of(format);
    expect_with(&options, reply, expected);
}
#define expect(...) FROM_TEST(expect(__VA_ARGS__))

// ---- text and reasoning

static void plain_text_comes_out_as_it_is(void **state) {
    (void)state;
    for (int format = KIN_CHAT_PLAIN; format <= KIN_CHAT_MISTRAL_LABELS; format++) {
        expect((kin_chat_known)format, "", "");
        expect((kin_chat_known)format, "Hello, \xc3\xa9\xe2\x82\xac.\n\n  <b> [1] a < b && c\n",
               "text(Hello, \xc3\xa9\xe2\x82\xac.\n\n  <b> [1] a < b && c\n)");
        expect((kin_chat_known)format, "  \n", "text(  \n)");
        expect((kin_chat_known)format, "<tool", "text(<tool)");
        expect((kin_chat_known)format, "{\"name\": \"Bob\"}", "text({\"name\": \"Bob\"})");
    }
    expect(KIN_CHAT_PLAIN, "<tool_call>{\"name\": \"time\"}</tool_call>", "text(<tool_call>{\"name\": \"time\"}</tool_call>)");
}

static void reasoning_is_split_from_text(void **state) {
    (void)state;
    expect(KIN_CHAT_PLAIN, "<think>\nHm, a < b.\nYes.\n</think>\n\nIt is so.\n", "think(Hm, a < b.\nYes.)text(It is so.\n)");
    expect(KIN_CHAT_PLAIN, "\n<think>\n\n</think>\n\nIt is.", "text(It is.)");
    expect(KIN_CHAT_PLAIN, "<think>without an end </th", "think(without an end </th)");
    expect(KIN_CHAT_PLAIN, "The tag <think> begins </think> it.", "text(The tag <think> begins </think> it.)");
    expect(KIN_CHAT_PLAIN, "<think>a</think><think>b</think>", "think(a)text(<think>b</think>)");
    expect(
        KIN_CHAT_HERMES,
        "<think>I <tool_call>{\"name\": \"time\", \"arguments\": {}}</think>\n<tool_call>{\"name\": \"time\", \"arguments\": {}}",
        "think(I <tool_call>{\"name\": \"time\", \"arguments\": {}})call 0 time({})");
}

static void the_prompt_may_have_begun_the_reasoning(void **state) {
    (void)state;
    kin_reply_options options = options_of(KIN_CHAT_HERMES);
    options.begins_in_reasoning = true;
    expect_with(&options, "\nHm.\n</think>\n\nYes.", "think(Hm.)text(Yes.)");
    expect_with(&options, "Hm.\n\n", "think(Hm.)");
    expect_with(&options, "Hm</think><think>", "think(Hm)text(<think>)");
    options = options_of(KIN_CHAT_FUNCTION); // knows no reasoning, which would never end
    options.begins_in_reasoning = true;
    expect_with(&options, "<function=time>{}</function>", "call 0 time({})");
}

static void reasoning_is_text_if_the_client_wants_that(void **state) {
    (void)state;
    kin_reply_options options = options_of(KIN_CHAT_HERMES);
    options.reasoning_in_text = true;
    expect_with(&options, " <think>\nHm <tool_call>\n</think>\n\nYes. <tool_call>{\"name\":\"time\"}</tool_call>",
                "text( <think>\nHm <tool_call>\n</think>\n\nYes.)call 0 time({})");
    options.reasoning_in_text = options.reasoning = false;
    expect_with(&options, "<think>Hm</think>Yes", "text(<think>Hm</think>Yes)");
}

// ---- Hermes

#define HERMES_CALL                                                                                                              \
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rom\", \"x\": [1, {\"}\": "                                \
    "\"</tool_call>\"}]}}\n</tool_call>"
#define ROM "{\"city\": \"Rom\", \"x\": [1, {\"}\": \"</tool_call>\"}]}"

static void hermes_calls_are_read(void **state) {
    (void)state;
    expect(KIN_CHAT_HERMES, HERMES_CALL, "call 0 weather(" ROM ")");
    expect(KIN_CHAT_HERMES, "I look.\n\n" HERMES_CALL "\n<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>\n",
           "text(I look.)call 0 weather(" ROM ")call 1 time({})");
    expect(KIN_CHAT_HERMES, HERMES_CALL "\nDone. \n", "call 0 weather(" ROM ")text(Done. \n)");
    expect(KIN_CHAT_HERMES, "<tool_call>{\"name\":\"time\",\"arguments\":{}}\n", "call 0 time({})");
}

static void arguments_may_come_first_or_not_at_all_or_as_a_string(void **state) {
    (void)state;
    expect(KIN_CHAT_HERMES, "<tool_call>{\"arguments\": {\"city\" : \"Bonn\"}, \"name\": \"weather\"}</tool_call>",
           "call 0 weather({\"city\":\"Bonn\"})");
    expect(KIN_CHAT_HERMES, "<tool_call>{\"name\": \"time\"}</tool_call>", "call 0 time({})");
    expect(KIN_CHAT_HERMES, "<tool_call>{\"name\": \"time\", \"arguments\": null}</tool_call>", "call 0 time({})");
    expect(KIN_CHAT_HERMES, "<tool_call>{\"name\": \"time\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
           "call 0 time({\"a\":1})");
    expect(KIN_CHAT_HERMES, "<tool_call>{\"name\": \"say \\\"hi\\\"\", \"arguments\": {\"a\": 1}}</tool_call>",
           "call 0 say \"hi\"({\"a\":1})");
    expect(KIN_CHAT_HERMES, "<tool_call>{\"name\": \"time\", \"arguments\": {\"a\": 1}, \"id\": \"x\"}</tool_call>",
           "call 0 time({\"a\": 1})");
}

static void what_is_no_call_is_text(void **state) {
    (void)state;
    static const char *const replies[] = {
        "The tag <tool_call> begins a call.",
        "<tool_call>\n{\"name\": \"nobody\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>{\"arguments\": {}, \"name\": \"nobody\"}</tool_call>",
        "<tool_call>{\"city\": \"Rom\"}</tool_call>",
        "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"time\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"time\", \"arguments\": \"no JSON\"}</tool_call>",
        "<tool_call>{name: time}</tool_call>",
        "a\n<tool_call>{\"na",
        "<tool_call",
        "{\"name\": \"time\", \"arguments\": {}}",
    };
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        char expected[256];
        snprintf(expected, sizeof expected, "text(%s)", replies[i]);
        expect(KIN_CHAT_HERMES, replies[i], expected);
    }
}

static void a_call_that_is_cut_off_has_no_end(void **state) {
    (void)state;
    expect(KIN_CHAT_HERMES, "<tool_call>{\"name\": \"time\", \"arguments\": {\"a\": \"b", "call 0 time({\"a\": \"b~)");
    expect(KIN_CHAT_HERMES, "<tool_call>{\"name\": \"time\", \"arguments\": {\"a\" 1}}</tool_call>",
           "call 0 time({\"a\" ~)text(1}}</tool_call>)");
    expect(KIN_CHAT_HERMES, "<tool_call>{\"name\": \"time\", \"arguments\": {\"a\": 1}\n</tool_call>.",
           "call 0 time({\"a\": 1})text(.)");
    expect(KIN_CHAT_XML, "<tool_call><function=time>\n<parameter=a>\n5", "call 0 time({~)");
    expect(KIN_CHAT_XML, "<tool_call><function=time>\nwhat</function>", "call 0 time({~)text(what</function>)");
}

// ---- Llama 3

static void llama_calls_are_the_whole_reply(void **state) {
    (void)state;
    expect(KIN_CHAT_LLAMA, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rom\"}}", "call 0 weather({\"city\": \"Rom\"})");
    expect(KIN_CHAT_LLAMA, "\n{\"type\": \"function\", \"name\": \"time\", \"parameters\": {}}\n", "call 0 time({})");
    expect(KIN_CHAT_LLAMA, "{\"name\": \"time\", \"parameters\": {}}; {\"name\": \"weather\", \"parameters\": {\"days\": 2}}",
           "call 0 time({})call 1 weather({\"days\": 2})");
    expect(KIN_CHAT_LLAMA, "<|python_tag|>{\"name\": \"time\", \"parameters\": {}}", "call 0 time({})");
    expect(KIN_CHAT_LLAMA, "I look. <|python_tag|>{\"name\": \"time\", \"parameters\": {}}", "text(I look.)call 0 time({})");
    expect(KIN_CHAT_LLAMA, "<|python_tag|>print(1)", "text(<|python_tag|>print(1))");
    expect(KIN_CHAT_LLAMA, "So: {\"name\": \"time\", \"parameters\": {}}", "text(So: {\"name\": \"time\", \"parameters\": {}})");
    expect(KIN_CHAT_LLAMA, "{\"city\": \"Rom\", \"name\": \"time\"}", "text({\"city\": \"Rom\", \"name\": \"time\"})");
    expect(KIN_CHAT_LLAMA, "<think>Hm</think>{\"name\": \"time\", \"parameters\": {}}", "think(Hm)call 0 time({})");
}

// ---- Mistral

static void mistral_lists_are_read(void **state) {
    (void)state;
    expect(KIN_CHAT_MISTRAL, "[TOOL_CALLS][{\"name\": \"time\", \"arguments\": {}, \"id\": \"123456789\"}]", "call 0 time({})");
    expect(
        KIN_CHAT_MISTRAL,
        "I look.[TOOL_CALLS] [{\"name\": \"time\", \"arguments\": {}}, {\"name\": \"weather\", \"arguments\": {\"days\": 1}}]\n",
        "text(I look.)call 0 time({})call 1 weather({\"days\": 1})");
    expect(KIN_CHAT_MISTRAL, "[TOOL_CALLS]{\"name\": \"time\", \"arguments\": {}}", "call 0 time({})");
    expect(KIN_CHAT_MISTRAL, "[TOOL_CALLS][]", "text([TOOL_CALLS][])");
    expect(KIN_CHAT_MISTRAL, "[TOOL_CALLS][{\"name\": \"time\", \"arguments\": {}}, oh", "call 0 time({})text(, oh)");
    expect(KIN_CHAT_MISTRAL,
           "[TOOL_CALLS][{\"name\": \"time\", \"arguments\": {}}, {\"name\": \"nobody\"}] [TOOL_CALLS][{\"name\": \"time\", "
           "\"arguments\": {}}]",
           "call 0 time({})text(, {\"name\": \"nobody\"}])call 1 time({})");
}

static void the_name_may_be_the_key_of_the_arguments(void **state) {
    (void)state;
    expect(KIN_CHAT_APERTUS, "<|tools_prefix|>[{\"time\": {\"a\": 1}}]<|tools_suffix|>", "call 0 time({\"a\": 1})");
    expect(KIN_CHAT_APERTUS, "<|tools_prefix|>[{\"ti\\u006de\": {\"a\":1}}]<|tools_suffix|>", "call 0 time({\"a\":1})");
    expect(KIN_CHAT_APERTUS, "<|tools_prefix|>[{\"\\u006do\": {}}]", "text(<|tools_prefix|>[{\"\\u006do\": {}}])");
}

static void mistral_calls_with_labels_are_read(void **state) {
    (void)state;
    expect(KIN_CHAT_MISTRAL_LABELS, "[TOOL_CALLS]weather[ARGS]{\"city\": \"Rom\"}", "call 0 weather({\"city\": \"Rom\"})");
    expect(KIN_CHAT_MISTRAL_LABELS,
           "[TOOL_CALLS]weather[CALL_ID]abc123def[ARGS]{\"city\": \"Rom\"}[TOOL_CALLS]time[CALL_ID]x[ARGS]{}",
           "call 0 weather#abc123def({\"city\": \"Rom\"})call 1 time#x({})");
    expect(KIN_CHAT_MISTRAL_LABELS, "[TOOL_CALLS]time{}", "call 0 time({})");
    expect(KIN_CHAT_MISTRAL_LABELS, "[TOOL_CALLS]nobody[ARGS]{}", "text([TOOL_CALLS]nobody[ARGS]{})");
    expect(KIN_CHAT_MISTRAL_LABELS, "[TOOL_CALLS]time[ARG]{}", "text([TOOL_CALLS]time[ARG]{})");
    expect(KIN_CHAT_MISTRAL_LABELS, "[TOOL_CALLS]time[AR", "text([TOOL_CALLS]time[AR)");
    expect(KIN_CHAT_MISTRAL_LABELS, "[TOOL_CALLS][{\"name\": \"time\", \"arguments\": {}}]", "call 0 time({})");
}

// ---- Qwen3-Coder

static void xml_parameters_become_json_of_the_schemas_types(void **state) {
    (void)state;
    expect(KIN_CHAT_XML,
           "<tool_call>\n<function=weather>\n<parameter=city>\n5\n</parameter>\n<parameter=days>\n5\n</parameter>\n</"
           "function>\n</tool_call>",
           "call 0 weather({\"city\": \"5\", \"days\": 5})");
    expect(KIN_CHAT_XML,
           "I look.\n<function=weather>\n<parameter=hot>True</parameter><parameter=tags>[1, \"a\"]</parameter></function>",
           "text(I look.)call 0 weather({\"hot\": true, \"tags\": [1,\"a\"]})");
    expect(KIN_CHAT_XML,
           "<tool_call>\n<function=weather>\n<parameter=city>\n<b>\n\"x\"</b>\n\n</parameter>\n</function>\n</tool_call>",
           "call 0 weather({\"city\": \"<b>\\n\\\"x\\\"</b>\\n\"})");
    expect(KIN_CHAT_XML,
           "<tool_call><function=weather><parameter=note>null</parameter><parameter=ref>1e3</parameter><parameter=any>{\"a\":1}</"
           "parameter><parameter=other>7</parameter></function></tool_call>",
           "call 0 weather({\"note\": null, \"ref\": 1e3, \"any\": {\"a\":1}, \"other\": \"7\"})");
    expect(KIN_CHAT_XML, "<tool_call><function=weather><parameter=days>soon</parameter><parameter=days>6</parameter></tool_call>",
           "call 0 weather({\"days\": \"soon\"})");
    expect(KIN_CHAT_XML,
           "<tool_call>\n<function=time>\n</function>\n</tool_call>\n<tool_call>\n<function=time>\n</function>\n</tool_call>",
           "call 0 time({})call 1 time({})");
    // A value adds no parameter of its own; an object whose key occurs twice is passed on.
    expect(KIN_CHAT_XML, "<tool_call><function=weather><parameter=any>{\"a\":1},\"b\":{}</parameter></function></tool_call>",
           "call 0 weather({\"any\": \"{\\\"a\\\":1},\\\"b\\\":{}\"})");
    expect(KIN_CHAT_XML, "<tool_call><function=weather><parameter=any>[1],\"b\":[2]</parameter></function></tool_call>",
           "call 0 weather({\"any\": \"[1],\\\"b\\\":[2]\"})");
    expect(KIN_CHAT_XML, "<tool_call><function=weather><parameter=any>{\"a\":1,\"a\":2} </parameter></function></tool_call>",
           "call 0 weather({\"any\": {\"a\":1,\"a\":2} })");
    expect(KIN_CHAT_XML, "<tool_call>{\"name\": \"time\", \"arguments\": {}}</tool_call>", "call 0 time({})");
    expect(KIN_CHAT_XML, "<tool_call>\n<function=nobody>\n</function>", "text(<tool_call>\n<function=nobody>\n</function>)");
}

// ---- delays, limits and errors

static size_t n_events_of(kin_reply_parser *p, const char *text, const kin_reply_event **events) {
    int n;
    assert_int_equal(kin_reply_parser_push(p, text, strlen(text), events, &n), 0);
    return (size_t)n;
}
#define n_events_of(...) FROM_TEST(n_events_of(__VA_ARGS__))

static void nothing_is_held_back_that_is_decided(void **state) {
    (void)state;
    kin_reply_options options = options_of(KIN_CHAT_HERMES);
    kin_reply_parser *p;
    const kin_reply_event *events;
    assert_int_equal(kin_reply_parser_new(&p, &options, NULL), 0);
    assert_int_equal(n_events_of(p, "Hello ", &events), 1);
    assert_int_equal(events[0].text.len, 5);
    assert_int_equal(n_events_of(p, "you <", &events), 1);
    assert_int_equal(events[0].text.len, 4);
    assert_int_equal(n_events_of(p, "b", &events), 1);
    assert_int_equal(events[0].text.len, 3);
    assert_int_equal(n_events_of(p, "<tool_call>{\"name\": \"time\", \"arguments\": ", &events), 0);
    assert_int_equal(n_events_of(p, "{\"", &events), 2);
    assert_int_equal(events[0].kind, KIN_REPLY_TOOL_BEGIN);
    assert_int_equal(events[1].text.len, 2);
    assert_int_equal(n_events_of(p, "a", &events), 1);
    kin_reply_parser_free(p);
}

static void a_call_without_end_does_not_grow_without_bounds(void **state) {
    (void)state;
    kin_reply_options options = options_of(KIN_CHAT_HERMES);
    kin_reply_parser *p;
    const kin_reply_event *events;
    static char filler[4096];
    size_t n_out = 0, n_in = 0;
    memset(filler, 'x', sizeof filler);
    assert_int_equal(kin_reply_parser_new(&p, &options, NULL), 0);
    n_in += strlen("<tool_call>{\"id\": \"");
    assert_int_equal(n_events_of(p, "<tool_call>{\"id\": \"", &events), 0);
    for (int i = 0; i < 300; i++) {
        int n;
        assert_int_equal(kin_reply_parser_push(p, filler, sizeof filler, &events, &n), 0);
        for (int k = 0; k < n; k++) n_out += events[k].text.len;
        n_in += sizeof filler;
        assert_true(n_in - n_out <= KIN_REPLY_MAX_HELD);
    }
    assert_int_equal(n_out, n_in);
    kin_reply_parser_free(p);
}

static void two_tools_of_one_name_are_refused(void **state) {
    (void)state;
    const kin_reply_tool twice[] = {{.name = {"a", 1}}, {.name = {"a", 1}}};
    kin_reply_options options = {.tools = twice, .n_tools = 2};
    kin_reply_parser *p;
    kin_err err;
    assert_int_equal(kin_reply_parser_new(&p, &options, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "same name"));
    assert_null(p);
}

static void markers_are_told_from_other_tokens(void **state) {
    (void)state;
    assert_true(kin_chat_format_has_token(kin_chat_format_known(KIN_CHAT_MISTRAL), str("[TOOL_CALLS]")));
    assert_true(kin_chat_format_has_token(kin_chat_format_known(KIN_CHAT_LLAMA), str("<|python_tag|>")));
    assert_true(kin_chat_format_has_token(kin_chat_format_known(KIN_CHAT_PLAIN), str("</think>")));
    assert_false(kin_chat_format_has_token(kin_chat_format_known(KIN_CHAT_HERMES), str("<|im_start|>")));
    assert_false(kin_chat_format_has_token(kin_chat_format_known(KIN_CHAT_HERMES), str("")));
}

static void a_call_that_is_cut_in_its_beginning_is_no_text(void **state) {
    (void)state;
    static const char call[] = "<tool_call>\n{\"name\": \"time\", ";
    for (size_t n = 2; n < sizeof call; n++) { // "<" alone is not yet a call
        char reply[64];
        snprintf(reply, sizeof reply, "Well.\n%.*s", (int)n, call);
        expect_cut(KIN_CHAT_HERMES, reply, "text(Well.)");
    }
    expect_cut(KIN_CHAT_HERMES, "a <", "text(a <)");
    expect_cut(KIN_CHAT_HERMES, "a <b", "text(a <b)");
    expect_cut(KIN_CHAT_HERMES, "Well.  ", "text(Well.  )");
    expect_cut(KIN_CHAT_HERMES, "<think>I <tool_call>", "think(I <tool_call>)");
    expect_cut(KIN_CHAT_HERMES, "<tool_call>{\"name\": \"time\", \"arguments\": {\"a\"", "call 0 time({\"a\"~)");
    expect_cut(KIN_CHAT_HERMES, "<tool_call>{\"name\": \"time\", \"arguments\": {}}</tool", "call 0 time({})");
    expect_cut(KIN_CHAT_XML, "<tool_call>\n<function=ti", "");
    expect_cut(KIN_CHAT_LLAMA, "{\"name\": \"time\", \"par", "");
    expect_cut(KIN_CHAT_LLAMA, "{\"na", "text({\"na)");
    expect_cut(KIN_CHAT_MISTRAL, "[TOOL_CALLS][{\"na", "");
    expect_cut(KIN_CHAT_MISTRAL_LABELS, "Hm. [TOOL_CALLS]time[AR", "text(Hm.)");
    expect_cut(KIN_CHAT_PLAIN, "<tool_ca", "text(<tool_ca)");
}

int main(void) {
    const struct CMUnitTest tests_of_replies[] = {
        cmocka_unit_test(a_call_that_is_cut_in_its_beginning_is_no_text),
        cmocka_unit_test(plain_text_comes_out_as_it_is),
        cmocka_unit_test(reasoning_is_split_from_text),
        cmocka_unit_test(the_prompt_may_have_begun_the_reasoning),
        cmocka_unit_test(reasoning_is_text_if_the_client_wants_that),
        cmocka_unit_test(hermes_calls_are_read),
        cmocka_unit_test(arguments_may_come_first_or_not_at_all_or_as_a_string),
        cmocka_unit_test(what_is_no_call_is_text),
        cmocka_unit_test(a_call_that_is_cut_off_has_no_end),
        cmocka_unit_test(llama_calls_are_the_whole_reply),
        cmocka_unit_test(mistral_lists_are_read),
        cmocka_unit_test(the_name_may_be_the_key_of_the_arguments),
        cmocka_unit_test(mistral_calls_with_labels_are_read),
        cmocka_unit_test(xml_parameters_become_json_of_the_schemas_types),
        cmocka_unit_test(nothing_is_held_back_that_is_decided),
        cmocka_unit_test(a_call_without_end_does_not_grow_without_bounds),
        cmocka_unit_test(two_tools_of_one_name_are_refused),
        cmocka_unit_test(markers_are_told_from_other_tokens),
    };
    return cmocka_run_group_tests(tests_of_replies, NULL, NULL);
}
