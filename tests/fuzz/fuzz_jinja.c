// Renders any text as a chat template with messages, tools and other variables: the result is a prompt or an error sentence.
// Every string of the variables contains a mark, a byte that a template can write only by an escape, so a run whose origin is the
// template never contains a mark.
#include <stdlib.h>
#include <string.h>

#include "pure/jinja/jinja.h"
#include "pure/text/utf8.h"
#include "testkit/json_value.c"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define MARK "\x01"

static const char variables_json[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"\\u0001 be <brief> \"}, {\"role\": \"user\", \"content\": "
    "\"\\u0001h\\u00e9llo, 5\\n\"},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"\\u0001bcdefghi\", \"function\": {\"name\": "
    "\"\\u0001f\","
    " \"arguments\": {\"\\u0001k\": [1, 2.5, true, null, \"\\u0001v\"]}}}]}, {\"role\": \"tool\", \"content\": "
    "\"<think>\\u0001</think>\"}],"
    " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"\\u0001t\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {\"\\u0001p\":"
    " {\"type\": [\"string\"], \"description\": \"\\u0001d\"}}}}}], \"add_generation_prompt\": true, \"s\": \"\\u0001ab,c D\", "
    "\"n\": 3, \"f\": 2.5,"
    " \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": {\"x\": [1, 2]}}, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";

static void check_text(const kin_jinja_text *text, bool marks_are_input) {
    size_t end = 0;
    for (size_t i = 0; i < text->n_runs; i++) {
        const kin_jinja_run *run = &text->runs[i];
        kin_assert(run->begin == end && run->end > run->begin && (i == 0 || run->origin != run[-1].origin));
        if (marks_are_input && run->origin == KIN_ORIGIN_TEMPLATE)
            kin_assert(!memchr(text->at + run->begin, MARK[0], run->end - run->begin));
        end = run->end;
    }
    kin_assert(end == text->len && text->at[end] == '\0');
    for (size_t at = 0; at < text->len;) {
        int n = kin_utf8_len(text->at + at, text->len - at);
        kin_assert(n > 0);
        at += (size_t)n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static json_t *json;
    if (!json) json = json_loads(variables_json, 0, NULL);
    kin_assert(json != NULL);
    kin_err err = {""};
    kin_jinja *jinja;
    const char *source = (const char *)bytes;
    bool marks_are_input = size == 0 || (!memchr(source, '\\', size) && !memchr(source, MARK[0], size));
    if (kin_jinja_new(&jinja, source, size, &err) != 0) {
        kin_assert(err.text[0] != '\0');
        return 0;
    }
    kin_values *values = kin_values_new(8 << 20);
    kin_assert(values != NULL);
    kin_jinja_text text;
    if (kin_jinja_render(jinja, values, json_variables(values, json), 1760000000, &text, &err) == 0)
        check_text(&text, marks_are_input);
    else
        kin_assert(err.text[0] != '\0');
    kin_values_free(values);
    kin_jinja_free(jinja);
    return 0;
}
