// Formats of tool calls: real chat templates are recognised, and a grammar restricts a model to calls of the offered tools, which
// the reply parser can read.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "pure/chat/reply_parser.h"
#include "pure/chat/tool_format.h"
#include "pure/grammar/grammar_compile.h"
#include "pure/sampling/constraint.h"
#include "pure/text/json.h"
#include "testkit/small_vocab.h"
#include "tests/place.h"

#define TEMPLATES KIN_SOURCE_DIR "/../shared/templates/"

static kin_str str(const char *text) {
    return (kin_str){text, strlen(text)};
}

// ---- templates

static kin_tool_format format_of(const char *source, size_t len) {
    kin_jinja *jinja;
    kin_tool_format format;
    kin_err err = {""};
    kin_jinja_new(&jinja, source, len, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(kin_tool_format_of(&format, jinja, source, len, &err), 0);
    kin_jinja_free(jinja);
    return format;
}
#define format_of(...) FROM_TEST(format_of(__VA_ARGS__))

// True if the calls are those of the known format.
static bool is_known(const kin_tool_format *format, kin_chat_known which) {
    kin_chat_format expected = *kin_chat_format_known(which);
    memcpy(expected.think_begin, format->chat.think_begin, sizeof expected.think_begin);
    memcpy(expected.think_end, format->chat.think_end, sizeof expected.think_end);
    return memcmp(&expected, &format->chat, sizeof expected) == 0;
}

static char *read_template(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s%s.jinja", TEMPLATES, name);
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char *text = calloc(1, 1 << 16);
    assert_non_null(text);
    size_t n = fread(text, 1, (1 << 16) - 1, file);
    assert_true(n > 0);
    fclose(file);
    return text;
}
#define read_template(...) FROM_TEST(read_template(__VA_ARGS__))

static void real_templates_are_told_apart(void **state) {
    (void)state;
    static const struct {
        const char *name;
        kin_chat_known chat;
        bool is_generic, thinks, one_call;
        int n_call_id;
        bool accepts_system;
    } all[] = {
        {"Mistral-Small-3.2-24B-Instruct-2506", KIN_CHAT_MISTRAL_LABELS, .n_call_id = 9, .accepts_system = true},
        {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", KIN_CHAT_HERMES, .accepts_system = true},
        {"Qwen-QwQ-32B", KIN_CHAT_HERMES, .thinks = true, .accepts_system = true},
        {"Qwen-Qwen2.5-7B-Instruct", KIN_CHAT_HERMES, .accepts_system = true},
        {"Qwen-Qwen3-0.6B", KIN_CHAT_HERMES, .thinks = true, .accepts_system = true},
        {"Qwen3-Coder", KIN_CHAT_XML, .accepts_system = true},
        {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", KIN_CHAT_HERMES, .is_generic = true, .thinks = true, .accepts_system = true},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", KIN_CHAT_HERMES, .is_generic = true, .thinks = true, .accepts_system = true},
        {"google-gemma-2-2b-it", KIN_CHAT_HERMES, .is_generic = true},
        {"meta-llama-Llama-3.1-8B-Instruct", KIN_CHAT_LLAMA, .one_call = true, .accepts_system = true},
        {"meta-llama-Llama-3.2-3B-Instruct", KIN_CHAT_LLAMA, .one_call = true, .accepts_system = true},
        {"microsoft-Phi-3.5-mini-instruct", KIN_CHAT_HERMES, .is_generic = true, .accepts_system = true},
        {"mistralai-Mistral-Nemo-Instruct-2407", KIN_CHAT_MISTRAL, .n_call_id = 9, .accepts_system = true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *source = read_template(all[i].name);
        if (!source) skip();
        kin_tool_format format = format_of(source, strlen(source));
        bool same = is_known(&format, all[i].chat) && format.is_generic == all[i].is_generic &&
                    format.one_call == all[i].one_call && format.n_call_id == all[i].n_call_id &&
                    kin_chat_format_thinks(&format.chat) == all[i].thinks && format.accepts_system == all[i].accepts_system;
        if (!same)
            fail_msg("%s: syntax %d generic %d one %d id %d thinks %d system %d", all[i].name, format.chat.syntax,
                     format.is_generic, format.one_call, format.n_call_id, kin_chat_format_thinks(&format.chat),
                     format.accepts_system);
        free(source);
    }
}

// Tests the markers alone, because the real templates may be absent.
static void a_template_that_tells_no_tools_gets_the_generic_form(void **state) {
    (void)state;
    static const char tells[] = "{% for t in tools %}{{ t | tojson }}{% endfor %}{{ messages[0].content }}";
    static const struct {
        const char *markers;
        kin_chat_known calls;
    } all[] = {
        {"{# <tool_call> arguments #}", KIN_CHAT_HERMES},  {"{# <tool_call><function=f> #}", KIN_CHAT_XML},
        {"{# [TOOL_CALLS][{ #}", KIN_CHAT_MISTRAL},        {"{# [TOOL_CALLS]f[ARGS] #}", KIN_CHAT_MISTRAL_LABELS},
        {"{# ipython \"parameters\": #}", KIN_CHAT_LLAMA},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char source[256];
        snprintf(source, sizeof source, "%s%s", tells, all[i].markers);
        kin_tool_format format = format_of(source, strlen(source));
        assert_true(is_known(&format, all[i].calls));
        assert_false(format.is_generic || format.one_call || kin_chat_format_thinks(&format.chat));
        assert_true(format.accepts_system);
        snprintf(source, sizeof source, "{{ messages[-1].content }}%s", all[i].markers);
        format = format_of(source, strlen(source));
        assert_true(is_known(&format, KIN_CHAT_HERMES));
        assert_true(format.is_generic);
        assert_false(format.accepts_system);
    }
    assert_true(format_of(tells, strlen(tells)).is_generic);
    assert_true(format_of("{{ raise_exception('no') }}", 27).is_generic);
}

// A file may have one template for chats and one for tools, so the rendered text counts more than the source.
static void what_a_template_renders_says_more_than_a_source(void **state) {
    (void)state;
    static const char hermes[] = "{{ messages[-1].content }}{% for t in tools %}<tool_call>arguments{{ t | tojson }}{% endfor %}";
    static const char other[] = "{{ messages[0].content }} [TOOL_CALLS]";
    kin_jinja *jinja;
    kin_tool_format format;
    assert_int_equal(kin_jinja_new(&jinja, hermes, sizeof hermes - 1, NULL), 0);
    assert_int_equal(kin_tool_format_of(&format, jinja, other, sizeof other - 1, NULL), 0);
    assert_true(is_known(&format, KIN_CHAT_HERMES));
    assert_false(format.is_generic);
    kin_jinja_free(jinja);
}

static void ids_of_calls_are_made_to_fit(void **state) {
    (void)state;
    kin_tool_format format = {.n_call_id = 9};
    kin_text_buffer one = {0}, again = {0}, other = {0};
    kin_tool_format_put_id(&format, str("abcDEF123"), &one);
    assert_string_equal(one.at, "abcDEF123");
    one.len = 0;
    kin_tool_format_put_id(&format, str("call_abcDEF123"), &one);
    kin_tool_format_put_id(&format, str("call_abcDEF123"), &again);
    kin_tool_format_put_id(&format, str("abc-EF123"), &other);
    assert_int_equal(one.len, 9);
    assert_int_equal(strspn(one.at, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"), 9);
    assert_string_equal(one.at, again.at);
    assert_int_equal(other.len, 9);
    assert_string_not_equal(other.at, "abc-EF123");
    assert_string_not_equal(one.at, other.at);
    format.n_call_id = other.len = 0;
    kin_tool_format_put_id(&format, str("call_1"), &other);
    assert_string_equal(other.at, "call_1");
    kin_text_fini(&other);
    kin_text_fini(&again);
    kin_text_fini(&one);
}

static void a_prompt_tells_whether_reasoning_has_begun(void **state) {
    (void)state;
    kin_tool_format format = {.chat = *kin_chat_format_known(KIN_CHAT_HERMES)};
    assert_int_equal(kin_reply_thinking_of(&format, str("<|im_start|>assistant\n<think>\n")), KIN_THINKING_BEGUN);
    assert_int_equal(kin_reply_thinking_of(&format, str("assistant\n<think>\n\n</think>\n\n")), KIN_THINKING_NONE);
    assert_int_equal(kin_reply_thinking_of(&format, str("assistant\n")), KIN_THINKING_MAY_BEGIN);
    format.chat.think_begin[0] = 0;
    assert_int_equal(kin_reply_thinking_of(&format, str("assistant\n")), KIN_THINKING_NONE);
    assert_int_equal(kin_reply_thinking_of(&format, str("")), KIN_THINKING_NONE);
}

// ---- grammars

#define WEATHER                                                                                                                  \
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\",\"minimum\":1,"          \
    "\"maximum\":9},"                                                                                                            \
    "\"unit\":{\"enum\":[\"C\",\"F\"]}},\"required\":[\"city\"]}"

static const kin_reply_tool tools[] = {
    {.name = {"weather", 7}, .parameters = {WEATHER, sizeof WEATHER - 1}},
    {.name = {"time", 4}},
};

static kin_reply_rules rules_of(kin_chat_known format, bool required) {
    return (kin_reply_rules){
        .format = kin_chat_format_known(format), .tools = tools, .n_tools = 2, .required = required, .parallel = true};
}

typedef struct judge {
    kin_grammar *grammar;
    kin_matcher *m;
} judge;

static judge open_judge(const kin_reply_rules *rules) {
    judge j;
    kin_err err = {""};
    kin_text_buffer gbnf = {0};
    kin_reply_rules_to_gbnf(rules, NULL, &gbnf, &err);
    assert_string_equal(err.text, "");
    kin_grammar_compile(&j.grammar, gbnf.at, gbnf.len, &err);
    assert_string_equal(err.text, "");
    kin_text_fini(&gbnf);
    assert_int_equal(kin_matcher_new(&j.m, j.grammar, NULL, NULL), 0);
    return j;
}

static void close_judge(judge *j) {
    kin_matcher_free(j->m);
    kin_grammar_free(j->grammar);
}

static bool allows(const judge *j, const char *reply) {
    kin_place place = {0};
    bool allowed;
    assert_int_equal(kin_matcher_begin(j->m, &place), 0);
    assert_int_equal(kin_matcher_accept_bytes(j->m, &place, reply, strlen(reply), &allowed), 0);
    bool ends = allowed && kin_place_may_end(&place);
    kin_place_fini(&place);
    return ends;
}

static void expect(const kin_reply_rules *rules, bool expected, const char *const *replies) {
    judge j = open_judge(rules);
    for (; *replies; replies++) {
        if (allows(&j, *replies) != expected) fail_msg("%s: '%s'", expected ? "refused" : "allowed", *replies);
    }
    close_judge(&j);
}
#define expect(...) FROM_TEST(expect(__VA_ARGS__))

#define REPLIES(...) ((const char *const[]){__VA_ARGS__, NULL})

#define H(name, arguments) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static void a_required_call_is_one_of_an_offered_tool(void **state) {
    (void)state;
    kin_reply_rules rules = rules_of(KIN_CHAT_HERMES, true);
    expect(&rules, true,
           REPLIES(H("weather", "{\"city\": \"Rom\"}"), " " H("time", "{}"),
                   H("time", "{}") "\n" H("weather", "{\"city\": \"Rom\", \"days\": 3, \"unit\": \"F\"}"),
                   "<tool_call>{\"name\":\"time\",\"arguments\":{\"any\":[1]}}</tool_call>"));
    expect(&rules, false,
           REPLIES("", "No.", "No. " H("time", "{}"), H("weather", "{}"), H("nobody", "{}"),
                   H("weather", "{\"city\": \"Rom\", \"days\": 10}"), H("time", "{}") " Yes.", H("time", "[]"),
                   "<think>Hm</think>" H("time", "{}")));
    rules.parallel = false;
    expect(&rules, true, REPLIES(H("time", "{}")));
    expect(&rules, false, REPLIES(H("time", "{}") "\n" H("time", "{}")));
    rules.n_tools = 1; // tool_choice names it
    expect(&rules, false, REPLIES(H("time", "{}")));
}

static void with_auto_a_call_that_has_begun_is_valid(void **state) {
    (void)state;
    kin_reply_rules rules = rules_of(KIN_CHAT_HERMES, false);
    expect(&rules, true,
           REPLIES("", "No.", "a < b <tool <<tool_cal\n<tool_call", "\xc3\xa9\n\n", H("time", "{}"), "I look.\n<" H("time", "{}"),
                   "<think>Hm <tool_cal</think>", "{\"name\": \"x\"}"));
    expect(&rules, false,
           REPLIES("<tool_call>", "I <tool_call>x", "<<tool_call>", H("nobody", "{}"), H("time", "{}") " Yes.", "\xff",
                   "<think><tool_call></think>"));
}

static void reasoning_comes_first_where_it_may(void **state) {
    (void)state;
    kin_reply_rules rules = rules_of(KIN_CHAT_HERMES, true);
    rules.thinking = KIN_THINKING_MAY_BEGIN;
    expect(&rules, true,
           REPLIES(H("time", "{}"), "<think>\nHm </thin <tool_call> x\n</think>\n\n" H("time", "{}"),
                   "\n<think></think>" H("time", "{}")));
    expect(&rules, false, REPLIES("<think>Hm", "<think>Hm</think>", "<think>Hm</think>No.", "Hm</think>" H("time", "{}")));
    rules.thinking = KIN_THINKING_BEGUN;
    expect(&rules, true, REPLIES("\nHm <tool_call> x\n</think>\n\n" H("time", "{}")));
    expect(&rules, false, REPLIES("Hm", H("time", "{}")));
    rules.required = false;
    expect(&rules, true,
           REPLIES("Hm", "Hm <tool_call> x</think>Yes.", "Hm</think>\n\n" H("time", "{}"), "Hm</think>I look." H("time", "{}")));
    expect(&rules, false, REPLIES("Hm</think><tool_call>x", "Hm</think>" H("nobody", "{}")));
    rules.thinking = KIN_THINKING_MAY_BEGIN;
    expect(&rules, true, REPLIES("<think>Hm <tool_call> x</think>Yes.", "<think>Hm", "Yes.", H("time", "{}")));
}

#define CHANNEL_CALL "<|channel|>commentary to=functions.time json<|message|>{}"

static void a_thought_that_the_prompt_began_ends_before_a_channel(void **state) {
    (void)state;
    kin_reply_rules rules = rules_of(KIN_CHAT_HARMONY, true);
    rules.thinking = KIN_THINKING_BEGUN;
    expect(&rules, true, REPLIES("Hm<|end|><|start|>assistant" CHANNEL_CALL));
    expect(&rules, false, REPLIES("", "Hm", CHANNEL_CALL, " to=functions.time json<|message|>{}"));
    rules.required = false;
    expect(&rules, true, REPLIES("", "Hm", "<|end|><|start|>assistant<|channel|>final<|message|>Yes."));
    expect(&rules, false, REPLIES("Hm<|end|>", "Hm<|end|><|start|>assistant<|channel|>final"));
}

static void a_response_format_holds_of_the_text(void **state) {
    (void)state;
    kin_reply_rules rules = {.thinking = KIN_THINKING_MAY_BEGIN, .schema = str("{\"type\":\"integer\"}")};
    expect(&rules, true, REPLIES("5", "<think>five</think>\n5"));
    expect(&rules, false, REPLIES("five", "<think>five</think>five", "<think>five"));
    rules = rules_of(KIN_CHAT_HERMES, false);
    rules.schema = str("{\"type\":\"integer\"}");
    expect(&rules, true, REPLIES("5", H("time", "{}")));
    expect(&rules, false, REPLIES("five", "5" H("time", "{}")));
}

#define TEXT_CALL(parameters) "<tool_call>\n<function=add>\n" parameters "</function>\n</tool_call>"
#define VALUE(key, value) "<parameter=" key ">" value "</parameter>\n"

static void keywords_hold_of_strings_that_are_plain_text(void **state) {
    (void)state;
    kin_reply_tool tool = {.name = str("add"),
                           .parameters =
                               str("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":\"object\",\"properties\":{"
                                   "\"day\":{\"type\":\"string\",\"pattern\":\"^[a-z]+day$\",\"maxLength\":7},"
                                   "\"kind\":{\"enum\":[\"x\",5,null]},"
                                   "\"tag\":{\"type\":[\"object\",\"string\"],\"additionalProperties\":{\"type\":\"null\"}}},"
                                   "\"required\":[\"n\"],\"additionalProperties\":{\"type\":\"integer\"}}}}")};
    kin_reply_rules rules = {.format = kin_chat_format_known(KIN_CHAT_XML), .tools = &tool, .n_tools = 1, .required = true};
    expect(&rules, true,
           REPLIES(TEXT_CALL(VALUE("n", "7")), TEXT_CALL(VALUE("day", "\nmonday\n") VALUE("n", "7")),
                   TEXT_CALL(VALUE("kind", "\nx\n") VALUE("n", "7")), TEXT_CALL(VALUE("kind", "\nnull\n") VALUE("n", "7")),
                   TEXT_CALL(VALUE("tag", "\n{\"a\":null}\n") VALUE("n", "7")),
                   TEXT_CALL(VALUE("tag", "\nany \"text\"\n") VALUE("n", "7"))));
    expect(&rules, false,
           REPLIES(TEXT_CALL(""), TEXT_CALL(VALUE("n", "seven")), TEXT_CALL(VALUE("day", "\nmorning\n") VALUE("n", "7")),
                   TEXT_CALL(VALUE("day", "\nthursday\n") VALUE("n", "7")), TEXT_CALL(VALUE("kind", "\ny\n") VALUE("n", "7")),
                   TEXT_CALL(VALUE("kind", "\n5\n") VALUE("n", "7")), // read as the string "5"
                   TEXT_CALL(VALUE("tag", "\n{\"a\":1}\n") VALUE("n", "7"))));
}

static void limits_of_length_leave_text_between_marks_free(void **state) {
    (void)state;
    kin_reply_tool tool = {.name = str("add"),
                           .parameters =
                               str("{\"$ref\":\"#/$defs/a\",\"properties\":{\"code\":{\"type\":\"string\",\"minLength\":1,"
                                   "\"maxLength\":40},\"op\":{\"enum\":[\"<\",\"<=\"]}},\"required\":[\"n\",\"n\"],"
                                   "\"$defs\":{\"a\":{\"required\":[\"other\"]}}}")};
    kin_reply_rules rules = {.format = kin_chat_format_known(KIN_CHAT_XML), .tools = &tool, .n_tools = 1, .required = true};
    expect(&rules, true,
           REPLIES(TEXT_CALL(VALUE("code", "\nif (a < b)\n\tputs(\"\\n\");\n") VALUE("n", "7")),
                   TEXT_CALL(VALUE("op", "\n<=\n") VALUE("n", "7"))));
    expect(&rules, false,
           REPLIES(TEXT_CALL(VALUE("code", "\n\n") VALUE("n", "7")), TEXT_CALL(VALUE("n", "7") VALUE("n", "7")),
                   TEXT_CALL(VALUE("code", "\n01234567890123456789012345678901234567890\n") VALUE("n", "7"))));
}

#define L(name, parameters) "{\"name\": \"" name "\", \"parameters\": " parameters "}"

static void llama_calls_are_told_from_other_json(void **state) {
    (void)state;
    kin_reply_rules rules = rules_of(KIN_CHAT_LLAMA, true);
    expect(&rules, true,
           REPLIES(L("time", "{}"), L("time", "{}") "; " L("weather", "{\"city\": \"Rom\"}"), "<|python_tag|>" L("time", "{}")));
    expect(&rules, false, REPLIES("No.", L("nobody", "{}"), L("weather", "{}"), "<|python_tag|>print(1)"));
    rules.required = false;
    expect(&rules, true,
           REPLIES("", "No.", "\n No. {\"name\": \"time\"", "{", "{}", "{ 1", L("time", "{}"), " \n" L("time", "{}"),
                   L("nobody", "{}"), "{\"name\": 5}", "{\"city\": \"time\"}", "{\"name\": \"Bob\", \"age\": 5} and more",
                   "{\"name\": \"tim\"}"));
    expect(&rules, false,
           REPLIES(L("weather", "{}"), " {\"name\":\"time\"}", L("time", "{}") " Yes.", "{\"name\": \"time\", \"age\": 5}"));
}

static void mistral_calls_are_lists_or_have_labels(void **state) {
    (void)state;
    kin_reply_rules rules = rules_of(KIN_CHAT_MISTRAL, true);
    expect(&rules, true,
           REPLIES("[TOOL_CALLS][{\"name\": \"time\", \"arguments\": {}}]",
                   "[TOOL_CALLS] [{\"name\": \"time\", \"arguments\": {}, \"id\": \"abcdef123\"}, {\"name\": \"time\", "
                   "\"arguments\": {}}]"));
    expect(&rules, false, REPLIES("[TOOL_CALLS][]", "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {}}]", "No."));
    rules.required = false;
    expect(&rules, true, REPLIES("No [1] [TOOL_CALL", "Yes [[TOOL_CALLS][{\"name\": \"time\", \"arguments\": {}}]"));
    expect(&rules, false, REPLIES("No [TOOL_CALLS] no"));
    rules = rules_of(KIN_CHAT_MISTRAL_LABELS, true);
    expect(&rules, true,
           REPLIES("[TOOL_CALLS]time[ARGS]{}",
                   "[TOOL_CALLS]time[CALL_ID]abcdef123[ARGS]{}[TOOL_CALLS]weather[ARGS]{\"city\": \"Rom\"}"));
    expect(&rules, false, REPLIES("[TOOL_CALLS]time{}", "[TOOL_CALLS]nobody[ARGS]{}", "[TOOL_CALLS]weather[ARGS]{}"));
}

#define X(name, parameters) "<tool_call>\n<function=" name ">\n" parameters "</function>\n</tool_call>"
#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"

static void xml_parameters_are_those_of_the_schema(void **state) {
    (void)state;
    kin_reply_rules rules = rules_of(KIN_CHAT_XML, true);
    expect(&rules, true,
           REPLIES(X("weather", P("city", "Rom <b>\n</param")), X("weather", P("city", "") P("days", "3") P("unit", "C")),
                   X("time", ""), X("time", P("any", "x") P("thing", "y")) "\n" X("time", ""),
                   "<tool_call><function=time></function></tool_call>"));
    expect(&rules, false,
           REPLIES(X("weather", ""), X("weather", P("days", "3")), X("weather", P("city", "Rom") P("days", "soon")),
                   X("weather", P("city", "Rom") P("unit", "K")), X("nobody", ""), X("weather", P("city", "Rom") P("other", "x")),
                   "No."));
    rules.required = false;
    expect(&rules, true, REPLIES("a <func <function </function>", "I look. " X("time", "")));
    expect(&rules, false, REPLIES("<function=", "<tool_call>", X("nobody", "")));
}

#define S(text)                                                                                                                  \
    { text, sizeof text - 1 }

// A call in gemma 4's syntax; Q(text) is a string in it.
#define G(name, arguments) "<|tool_call>call:" name arguments "<tool_call|>"
#define Q(text) "<|\"|>" text "<|\"|>"
#define OR_NULL(keyword) "{\"anyOf\":[{\"type\":\"integer\"," keyword "},{\"type\":\"null\"}]}"

// Tools of the coding agent Cline, as its version 3.0.65 sends them, without descriptions and in the order of names.
static const kin_reply_tool cline_tools[] = {
    {.name = {"read_files", 10},
     .parameters = S("{\"additionalProperties\":false,\"properties\":{\"files\":{\"description\":\"d\",\"items\":{"
                     "\"additionalProperties\":false,\"description\":\"d\",\"properties\":{\"end_line\":" OR_NULL(
                         "\"exclusiveMinimum\":0,\"maximum\":9007199254740991") ",\"path\":{\"type\":\"string\"},"
                                                                                "\"start_line\":" OR_NULL(
                                                                                    "\"exclusiveMinimum\":0,\"maximum\":"
                                                                                    "9007199254740991") "},\"required\":"
                                                                                                        "[\"path\"],\"type\":"
                                                                                                        "\"object\"},\"type\":"
                                                                                                        "\"array\"}},"
                                                                                                        "\"required\":[\"files\"]"
                                                                                                        ",\"type\":\"object\"}")},
    {.name = {"editor", 6},
     .parameters = S("{\"additionalProperties\":false,\"properties\":{\"insert_line\":" OR_NULL(
         "\"minimum\":-9007199254740991,\"maximum\":9007199254740991") ",\"new_text\":{\"type\":\"string\"},"
                                                                       "\"old_text\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":"
                                                                       "\"null\"}],\"description\":\"d\"},\"path\":{"
                                                                       "\"description\":\"d\",\"minLength\":1,\"type\":"
                                                                       "\"string\"}},\"required\":[\"path\",\"new_text\"],"
                                                                       "\"type\":\"object\"}")},
    {.name = {"ask_question", 12},
     .parameters = S("{\"additionalProperties\":false,\"properties\":{\"options\":{\"items\":{\"minLength\":1,\"type\":"
                     "\"string\"},\"maxItems\":5,\"minItems\":2,\"type\":\"array\"},\"question\":{\"minLength\":1,\"type\":"
                     "\"string\"}},\"required\":[\"question\",\"options\"],\"type\":\"object\"}")},
    {.name = {"team_status", 11}, .parameters = S("{\"additionalProperties\":false,\"properties\":{},\"type\":\"object\"}")},
};

static void gemma_writes_the_calls_of_cline_in_its_own_quotes(void **state) {
    (void)state;
    kin_reply_rules rules = {
        .format = kin_chat_format_known(KIN_CHAT_GEMMA), .tools = cline_tools, .n_tools = 4, .required = true};
    expect(&rules, true,
           REPLIES(G("read_files", "{files:[{path:" Q("/a \"b\".txt") "}]}"), G("read_files", "{files:[]}"),
                   G("read_files", "{files:[{end_line:2,path:" Q("/a") ",start_line:1},{end_line:null,path:" Q("/b") "}]}"),
                   G("editor", "{new_text:" Q("the \"word\" is\n{a: [<b>,\\") ",path:" Q("/a") "}"),
                   G("editor", "{insert_line:-3,new_text:" Q("") ",old_text:" Q("<|\"") ",path:" Q("/a") "}"),
                   G("editor", "{new_text:" Q("") ",old_text:null,path:" Q("/a") "}"),
                   G("ask_question", "{options:[" Q("yes") "," Q("no") "],question:" Q("Go on?") "}"), G("team_status", "{}")));
    expect(&rules, false,
           REPLIES(G("read_files", "{}"), G("read_files", "{files:[{}]}"), G("read_files", "{files:[{\"path\":\"/a\"}]}"),
                   G("read_files", "{files:[{path:" Q("/a") ",end_line:1}]}"), // not in the order of names
                   G("read_files", "{files:[{end_line:0,path:" Q("/a") "}]}"),
                   G("read_files", "{files:[{path:" Q("/a") ",z:1}]}"), G("editor", "{new_text:" Q("a") ",path:" Q("") "}"),
                   G("editor", "{new_text:" Q("a") ",old_text:1,path:" Q("b") "}"),
                   G("ask_question", "{options:[" Q("yes") "],question:" Q("Go on?") "}"),
                   G("ask_question", "{options:[" Q("yes") "," Q("") "],question:" Q("Go on?") "}"), G("team_status", "{a:1}")));
}

static void each_keyword_holds_in_gemmas_own_quotes(void **state) {
    (void)state;
    const struct {
        const char *schema; // of the argument x
        const char *const *allowed, *const *refused;
    } cases[] = {
        {"{\"pattern\":\"^[a-z\\\"\\n]+$\",\"type\":\"string\"}", REPLIES(Q("a"), Q("a\"\nb")), REPLIES(Q(""), Q("A"), "\"a\"")},
        {"{\"pattern\":\"^(?!ab)\",\"maxLength\":3,\"type\":\"string\"}", REPLIES(Q("b<c"), Q("")), REPLIES(Q("abc"), Q("bcde"))},
        {"{\"format\":\"date\",\"type\":\"string\"}", REPLIES(Q("2026-11-27")), REPLIES(Q("2026-13-27"), Q(""))},
        {"{\"enum\":[\"a\",1,null,[\"b\"],{\"k\":\"v\",\"k 2\":\""
         "<|\\\"|>"
         "\"}]}",
         REPLIES(Q("a"), "1", "null", "[" Q("b") "]", "{k:" Q("v") ",\"k 2\":\"<|\\\"|>\"}"), REPLIES(Q("b"), "2", "[]", "a")},
        {"{\"const\":true}", REPLIES("true"), REPLIES("True", Q("true"))},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"array\",\"items\":{\"type\":\"string\"}}]}",
         REPLIES("7", "[" Q("a") "]"), REPLIES(Q("7"), "[7]")},
        {"{\"type\":\"object\",\"properties\":{\"a b\":{\"type\":\"number\"},\"c\":{}},\"required\":[\"a b\"]}",
         REPLIES("{\"a b\":1.5}", "{\"a b\":1,c:{d:" Q("e") "}}"), REPLIES("{a b:1}", "{}", "{\"a b\":1,d:1}")},
        {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":\"boolean\"}}",
         REPLIES("{}", "{ab:null}", "{ab:null,abc:true}", "{a:true}", "{z:false,b:true}"),
         REPLIES("{ab:true}", "{z:1}", "{:true}")},
        {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"on\",\"off\"]}}", REPLIES("{on:1}", "{}"), REPLIES("{up:1}")},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],\"items\":false}", REPLIES("[" Q("a") "]", "[]"),
         REPLIES("[1]", "[" Q("a") ",1]")},
        {"{\"type\":\"object\"}", REPLIES("{}", "{a:[{b:" Q("c") "},null]}"), REPLIES("[]", Q("a"))},
        {"{}", REPLIES("{a:1}", "[true]", Q("a"), "-0.5"), REPLIES("a", "")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char schema[400], reply[400];
        snprintf(schema, sizeof schema, "{\"properties\":{\"x\":%s},\"required\":[\"x\"]}", cases[i].schema);
        kin_reply_tool tool = {.name = {"f", 1}, .parameters = str(schema), .strict = true};
        kin_reply_rules rules = {.format = kin_chat_format_known(KIN_CHAT_GEMMA), .tools = &tool, .n_tools = 1, .required = true};
        judge j = open_judge(&rules);
        for (int is_refused = 0; is_refused < 2; is_refused++) {
            for (const char *const *value = is_refused ? cases[i].refused : cases[i].allowed; *value; value++) {
                snprintf(reply, sizeof reply, G("f", "{x:%s}"), *value);
                if (allows(&j, reply) == is_refused) fail_msg("%s: %s %s", schema, is_refused ? "allowed" : "refused", reply);
            }
        }
        close_judge(&j);
    }
}

static void a_pattern_of_plain_text_may_have_quotes_and_line_ends(void **state) {
    (void)state;
    kin_reply_tool tool = {.name = {"f", 1},
                           .parameters =
                               str("{\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^\\\"[a-z<\\n]+\\\"$\"}}}"),
                           .strict = true};
    kin_reply_rules rules = {.format = kin_chat_format_known(KIN_CHAT_XML), .tools = &tool, .n_tools = 1, .required = true};
    expect(&rules, true, REPLIES(X("f", P("a", "\"a<\nb\"")), X("f", "")));
    expect(&rules, false, REPLIES(X("f", P("a", "a")), X("f", P("a", "\"a</parameter>\""))));
}

static void a_format_and_a_pattern_hold_together_in_every_syntax(void **state) {
    (void)state;
    static const struct {
        kin_chat_known format;
        const char *call; // %s: the value
    } all[] = {
        {KIN_CHAT_HERMES, H("f", "{\"x\": \"%s\"}")},
        {KIN_CHAT_XML, X("f", P("x", "%s"))},
        {KIN_CHAT_GLM, "<tool_call>f<arg_key>x</arg_key><arg_value>%s</arg_value></tool_call>"},
        {KIN_CHAT_MINIMAX, "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"x\">%s</parameter>\n</invoke>\n"
                           "</minimax:tool_call>"},
        {KIN_CHAT_GEMMA, G("f", "{x:" Q("%s") "}")},
        {KIN_CHAT_LFM, "<|tool_call_start|>[f(x=\"%s\")]<|tool_call_end|>"},
        {KIN_CHAT_HARMONY, "<|channel|>commentary to=functions.f json<|message|>{\"x\":\"%s\"}"},
    };
    static const struct {
        const char *value;
        bool is_valid;
    } values[] = {{"2024-12-31", true}, {"2024-02-28", true}, {"2024-02-30", false}, {"1924-12-31", false}, {"20", false},
                  {"2024-1-1", false},  {"", false}};
    kin_reply_tool tool = {.name = {"f", 1},
                           .parameters = str("{\"properties\":{\"x\":{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^20"
                                             "[0-9-]+$\",\"maxLength\":20}},\"required\":[\"x\"]}"),
                           .strict = true};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        kin_reply_rules rules = {.format = kin_chat_format_known(all[i].format), .tools = &tool, .n_tools = 1, .required = true};
        judge j = open_judge(&rules);
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            kin_text_buffer reply = {0};
            const char *at = strstr(all[i].call, "%s");
            kin_text_print(&reply, "%.*s%s%s", (int)(at - all[i].call), all[i].call, values[k].value, at + 2);
            if (allows(&j, reply.at) != values[k].is_valid) fail_msg("%s: %d", reply.at, !values[k].is_valid);
            kin_text_fini(&reply);
        }
        close_judge(&j);
    }
}

#define PY(argument) "<|tool_call_start|>[f(x=" argument ")]<|tool_call_end|>"

static void keywords_hold_of_strings_as_in_python_without_escapes(void **state) {
    (void)state;
    kin_chat_format raw = *kin_chat_format_known(KIN_CHAT_LFM);
    kin_reply_tool tool = {.name = {"f", 1},
                           .parameters = str("{\"properties\":{\"x\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":2}}}"),
                           .strict = true};
    kin_reply_rules rules = {.format = &raw, .tools = &tool, .n_tools = 1, .required = true};
    raw.is_raw = true;
    expect(&rules, true, REPLIES(PY("'ab'"), PY("'\\n'"), PY("'\"\\'")));
    expect(&rules, false, REPLIES(PY("'a'"), PY("'abc'"), PY("\"\\n\\n\""), PY("'\\n\\n'")));
}

static void commas_and_brackets_between_calls_are_not_names(void **state) {
    (void)state;
    static const char *const names[] = {",f", "f,g", "]f"};
    for (int i = 0; i < 3; i++) {
        kin_reply_tool tool = {.name = {names[i], strlen(names[i])}};
        kin_reply_rules rules = {.format = kin_chat_format_known(KIN_CHAT_LFM), .tools = &tool, .n_tools = 1, .required = true};
        kin_text_buffer gbnf = {0};
        kin_err err;
        assert_int_equal(kin_reply_rules_to_gbnf(&rules, NULL, &gbnf, &err), KIN_FAIL);
        assert_non_null(strstr(err.text, "does not support this name"));
        kin_text_fini(&gbnf);
    }
}

static void what_schemas_cannot_say_is_any_object_unless_strict(void **state) {
    (void)state;
    kin_reply_tool tool = {.name = {"f", 1}, .parameters = str("{\"properties\":{\"a\":{\"not\":{\"const\":1}}}}")};
    kin_reply_rules rules = {.format = kin_chat_format_known(KIN_CHAT_HERMES), .tools = &tool, .n_tools = 1, .required = true};
    kin_text_buffer gbnf = {0};
    kin_err err;
    expect(&rules, true, REPLIES(H("f", "{}"), H("f", "{\"a\": 1}")));
    expect(&rules, false, REPLIES(H("f", "1"), H("f", "{\"b\": 1}")));
    tool.strict = true;
    assert_int_equal(kin_reply_rules_to_gbnf(&rules, NULL, &gbnf, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "tool f: "));
    assert_non_null(strstr(err.text, "not"));
    kin_text_fini(&gbnf);
    tool.parameters = str("{\"type\":\"array\"}");
    assert_int_equal(kin_reply_rules_to_gbnf(&rules, NULL, &gbnf, &err), KIN_FAIL);
    kin_text_fini(&gbnf);
    tool.parameters =
        str(" {\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}"); // an object without "type": "object"
    expect(&rules, true, REPLIES(H("f", "{\"a\": 1}")));
    expect(&rules, false, REPLIES(H("f", "1"), H("f", "{}")));
}

static void a_keyword_that_is_not_supported_loosens_its_own_schema_only(void **state) {
    (void)state;
    static const char *const loosened[] = {"\"if\":{}",
                                           "\"contains\":{}",
                                           "\"uniqueItems\":true",
                                           "\"madeUp\":1",
                                           "\"dependentRequired\":{}",
                                           "\"minProperties\":1",
                                           "\"$ref\":\"other.json\"",
                                           "\"pattern\":\"(a)\\\\1\"",
                                           "\"pattern\":\"(?<=a)\",\"maxLength\":3",
                                           "\"oneOf\":[{},{}]",
                                           "\"patternProperties\":{\"^x\":{}},\"additionalProperties\":false"};
    for (size_t i = 0; i < sizeof loosened / sizeof *loosened; i++) {
        char schema[300];
        snprintf(schema, sizeof schema, "{\"properties\":{\"id\":{\"type\":\"integer\"},\"b\":{%s}},\"required\":[\"id\"]}",
                 loosened[i]);
        kin_reply_tool tool = {.name = {"f", 1}, .parameters = str(schema)};
        kin_reply_rules rules = {
            .format = kin_chat_format_known(KIN_CHAT_HERMES), .tools = &tool, .n_tools = 1, .required = true};
        kin_text_buffer gbnf = {0};
        kin_err err;
        expect(&rules, true,
               REPLIES(H("f", "{\"id\": 1}"), H("f", "{\"id\": 1, \"b\": {\"xa\": 1}}"), H("f", "{\"id\": 1, \"b\": [1, 1]}"),
                       H("f", "{\"id\": 1, \"b\": \"a\"}")));
        expect(&rules, false, REPLIES(H("f", "{\"id\": \"Bo\"}"), H("f", "{}"), H("f", "{\"b\": 1}")));
        tool.strict = true;
        assert_int_equal(kin_reply_rules_to_gbnf(&rules, NULL, &gbnf, &err), KIN_FAIL);
        kin_text_fini(&gbnf);
    }
}

static void many_tools_have_room_in_every_format(void **state) {
    (void)state;
    static kin_reply_tool many[KIN_REPLY_MAX_TOOLS + 1];
    static char names[KIN_REPLY_MAX_TOOLS + 1][16];
    kin_text_buffer schema = {0};
    kin_text_print(&schema, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 12; i++)
        kin_text_print(&schema, "%s\"p%d\":{\"type\":\"%s\"}", i > 0 ? "," : "", i, i % 2 ? "string" : "integer");
    kin_text_print(&schema, "}}");
    for (int i = 0; i <= KIN_REPLY_MAX_TOOLS; i++) {
        snprintf(names[i], sizeof names[i], "tool_%d", i);
        many[i] = (kin_reply_tool){.name = str(names[i]), .parameters = {schema.at, schema.len}};
    }
    for (int format = KIN_CHAT_HERMES; format < KIN_CHAT_N_KNOWN; format++) {
        kin_reply_rules rules = {
            .format = kin_chat_format_known((kin_chat_known)format), .tools = many, .n_tools = KIN_REPLY_MAX_TOOLS};
        kin_grammar *grammar;
        kin_err err = {""};
        rules.thinking = KIN_THINKING_MAY_BEGIN;
        if (kin_reply_grammar_new(&grammar, &rules, NULL, &err) != 0) fail_msg("format %d: %s", format, err.text);
        kin_grammar_free(grammar);
        rules.n_tools++;
        assert_int_equal(kin_reply_grammar_new(&grammar, &rules, NULL, &err), KIN_FAIL);
        assert_non_null(strstr(err.text, "the limit is 512"));
    }
    kin_text_fini(&schema);
}

static void what_cannot_be_is_refused_in_a_sentence(void **state) {
    (void)state;
    kin_reply_tool tool = {.name = {"a b", 3}};
    kin_reply_rules rules = {.format = kin_chat_format_known(KIN_CHAT_MISTRAL_LABELS), .tools = &tool, .n_tools = 1};
    kin_grammar *grammar;
    kin_err err;
    assert_int_equal(kin_reply_grammar_new(&grammar, &rules, NULL, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "tool a b: "));
    rules.n_tools = 0;
    rules.required = true;
    assert_int_equal(kin_reply_grammar_new(&grammar, &rules, NULL, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "there are no tools"));
    rules = (kin_reply_rules){.schema = str("{\"not\":{}}")};
    assert_int_equal(kin_reply_grammar_new(&grammar, &rules, NULL, &err), KIN_FAIL);
    assert_null(grammar);
}

// ---- control tokens, and round trips through grammar and parser

enum { TOOL_CALLS = SMALL_BPE_N, ARGS, CALL_ID, TAG, END_TAG, THINK, END_THINK, PYTHON, N_TOKENS };

// Returns a vocabulary of bytes, some words, and the markers; control: as control tokens.
static kin_vocab *marker_vocab(bool control) {
    static const char *const markers[] = {"[TOOL_CALLS]", "[ARGS]",  "[CALL_ID]", "<tool_call>",
                                          "</tool_call>", "<think>", "</think>",  "<|python_tag|>"};
    static kin_str texts[N_TOKENS];
    static int32_t types[N_TOKENS];
    kin_vocab_spec spec = small_bpe_spec("gpt-2");
    memcpy(texts, spec.tokens, SMALL_BPE_N * sizeof *texts);
    memcpy(types, spec.types, SMALL_BPE_N * sizeof *types);
    for (int i = SMALL_BPE_N; i < N_TOKENS; i++) {
        texts[i] = str(markers[i - SMALL_BPE_N]);
        types[i] = control ? KIN_TOKEN_CONTROL : KIN_TOKEN_USER_DEFINED;
    }
    spec.tokens = texts;
    spec.types = types;
    spec.n_tokens = N_TOKENS;
    return small_vocab(spec);
}

// Writes random allowed tokens. The parser must read them as calls of offered tools with JSON arguments. Returns true if the
// reply ended.
static bool walk(kin_constraint *c, const kin_vocab *vocab, const kin_reply_options *options, kin_rng *rng, int *n_calls,
                 int *n_texts) {
    kin_reply_parser *p;
    const kin_reply_event *events;
    kin_text_buffer arguments = {0};
    const kin_chat_format *f = options->format;
    const char *closing = f->quote[0] ? f->quote : f->value_end[0] ? f->value_end : "</parameter>";
    int n, length = 0, n_open = 0, n_spelled = 0;
    int32_t id = 0;
    *n_calls = *n_texts = 0;
    assert_int_equal(kin_reply_parser_new(&p, options, NULL), 0);
    assert_int_equal(kin_constraint_reset(c, NULL), 0);
    for (bool ended = false; !ended;) {
        const uint64_t *set = kin_constraint_mask(c);
        enum { MAX_CHOICES = 2048 };
        int32_t choices[MAX_CHOICES], n_choices = 0;
        for (int32_t i = 0; i < N_TOKENS; i++) {
            bool is_marker = i >= SMALL_BPE_N, is_end = kin_vocab_is_eog(vocab, i);
            bool is_letter = i >= ' ' && i < 0x7f;
            if (!kin_token_set_has(set, i)) continue;
            bool is_closing = i == '"' || i == '}' || i == ']' || i == '<';
            int weight = is_end ? 20 : is_marker ? 8 : is_closing ? (length > 100 ? 60 : 6) : is_letter;
            for (int k = 0; k < weight && n_choices < MAX_CHOICES; k++) choices[n_choices++] = i;
        }
        if (n_choices == 0) { // only a continuation of a non-ASCII character or white space is allowed
            for (int32_t i = 0; i < N_TOKENS; i++) {
                if (kin_token_set_has(set, i)) choices[n_choices++] = i;
            }
        }
        assert_true(n_choices > 0);
        id = choices[kin_rng_u64(rng) % (uint64_t)n_choices];
        int32_t next = (uint8_t)closing[n_spelled]; // spelled on purpose, because random tokens hardly ever write it
        if (next && length > 100 && kin_token_set_has(set, next) && kin_rng_u64(rng) % 16 > 0) id = next;
        n_spelled = id == next && next ? n_spelled + 1 : id == (uint8_t)closing[0];
        assert_int_equal(kin_constraint_accept(c, id, NULL), 0);
        ended = kin_vocab_is_eog(vocab, id) || ++length > 1500;
        kin_str piece = kin_vocab_piece(vocab, id);
        int rc =
            ended ? kin_reply_parser_flush(p, false, &events, &n) : kin_reply_parser_push(p, piece.at, piece.len, &events, &n);
        assert_int_equal(rc, 0);
        for (int i = 0; i < n; i++) {
            kin_json json;
            *n_texts += events[i].kind == KIN_REPLY_TEXT;
            if (events[i].kind == KIN_REPLY_TOOL_BEGIN) {
                ++*n_calls;
                n_open++;
                arguments.len = 0;
            }
            if (events[i].kind == KIN_REPLY_TOOL_ARGUMENTS) kin_text_put(&arguments, events[i].text.at, events[i].text.len);
            if (events[i].kind != KIN_REPLY_TOOL_END) continue;
            n_open--;
            assert_int_equal(kin_json_parse(&json, arguments.at, arguments.len, NULL), 0);
            kin_json_fini(&json);
        }
    }
    bool is_whole = kin_vocab_is_eog(vocab, id);
    if (is_whole) assert_int_equal(n_open, 0);
    kin_text_fini(&arguments);
    kin_reply_parser_free(p);
    return is_whole;
}
#define walk(...) FROM_TEST(walk(__VA_ARGS__))

static void what_the_grammar_allows_the_parser_reads(void **state) {
    (void)state;
    kin_rng rng;
    kin_rng_seed(&rng, 16);
    enum { N_FORMATS = KIN_CHAT_N_KNOWN - 1 };
    for (int round = 0; round < 8 * N_FORMATS; round++) {
        kin_chat_known format = (kin_chat_known)(KIN_CHAT_HERMES + round % N_FORMATS);
        bool control = round / N_FORMATS % 2, required = round / N_FORMATS / 2 % 2, thinks = round / N_FORMATS / 4 % 2;
        kin_vocab *vocab = marker_vocab(control);
        kin_reply_rules rules = rules_of(format, required);
        rules.thinking = thinks ? KIN_THINKING_MAY_BEGIN : KIN_THINKING_NONE;
        kin_reply_options options = {.format = kin_chat_format_known(format), .tools = tools, .n_tools = 2, .reasoning = thinks};
        kin_grammar *grammar;
        kin_token_trie *trie;
        kin_matcher *m;
        kin_constraint *c;
        kin_err err = {""};
        kin_reply_grammar_new(&grammar, &rules, vocab, &err);
        assert_string_equal(err.text, "");
        assert_int_equal(kin_token_trie_new(&trie, vocab, NULL), 0);
        assert_int_equal(kin_matcher_new(&m, grammar, trie, NULL), 0);
        assert_int_equal(kin_constraint_new(&c, m, str(""), NULL), 0);
        int n_whole = 0, n_with_calls = 0;
        for (int i = 0; i < 10; i++) {
            int n_calls, n_texts;
            bool whole = walk(c, vocab, &options, &rng, &n_calls, &n_texts);
            if (whole && required && (n_calls == 0 || n_texts > 0))
                fail_msg("format %d control %d: %d calls, %d texts", format, control, n_calls, n_texts);
            n_whole += whole;
            n_with_calls += n_calls > 0;
        }
        if (required && !thinks && n_whole == 0) fail_msg("format %d control %d: no walk came to an end", format, control);
        if (required && n_whole > 0) assert_true(n_with_calls >= n_whole);
        kin_constraint_free(c);
        kin_matcher_free(m);
        kin_token_trie_free(trie);
        kin_grammar_free(grammar);
        kin_vocab_free(vocab);
    }
}

static void a_control_token_begins_a_call_and_its_letters_do_not(void **state) {
    (void)state;
    kin_vocab *vocab = marker_vocab(true);
    kin_reply_rules rules = rules_of(KIN_CHAT_MISTRAL_LABELS, true);
    kin_grammar *grammar;
    kin_token_trie *trie;
    kin_matcher *m;
    kin_constraint *c;
    assert_int_equal(kin_reply_grammar_new(&grammar, &rules, vocab, NULL), 0);
    assert_int_equal(kin_token_trie_new(&trie, vocab, NULL), 0);
    assert_int_equal(kin_matcher_new(&m, grammar, trie, NULL), 0);
    assert_int_equal(kin_constraint_new(&c, m, str(""), NULL), 0);
    assert_true(kin_constraint_allows(c, TOOL_CALLS));
    assert_false(kin_constraint_allows(c, '['));
    assert_int_equal(kin_constraint_accept(c, TOOL_CALLS, NULL), 0);
    for (const char *name = "time"; *name; name++) assert_int_equal(kin_constraint_accept(c, *name, NULL), 0);
    assert_true(kin_constraint_allows(c, ARGS) && kin_constraint_allows(c, CALL_ID));
    assert_false(kin_constraint_allows(c, '{') || kin_constraint_allows(c, TOOL_CALLS));
    kin_constraint_free(c);
    kin_matcher_free(m);
    kin_token_trie_free(trie);
    kin_grammar_free(grammar);
    kin_vocab_free(vocab);
}

// ---- the generic form

static void generic_calls_are_written_as_they_are_read(void **state) {
    (void)state;
    const kin_str offered[] = {str("{\"name\":\"time\"}"), str("{\"name\":\"weather\"}")};
    kin_text_buffer text = {0};
    kin_reply_rules rules = rules_of(KIN_CHAT_HERMES, true);
    kin_tool_format_put_call(str("weather"), str("{\"city\": \"Rom\"}"), &text);
    expect(&rules, true, REPLIES(text.at));
    kin_tool_format_put_call(str("time"), str("{}"), &text);
    expect(&rules, true, REPLIES(text.at));
    assert_non_null(strstr(text.at, "</tool_call>\n<tool_call>"));
    text.len = 0;
    kin_tool_format_put_instructions(offered, 2, &text);
    assert_non_null(strstr(text.at, "<tools>\n{\"name\":\"time\"}\n{\"name\":\"weather\"}\n</tools>"));
    assert_non_null(strstr(text.at, "<tool_call>\n{\"name\": <function-name>"));
    text.len = 0;
    kin_tool_format_put_result(str("20 C"), &text);
    assert_string_equal(text.at, "<tool_response>\n20 C\n</tool_response>");
    kin_text_fini(&text);
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(real_templates_are_told_apart),
        cmocka_unit_test(a_template_that_tells_no_tools_gets_the_generic_form),
        cmocka_unit_test(what_a_template_renders_says_more_than_a_source),
        cmocka_unit_test(ids_of_calls_are_made_to_fit),
        cmocka_unit_test(a_prompt_tells_whether_reasoning_has_begun),
        cmocka_unit_test(a_required_call_is_one_of_an_offered_tool),
        cmocka_unit_test(keywords_hold_of_strings_that_are_plain_text),
        cmocka_unit_test(limits_of_length_leave_text_between_marks_free),
        cmocka_unit_test(with_auto_a_call_that_has_begun_is_valid),
        cmocka_unit_test(reasoning_comes_first_where_it_may),
        cmocka_unit_test(a_thought_that_the_prompt_began_ends_before_a_channel),
        cmocka_unit_test(a_response_format_holds_of_the_text),
        cmocka_unit_test(llama_calls_are_told_from_other_json),
        cmocka_unit_test(mistral_calls_are_lists_or_have_labels),
        cmocka_unit_test(xml_parameters_are_those_of_the_schema),
        cmocka_unit_test(gemma_writes_the_calls_of_cline_in_its_own_quotes),
        cmocka_unit_test(each_keyword_holds_in_gemmas_own_quotes),
        cmocka_unit_test(a_pattern_of_plain_text_may_have_quotes_and_line_ends),
        cmocka_unit_test(a_format_and_a_pattern_hold_together_in_every_syntax),
        cmocka_unit_test(keywords_hold_of_strings_as_in_python_without_escapes),
        cmocka_unit_test(what_schemas_cannot_say_is_any_object_unless_strict),
        cmocka_unit_test(a_keyword_that_is_not_supported_loosens_its_own_schema_only),
        cmocka_unit_test(many_tools_have_room_in_every_format),
        cmocka_unit_test(what_cannot_be_is_refused_in_a_sentence),
        cmocka_unit_test(commas_and_brackets_between_calls_are_not_names),
        cmocka_unit_test(what_the_grammar_allows_the_parser_reads),
        cmocka_unit_test(a_control_token_begins_a_call_and_its_letters_do_not),
        cmocka_unit_test(generic_calls_are_written_as_they_are_read),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
