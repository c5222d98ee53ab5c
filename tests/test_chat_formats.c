// Formats of calls: a template renders calls, the format is found from it, and parsing what it rendered gives the calls again,
// however the bytes are cut; rendered once more they are the same bytes, so a history of them is found in the prefix cache.
//
// The templates here are short ones in the form of the models'.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "testkit/sanitized.h"
#include "tests/chat_round_trip.h"

static void every_models_format_is_found_from_its_template(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        kin_jinja *jinja;
        kin_tool_format format = format_of(models[i].source, &jinja);
        kin_chat_format expected = *kin_chat_format_known(models[i].known);
        memcpy(expected.think_begin, format.chat.think_begin, sizeof expected.think_begin);
        memcpy(expected.think_end, format.chat.think_end, sizeof expected.think_end);
        kin_jinja_free(jinja);
        memcpy(expected.text_begin, format.chat.text_begin, sizeof expected.text_begin);
        memcpy(expected.text_end, format.chat.text_end, sizeof expected.text_end);
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
        kin_chat_format expected = all[i].expected;
        memcpy(expected.think_begin, format.chat.think_begin, sizeof expected.think_begin);
        memcpy(expected.think_end, format.chat.think_end, sizeof expected.think_end);
        kin_jinja_free(jinja);
        if (format.is_confirmed && memcmp(&format.chat, &expected, sizeof expected) == 0) continue;
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

static void rendered_calls_are_parsed_into_the_same_calls(void **state) {
    enum { STEP = KIN_SANITIZED ? 185 : 37, STEP_OF_ONE = KIN_SANITIZED ? 5 : 1 };
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        kin_jinja *jinja;
        kin_tool_format format = format_of(models[i].source, &jinja);
        for (int k = 0; k < N_SETS * N_SETS; k++) {
            const kin_trial_call calls[] = {{0, sets[k / N_SETS]}, {1, sets[k % N_SETS]}};
            int n_calls = k % (N_SETS + 1) == 0 ? 1 : 2; // once alone, then with each other
            if (n_calls == 2 && format.one_call) continue;
            char *reply = rendered(&models[i], jinja, &format, calls, n_calls);
            const size_t step = n_calls == 1 ? STEP_OF_ONE : STEP, n = strlen(reply);
            // With two calls, other cuts for each pair of arguments: all are tested with some pair.
            for (size_t cut = 0; cut <= n; cut += cut == 0 && step > 1 ? 1 + (size_t)k % step : step) {
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

// Writes arguments with a string that has the mark in it, or all but its last byte. Returns false if the string ends there.
static bool put_marked(const kin_chat_format *f, const char *mark, bool is_whole, kin_text_buffer *arguments) {
    char text[2 * KIN_CHAT_MAX_MARK];
    const char *end = f->syntax == KIN_CALL_PARAMETERS ? f->value_end : f->syntax == KIN_CALL_QUOTED ? f->quote : "\1";
    snprintf(text, sizeof text, "a %.*s b", (int)strlen(mark) - !is_whole, mark);
    if (!mark[0] || strstr(text, end) || strchr(text, KIN_MARK_NAME[0]) || strchr(text, KIN_MARK_DIGITS[0])) return false;
    kin_text_print(arguments, "{\"kin_key\":");
    kin_json_write_string(str(text), arguments);
    kin_text_print(arguments, ",\"kin_num\":1}");
    kin_text_put(arguments, "", 1);
    return true;
}

static void strings_may_have_the_marks_of_the_format_in_them(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        kin_jinja *jinja;
        kin_tool_format format = format_of(models[i].source, &jinja);
        const kin_chat_format *f = &format.chat;
        const char *const marks[] = {f->calls_begin, f->calls_end,     f->call_begin, f->call_end,   f->name_begin, f->name_end,
                                     f->id_begin,    f->arguments_end, f->key_begin,  f->key_end,    f->type_end,   f->value_end,
                                     f->quote,       f->think_begin,   f->think_end,  f->text_begin, f->text_end};
        for (size_t k = 0; k < 2 * sizeof marks / sizeof *marks; k++) {
            kin_text_buffer arguments = {0};
            if (put_marked(f, marks[k / 2], k % 2, &arguments)) {
                const kin_trial_call call = {0, arguments.at};
                char *reply = rendered(&models[i], jinja, &format, &call, 1);
                for (size_t cut = 0; cut <= strlen(reply); cut += KIN_SANITIZED ? 5 : 1) {
                    parsed p = parse(f, reply, cut, false);
                    expect_calls(&models[i], &p, reply, "", &call, 1);
                    if (cut == 0) expect_identity(&models[i], jinja, &format, &p, reply, &call, 1);
                    fini(&p);
                }
                free(reply);
            }
            kin_text_fini(&arguments);
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
    const kin_trial_call call = {0, sets[0]};
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

// Reasoning as the template renders it, before text-free calls: one and two of them.
static void rendered_reasoning_is_parsed_into_the_same_reasoning(void **state) {
    (void)state;
    static const char thought[] = "Hm, I \"look\" <it> up:\n\n1. {so} \xc3\xa9";
    const kin_trial_call calls[] = {{0, sets[0]}, {1, sets[5]}};
    int n_read = 0;
    for (int i = 0; i < N_MODELS; i++) {
        kin_jinja *jinja;
        kin_tool_format format = format_of(models[i].source, &jinja);
        int n_calls = format.one_call ? 1 : 2;
        char *reply = rendered_after(&models[i], jinja, &format, thought, calls, n_calls);
        bool has_marks = strstr(reply, thought) && strstr(reply, format.chat.think_begin);
        for (size_t cut = 0; cut <= strlen(reply) && has_marks; cut++) {
            parsed p = parse(&format.chat, reply, cut, false);
            expect_calls(&models[i], &p, reply, "", calls, n_calls);
            kin_text_put(&p.thought, "", 1);
            assert_string_equal(p.thought.at, thought);
            if (cut == 0) {
                char *again = rendered_after(&models[i], jinja, &format, p.thought.at, calls, n_calls);
                assert_string_equal(again, reply);
                free(again);
                n_read++;
            }
            fini(&p);
        }
        free(reply);
        kin_jinja_free(jinja);
    }
    assert_true(n_read > 20);
}

static void tags_around_text_are_found(void **state) {
    (void)state;
    static const char *const wanted[][3] = {
        {"Cohere2-MoE", "<|START_TEXT|>", "<|END_TEXT|>"},
        {"Command R7B", "<|START_RESPONSE|>", "<|END_RESPONSE|>"}, // known, not in this template
        {"Muse Glimmer", "to=user<|message|>", "<|eom|><|start|>assistant"},
        {"Functionary 3.2", ">>>all\n", ""},
        {"GLM 4.7", "", ""},
        {"Hermes", "", ""},
    };
    int n_found = 0;
    for (int i = 0; i < N_MODELS * 6; i++) {
        const char *const *w = wanted[i / N_MODELS];
        const model *m = &models[i % N_MODELS];
        kin_jinja *jinja;
        if (strcmp(m->name, w[0]) != 0) continue;
        kin_tool_format format = format_of(m->source, &jinja);
        assert_string_equal(format.chat.text_begin, w[1]);
        assert_string_equal(format.chat.text_end, w[2]);
        kin_jinja_free(jinja);
        n_found++;
    }
    assert_int_equal(n_found, 6);
}

static const char *const derived_thinking[][3] = {
    // template, think_begin, think_end
    {"{% for m in messages %}[{{ m.role }}]{% if m.thinking %}<reason>\n{{ m.thinking }}\n</reason>\n{% endif %}{{ m.content "
     "}}{% "
     "endfor %}{% if add_generation_prompt %}[assistant]{% endif %}",
     "<reason>", "</reason>"},
    {"{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}<reason>{{ m.reasoning_content }}[END]{% endif %}{{ "
     "m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]<reason>{% endif %}",
     "<reason>", "[END]"},
    // A message of its own is not what follows the prompt.
    {"{% for m in messages %}{% if m.thinking %}<|m|>thoughts<|text|>{{ m.thinking }}<|end|>{% endif %}<|m|>{{ m.role "
     "}}<|text|>{{ "
     "m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|m|>assistant<|text|>{% endif %}",
     "", ""},
    {"{% for m in messages %}{{ m.role }}: {{ m.thinking }} {{ m.content }}\n{% endfor %}assistant: ", "", ""},
};

static void unknown_marks_of_reasoning_are_derived(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof derived_thinking / sizeof *derived_thinking; i++) {
        kin_jinja *jinja;
        kin_tool_format format = format_of(derived_thinking[i][0], &jinja);
        assert_string_equal(format.chat.think_begin, derived_thinking[i][1]);
        assert_string_equal(format.chat.think_end, derived_thinking[i][2]);
        kin_jinja_free(jinja);
    }
}

static void a_call_that_is_cut_off_has_no_end(void **state) {
    (void)state;
    const kin_trial_call call = {0, sets[0]};
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
    const kin_trial_call call = {0, sets[0]};
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

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(every_models_format_is_found_from_its_template),
        cmocka_unit_test(an_unknown_format_is_derived),
        cmocka_unit_test(what_cannot_be_confirmed_is_not_derived),
        cmocka_unit_test(rendered_calls_are_parsed_into_the_same_calls),
        cmocka_unit_test(strings_may_have_the_marks_of_the_format_in_them),
        cmocka_unit_test(text_is_text_with_and_without_reasoning),
        cmocka_unit_test(a_call_follows_text_or_reasoning),
        cmocka_unit_test(rendered_reasoning_is_parsed_into_the_same_reasoning),
        cmocka_unit_test(unknown_marks_of_reasoning_are_derived),
        cmocka_unit_test(tags_around_text_are_found),
        cmocka_unit_test(a_call_that_is_cut_off_has_no_end),
        cmocka_unit_test(a_call_of_no_offered_tool_is_text),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
