// Finds the format of calls of any chat template, and parses any reply with it. A format that is confirmed has a grammar, and the
// parser ends every call that it ends with a JSON object.
//
// The input: the template, a zero byte, the reply.
#include <string.h>

#include "pure/chat/tool_format.h"
#include "pure/chat/trial.h"
#include "pure/text/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_arguments(const kin_text_buffer *arguments) {
    kin_json json;
    kin_err err;
    if (kin_json_parse(&json, arguments->at, arguments->len, &err) == 0) {
        kin_assert(json.values[0].kind == KIN_JSON_OBJECT);
        kin_json_fini(&json);
        return;
    }
    // The reply parser checks the syntax of RFC 8259; kin_json refuses more only in these points.
    kin_assert(strstr(err.text, "is there twice") || strstr(err.text, "UTF-") || strstr(err.text, "more than 4096") ||
               strstr(err.text, "too many"));
}

static void collect_arguments(const kin_reply_event *events, int n, kin_text_buffer *arguments) {
    for (int i = 0; i < n; i++) {
        const kin_reply_event *e = &events[i];
        if (e->kind == KIN_REPLY_TOOL_BEGIN) arguments->len = 0;
        if (e->kind == KIN_REPLY_TOOL_ARGUMENTS) kin_text_put(arguments, e->text.at, e->text.len);
        if (e->kind == KIN_REPLY_TOOL_END) check_arguments(arguments);
    }
}

static void parse(const kin_tool_format *format, const char *reply, size_t len) {
    const kin_reply_options options = {.format = &format->chat, .tools = kin_trial_tools, .n_tools = 2, .reasoning = true};
    kin_text_buffer arguments = {0};
    kin_reply_parser *p;
    const kin_reply_event *events;
    int n;
    kin_assert(kin_reply_parser_new(&p, &options, NULL) == 0);
    kin_assert(kin_reply_parser_push(p, reply, len, &events, &n) == 0);
    collect_arguments(events, n, &arguments);
    kin_assert(kin_reply_parser_flush(p, false, &events, &n) == 0);
    collect_arguments(events, n, &arguments);
    kin_reply_parser_free(p);
    kin_text_fini(&arguments);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    const char *source = (const char *)bytes, *end = size > 0 ? memchr(source, 0, size) : NULL;
    size_t len = end ? (size_t)(end - source) : size;
    kin_tool_format format;
    kin_jinja *jinja;
    kin_err err;
    if (size > 1 << 14 || kin_jinja_new(&jinja, source, len, &err) != 0) return 0;
    kin_assert(kin_tool_format_of(&format, jinja, source, len, &err) == 0);
    kin_jinja_free(jinja);
    kin_assert(format.chat.syntax != KIN_CALL_NONE);
    if (format.is_confirmed) {
        const kin_reply_rules rules = {.format = &format.chat, .tools = kin_trial_tools, .n_tools = 2, .required = true};
        kin_grammar *grammar;
        kin_assert(kin_reply_grammar_new(&grammar, &rules, NULL, &err) == 0);
        kin_grammar_free(grammar);
    }
    if (end) parse(&format, end + 1, size - len - 1);
    return 0;
}
