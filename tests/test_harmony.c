// gpt-oss from request to reply and back: what the model wrote is in the next prompt byte for byte, so the prefix cache finds it.
//
// The template here is a short one in the form of the published one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "pure/chat/reply_parser.h"
#include "serve/prompt.h"
#include "testkit/gguf_write.h"
#include "testkit/small_vocab.h"
#include "tests/place.h"

// The type of a parameter in TypeScript.
#define TYPE_MACRO                                                                                                               \
    "{% macro type(s) %}{% if s.type == 'array' %}{{ type(s['items']) + '[]' if s['items'] else 'any[]' }}{% elif s.type == "    \
    "'string' %}{% if s.enum %}{{ '\"' + s.enum | join('\" | \"') + '\"' }}{% else %}string{% endif %}{% elif s.type in "        \
    "['number', 'integer'] %}number{% elif s.type == 'object' and s.properties %}{{ '{' }}\n{% for k, v in "                     \
    "s.properties.items() %}{{ k }}{{ '?' if k not in (s.required or []) }}: {{ type(v) }}{{ ', ' if not loop.last }}{% endfor " \
    "%}{{ '}' }}{% else %}{{ s.type }}{% endif %}{% endmacro %}"
#define TOOLS_MACRO                                                                                                              \
    "{% macro namespace_of(tools) %}namespace functions {\n\n{% for t in tools %}{% set t = t.function %}// {{ t.description "   \
    "}}\ntype {{ t.name }} = (_: {{ '{' }}\n{% for k, v in t.parameters.properties.items() %}{{ k }}{{ '?' if k not in "         \
    "(t.parameters.required or []) }}: {{ type(v) }},\n{% endfor %}{{ '}' }}) => any;\n\n{% endfor %}} // namespace "            \
    "functions{% endmacro %}"
#define SYSTEM                                                                                                                   \
    "<|start|>system<|message|>Reasoning: {{ reasoning_effort | default('medium') }}\n{% if builtin_tools %}{% for b in "        \
    "builtin_tools %}namespace {{ b }}\n{% endfor %}{% endif %}# Valid channels: analysis, commentary, final.{% if tools "       \
    "%}\nCalls to these tools must go to the commentary channel: 'functions'.{% endif %}<|end|>{% if tools "                     \
    "%}<|start|>developer<|message|># Tools\n\n{{ namespace_of(tools) }}<|end|>{% endif %}"
#define CALL                                                                                                                     \
    "{% set later = namespace(found=false) %}{% for f in messages[loop.index:] %}{% if f.role == 'assistant' and 'tool_calls' "  \
    "not in f %}{% set later.found = true %}{% endif %}{% endfor %}{% set c = m.tool_calls[0].function %}{% if m.content and "   \
    "m.thinking %}{{ raise_exception('content and thinking') }}{% elif m.thinking and not later.found "                          \
    "%}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}<|start|>assistant to=functions.{{ "    \
    "c.name }}<|channel|>commentary json<|message|>{{ c.arguments | tojson }}<|call|>{% set last.name = c.name %}"
#define MESSAGES                                                                                                                 \
    "{% set last = namespace(name=none) %}{% for m in messages %}{% if m.role == 'assistant' %}{% if 'tool_calls' in m %}" CALL  \
    "{% else %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>{% endif %}{% elif m.role == 'tool' %}{% if "  \
    "last.name is none %}{{ raise_exception('no call') }}{% endif %}<|start|>functions.{{ last.name }} "                         \
    "to=assistant<|channel|>commentary<|message|>{{ m.content | tojson }}<|end|>{% else %}<|start|>{{ m.role }}<|message|>{{ "   \
    "m.content }}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"

static const char source[] = TYPE_MACRO TOOLS_MACRO SYSTEM MESSAGES;

static const char offered[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"find\",\"description\":\"Finds "
    "things.\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"where\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"near\":{\"type\":\"array\","
    "\"items\":{\"type\":\"object\",\"properties\":{\"km\":{\"type\":\"number\"}},\"required\":[\"km\"]}}},\"required\":["
    "\"city\"]},"
    "\"kind\":{\"type\":\"string\",\"enum\":[\"a\",\"b\"]}},\"required\":[\"where\"]}}}]";

#define ARGUMENTS                                                                                                                \
    "{\"where\": {\"city\": \"K\xc3\xb6ln \\\"Dom\\\"\\n<|call|>\", \"near\": [{\"km\": 2.5}, {\"km\": -1}]}, \"kind\": \"b\"}"
#define THOUGHT "I look it up.\nThen I say it."
#define CALLED                                                                                                                   \
    "<|channel|>analysis<|message|>" THOUGHT "<|end|><|start|>assistant to=functions.find<|channel|>commentary "                 \
    "json<|message|>" ARGUMENTS
#define ANSWERED "<|channel|>analysis<|message|>Found.<|end|><|start|>assistant<|channel|>final<|message|>It is there."

typedef struct model {
    kin_session session;
    kin_prompter *prompter;
    uint8_t *bytes;
} model;

static int set_up(void **state) {
    model *m = calloc(1, sizeof *m);
    kin_vocab_spec spec = small_spm_spec();
    kin_gguf_writer *w = kin_gguf_writer_new();
    size_t size;
    kin_err err = {""};
    kin_gguf_writer_put_str(w, "general.architecture", "gpt-oss");
    kin_gguf_writer_put_str(w, "tokenizer.chat_template", source);
    kin_gguf_writer_save_bytes(w, &m->bytes, &size);
    kin_gguf_writer_free(w);
    int rc = kin_gguf_open_bytes(&m->session.model.gguf, "m.gguf", m->bytes, size, &err);
    if (rc == 0) rc = kin_vocab_new(&m->session.vocab, &spec, &err);
    if (rc == 0) rc = kin_prompter_open(&m->prompter, &m->session, NULL, &err);
    *state = m;
    return rc;
}

static int tear_down(void **state) {
    model *m = *state;
    kin_prompter_close(m->prompter);
    kin_vocab_free(m->session.vocab);
    kin_gguf_close(m->session.model.gguf);
    free(m->bytes);
    free(m);
    return 0;
}

// The prompt for the messages, as text. kwargs: chat_template_kwargs, or NULL.
static char *prompt_of(const model *m, json_t *messages, const char *kwargs) {
    json_t *tools = json_loads(offered, 0, NULL), *more = kwargs ? json_loads(kwargs, 0, NULL) : NULL;
    kin_request r = {.is_chat = true,
                     .add_generation_prompt = true,
                     .thinking = KIN_UNSET,
                     .messages = messages,
                     .tools = tools,
                     .template_kwargs = more};
    kin_prompt prompt = {0};
    kin_api_error err = {0};
    if (kin_prompter_render(m->prompter, &r, &prompt, &err) != 0) fail_msg("%s", err.message);
    kin_text_put(&prompt.text, "", 1);
    char *text = strdup(prompt.text.at);
    kin_prompt_fini(&prompt);
    json_decref(tools);
    json_decref(more);
    return text;
}
#define prompt_of(...) FROM_TEST(prompt_of(__VA_ARGS__))

// Appends the message that a client makes of the model's reply.
static void append_reply(const model *m, json_t *messages, const char *reply) {
    static const kin_reply_tool tool = {.name = {"find", 4}};
    const kin_reply_options options = {
        .format = &kin_prompter_format(m->prompter)->chat, .tools = &tool, .n_tools = 1, .reasoning = true};
    kin_text_buffer parts[KIN_REPLY_TOOL_END + 1] = {0};
    const kin_reply_event *events;
    kin_reply_parser *p;
    int n, n_calls = 0;
    assert_int_equal(kin_reply_parser_new(&p, &options, NULL), 0);
    for (size_t i = 0; i <= strlen(reply); i++) {
        int rc = reply[i] ? kin_reply_parser_push(p, reply + i, 1, &events, &n) : kin_reply_parser_flush(p, false, &events, &n);
        assert_int_equal(rc, 0);
        for (int k = 0; k < n; k++) {
            kin_text_put(&parts[events[k].kind], events[k].text.at, events[k].text.len);
            n_calls += events[k].kind == KIN_REPLY_TOOL_BEGIN;
        }
    }
    kin_reply_parser_free(p);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) kin_text_put(&parts[i], "", 1);
    json_t *message = json_pack("{s:s,s:s,s:s}", "role", "assistant", "content", parts[KIN_REPLY_TEXT].at, "reasoning_content",
                                parts[KIN_REPLY_REASONING].at);
    if (n_calls > 0)
        json_object_set_new(message, "tool_calls",
                            json_pack("[{s:s,s:s,s:{s:s,s:s}}]", "id", "c1", "type", "function", "function", "name", "find",
                                      "arguments", parts[KIN_REPLY_TOOL_ARGUMENTS].at));
    json_array_append_new(messages, message);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) kin_text_fini(&parts[i]);
}
#define append_reply(...) FROM_TEST(append_reply(__VA_ARGS__))

static json_t *question(void) {
    return json_pack("[{s:s,s:s}]", "role", "user", "content", "Where?");
}

static void what_the_model_wrote_is_in_the_next_prompt(void **state) {
    const model *m = *state;
    assert_int_equal(kin_prompter_format(m->prompter)->chat.syntax, KIN_CALL_CHANNELS);
    assert_true(kin_prompter_format(m->prompter)->is_confirmed);
    json_t *messages = question();
    char *first = prompt_of(m, messages, NULL);
    append_reply(m, messages, CALLED);
    json_array_append_new(messages, json_pack("{s:s,s:s,s:s}", "role", "tool", "tool_call_id", "c1", "content", "\"x\""));
    char *second = prompt_of(m, messages, NULL);
    size_t n = strlen(first);
    assert_memory_equal(second, first, n);
    assert_string_equal(second + n, CALLED "<|call|><|start|>functions.find to=assistant<|channel|>commentary<|message|>"
                                           "\"\\\"x\\\"\"<|end|><|start|>assistant");
    free(first);
    free(second);
    json_decref(messages);
}

static void reasoning_is_dropped_after_the_answer(void **state) {
    const model *m = *state;
    json_t *messages = question();
    append_reply(m, messages, CALLED);
    json_array_append_new(messages, json_pack("{s:s,s:s,s:s}", "role", "tool", "tool_call_id", "c1", "content", "x"));
    append_reply(m, messages, ANSWERED);
    json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "user", "content", "Thanks."));
    char *prompt = prompt_of(m, messages, NULL);
    assert_null(strstr(prompt, "<|channel|>analysis"));
    assert_null(strstr(prompt, "Found."));
    assert_non_null(strstr(prompt, "to=functions.find<|channel|>commentary json<|message|>" ARGUMENTS "<|call|>"));
    assert_non_null(strstr(prompt, "<|start|>assistant<|channel|>final<|message|>It is there.<|end|><|start|>user"));
    free(prompt);
    json_decref(messages);
}

static void nested_parameters_are_told_as_types(void **state) {
    json_t *messages = question();
    char *prompt = prompt_of(*state, messages, NULL);
    assert_non_null(strstr(prompt,
                           "type find = (_: {\nwhere: {\ncity: string, near?: {\nkm: number}[]},\nkind?: \"a\" | \"b\",\n}) "
                           "=> any;\n\n} // namespace functions<|end|>"));
    free(prompt);
    json_decref(messages);
}

static void builtin_tools_and_the_effort_come_from_the_request(void **state) {
    json_t *messages = question();
    char *prompt = prompt_of(*state, messages, "{\"builtin_tools\": [\"browser\", \"python\"], \"reasoning_effort\": \"high\"}");
    assert_non_null(strstr(prompt, "Reasoning: high\nnamespace browser\nnamespace python\n# Valid channels"));
    free(prompt);
    json_decref(messages);
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(what_the_model_wrote_is_in_the_next_prompt),
        cmocka_unit_test(reasoning_is_dropped_after_the_answer),
        cmocka_unit_test(nested_parameters_are_told_as_types),
        cmocka_unit_test(builtin_tools_and_the_effort_come_from_the_request),
    };
    return cmocka_run_group_tests(all, set_up, tear_down);
}
