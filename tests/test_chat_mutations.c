// The models' templates with other marks, quotes and orders: each has a format that reads and writes what it renders, or the
// generic one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/chat_round_trip.h"

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

// Renders and parses calls of all sets, alone and together.
static void expect_round_trips(const model *m, const kin_jinja *jinja, const kin_tool_format *format) {
    for (int k = 0; k < 2 * N_SETS; k++) {
        const kin_trial_call calls[] = {{0, sets[k / 2]}, {1, sets[0]}};
        int n_calls = 1 + k % 2;
        if (n_calls == 2 && format->one_call) continue;
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
    const kin_trial_call call = {0, sets[0]};
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
        cmocka_unit_test(a_changed_template_has_a_format_that_fits_or_the_generic_one),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
