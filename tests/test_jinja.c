// Chat templates: the snippets of jinja_snippets.json against Jinja's results; the origin of every byte; limits.
//
// test_jinja --render renders JSON lines, for jinja_oracle.py.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/jinja/jinja.h"
#include "testkit/json_value.h"
#include "testkit/sanitized.h"
#include "tests/place.h"

enum { NOW = 1760000000, MAX_BYTES = 64 << 20 };

// ---- rendering

// A compiled template and its result.
typedef struct rendering {
    kin_jinja *jinja;
    kin_values *values;
    kin_jinja_text text;
    kin_err err;
    int rc;
} rendering;

static rendering render_in_steps(uint64_t most_steps, const char *source, size_t len, const json_t *variables, size_t max_bytes) {
    rendering r = {.values = kin_values_new(max_bytes), .err = {""}};
    assert_non_null(r.values);
    kin_values_limit_steps(r.values, most_steps);
    r.rc = kin_jinja_new(&r.jinja, source, len, &r.err);
    if (r.rc == 0) {
        kin_value *dict = json_variables(r.values, variables);
        r.rc = dict ? kin_jinja_render(r.jinja, r.values, dict, NOW, &r.text, &r.err) : kin_values_check(r.values, &r.err);
    }
    return r; // the text is a copy and does not need the JSON
}
#define render_in_steps(...) FROM_TEST(render_in_steps(__VA_ARGS__))
#define render_json(...) render_in_steps(UINT64_MAX, __VA_ARGS__)

static void rendering_fini(rendering *r) {
    kin_jinja_free(r->jinja);
    kin_values_free(r->values);
}

static rendering render(const char *source, const char *variables) {
    json_t *json = json_loads(variables, 0, NULL);
    assert_non_null(json);
    rendering r = render_in_steps(UINT64_MAX, source, strlen(source), json, MAX_BYTES);
    json_decref(json);
    return r;
}
#define render(...) FROM_TEST(render(__VA_ARGS__))

// ---- the language

static json_t *load_snippets(void) {
    json_error_t error;
    json_t *snippets = json_load_file(KIN_SOURCE_DIR "/tests/jinja_snippets.json", JSON_ALLOW_NUL, &error);
    if (!snippets) fail_msg("jinja_snippets.json:%d: %s", error.line, error.text);
    return snippets;
}
#define load_snippets(...) FROM_TEST(load_snippets(__VA_ARGS__))

static void snippets_give_what_jinja_gives(void **state) {
    (void)state;
    json_t *snippets = load_snippets();
    int n_wrong = 0;
    assert_true(json_array_size(snippets) > 100);
    for (size_t i = 0; i < json_array_size(snippets); i++) {
        const json_t *snippet = json_array_get(snippets, i), *expected = json_array_get(snippet, 2);
        const char *source = json_string_value(json_array_get(snippet, 0));
        rendering r = render_json(source, strlen(source), json_array_get(snippet, 1), MAX_BYTES);
        bool right = json_is_null(expected) ? r.rc != 0 && r.err.text[0] != '\0'
                                            : r.rc == 0 && r.text.len == json_string_length(expected) &&
                                                  memcmp(r.text.at, json_string_value(expected), r.text.len) == 0;
        if (!right) {
            print_error("snippet %zu: %s\n  expected: %s\n  got:      %s%s\n", i, source,
                        json_is_null(expected) ? "(an error)" : json_string_value(expected), r.rc == 0 ? r.text.at : "",
                        r.err.text);
            n_wrong++;
        }
        rendering_fini(&r);
    }
    json_decref(snippets);
    assert_int_equal(n_wrong, 0);
}

static void time_is_what_the_caller_says(void **state) {
    (void)state;
    const struct {
        int64_t now_s;
        const char *text;
    } cases[] = {
        {0, "1970-01-01 00:00:00 Thu 001"},          {NOW, "2025-10-09 08:53:20 Thu 282"},
        {1709164799, "2024-02-28 23:59:59 Wed 059"}, {1709164800, "2024-02-29 00:00:00 Thu 060"},
        {1735689599, "2024-12-31 23:59:59 Tue 366"}, {-1, "1969-12-31 23:59:59 Wed 365"},
        {4102444800, "2100-01-01 00:00:00 Fri 001"},
    };
    static const char source[] = "{{ strftime_now('%Y-%m-%d %H:%M:%S %a %j') }}";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kin_values *values = kin_values_new(MAX_BYTES);
        kin_jinja *jinja;
        kin_jinja_text text;
        assert_int_equal(kin_jinja_new(&jinja, source, strlen(source), NULL), 0);
        assert_int_equal(kin_jinja_render(jinja, values, kin_value_dict(values), cases[i].now_s, &text, NULL), 0);
        assert_string_equal(text.at, cases[i].text);
        kin_jinja_free(jinja);
        kin_values_free(values);
    }
}

// ---- origins

// Writes the runs as one string: {template} and [input].
static void marked(const kin_jinja_text *text, char *out, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < text->n_runs; i++) {
        bool template = text->runs[i].origin == KIN_ORIGIN_TEMPLATE;
        n += (size_t)snprintf(out + n, size - n, "%c%.*s%c", template ? '{' : '[', (int)(text->runs[i].end - text->runs[i].begin),
                              text->at + text->runs[i].begin, template ? '}' : ']');
        assert_true(n < size);
    }
}
#define marked(...) FROM_TEST(marked(__VA_ARGS__))

static void every_byte_keeps_its_origin(void **state) {
    (void)state;
    static const char variables[] =
        "{\"u\": \"us er\", \"l\": [\"a\", \"b\"], \"d\": {\"k\": \"v\"}, \"bos_token\": \"<s>\", \"n\": 7}";
    const struct {
        const char *source, *marked;
    } cases[] = {
        {"{{ bos_token }}x{{ u }}y", "{<s>x}[us er]{y}"},
        {"{{ '<|' + 'im|>' ~ u }}{{ u }}", "{<|im|>}[us erus er]"},
        {"{{ 'a' + u + 'b' }}", "{a}[us er]{b}"},
        {"{{ ('a' + u + 'b')[1:-2] }}", "[us e]"},
        {"{{ ('a' + u + 'b')[::-1] }}", "{b}[re su]{a}"},
        {"{{ ('a' + u)|upper }}{{ u|title }}{{ u.capitalize() }}", "{A}[US ERUs ErUs er]"},
        {"{{ u|trim }}{{ (' a' ~ u ~ ' ')|trim }}", "[us er]{a}[us er]"},
        {"{{ u.replace(' ', '|') }}{{ 'x|y'.replace('|', u) }}", "[us]{|}[er]{x}[us er]{y}"},
        {"{{ u.split(' ')|join('-') }}{{ '-'.join(l) }}", "[us]{-}[era]{-}[b]"},
        {"{{ l|tojson }}{{ d|tojson }}{{ u|tojson }}", "[[\"a\", \"b\"]{\"k\": \"v\"}\"us er\"]"},
        {"{{ {'a': 1}|tojson }}{{ l }}{{ d }}", "[{\"a\": 1}['a', 'b']{'k': 'v'}]"},
        {"{{ n }}{{ n + 1 }}{{ true }}{{ none }}{{ 1.5 }}", "{78TrueNone1.5}"},
        {"{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "[k]{=}[v]"},
        {"{% for k in {'a': u} %}{{ k }}{% endfor %}", "{a}"},
        {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(u) }}{{ m('t') }}", "{<}[us er]{><t>}"},
        {"{% set s %}<{{ u }}>{% endset %}{{ s|upper }}", "{<}[US ER]{>}"},
        {"{{ 'x' if u == 'us er' else 'y' }}{{ {'us er': 't'}[u] }}", "{xt}"},
        {"{{ u|list|first }}{{ 'ab'|list|last }}{{ u|string }}{{ u|default('x') }}", "[u]{b}[us erus er]"},
        {"{{ u * 2 }}{{ 'ab' * 2 }}{{ u|indent(1, true) }}", "[us erus er]{abab }[us er]"},
        {"{{ u.strip('u') ~ u.removeprefix('us') ~ 'a b'.split()[1] }}", "[s er er]{b}"},
        {"{{ strftime_now('%Y') }}{{ strftime_now(u) }}", "{2025}[us er]"},
        {"{% set ns = namespace(a='t') %}{% set ns.a = ns.a + u %}{{ ns.a }}", "{t}[us er]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512] = "";
        json_t *json = json_loads(variables, 0, NULL);
        rendering r = render_json(cases[i].source, strlen(cases[i].source), json, MAX_BYTES);
        assert_string_equal(r.err.text, "");
        marked(&r.text, text, sizeof text);
        assert_string_equal(text, cases[i].marked);
        rendering_fini(&r);
        json_decref(json);
    }
}

static void a_sum_grows_in_place_without_changing_its_parts(void **state) {
    (void)state;
    rendering r =
        render("{% set a = s + 'b' %}{% set c = a + 'c' %}{% set d = a + 'd' %}{{ a }} {{ c }} {{ d }} {{ c + d }} {{ a }}",
               "{\"s\": \"s\"}");
    assert_string_equal(r.err.text, "");
    assert_string_equal(r.text.at, "sb sbc sbd sbcsbd sb");
    rendering_fini(&r);
}

// ---- errors and bounds

static void fails_with(const char *source, const char *variables, const char *sentence) {
    rendering r = render(source, variables);
    assert_int_equal(r.rc, KIN_FAIL);
    if (!strstr(r.err.text, sentence)) fail_msg("%.200s: '%s', not '%s'", source, r.err.text, sentence);
    rendering_fini(&r);
}
#define fails_with(...) FROM_TEST(fails_with(__VA_ARGS__))

static void errors_say_the_line_and_what(void **state) {
    (void)state;
    fails_with("a\n{% if x %}\nb", "{}", "line 3: the template ends inside a block");
    fails_with("a\n\n{{ 1 + }}", "{}", "line 3: expected an expression");
    fails_with("{% foo %}", "{}", "line 1: unknown block: foo");
    fails_with("\n{{ x.y }}", "{}", "line 2: 'x' is undefined");
    fails_with("\n{{ m.x.y }}", "{\"m\": {}}", "line 2: 'x' is undefined");
    fails_with("\n\n{{ raise_exception('roles ' ~ n) }}", "{\"n\": 2}",
               "line 3: the template rejected the conversation: roles 2");
    fails_with("{{ 'a'|nofilter(1) }}", "{}", "unknown filter 'nofilter'");
    fails_with("{{ 'a' is notest }}", "{}", "unknown test 'notest'");
    fails_with("{{ 'a'.nomethod() }}", "{}", "'nomethod' is undefined");
    fails_with("{{ [1].append(2) }}", "{}", "'append' is undefined");
    fails_with("{{ 1 + 'a' }}", "{}", "unsupported operands: int + str");
    fails_with("{{ 9223372036854775807 + 1 }}", "{}", "64 bits");
    fails_with("{# never", "{}", "line 1: the end of a comment");
    fails_with("{% macro m(a) %}{% endmacro %}\n{{ m(1, 2) }}", "{}", "line 2: macro m takes at most 1 arguments");
}

// Returns `head`, n times `part`, and `tail`.
static char *repeated(const char *head, const char *part, size_t n, const char *tail) {
    size_t len = strlen(part);
    char *text = malloc(strlen(head) + n * len + strlen(tail) + 1), *at = text;
    assert_non_null(text);
    at = stpcpy(at, head);
    for (size_t i = 0; i < n; i++) at = stpcpy(at, part);
    strcpy(at, tail);
    return text;
}
#define repeated(...) FROM_TEST(repeated(__VA_ARGS__))

static void what_is_too_large_or_too_deep_is_an_error(void **state) {
    (void)state;
    const struct {
        const char *head, *part, *tail;
        size_t n;
        const char *sentence;
    } sources[] = {
        {"{{ ", "(", "", 100000, "nested too deep"},
        {"{{ ", "[", "", 100000, "nested too deep"},
        {"{{ ", "-", "1 }}", 100000, "nested too deep"},
        {"{{ ", "not ", "1 }}", 100000, "nested too deep"},
        {"{{ a", " if a else a", " }}", 50000, "nested too deep"},
        {"{{ a", ".b", " }}", 100000, "too long"},
        {"{{ 1", " + 1", " }}", 100000, "too long"},
        {"{{ a", "|trim", " }}", 100000, "too long"},
        {"", "{% if a %}", "", 50000, "nested too deep"},
        {"", "{% for a in b %}", "", 50000, "nested too deep"},
        {"{% set ", "(", "a", 50000, "nested too deep"},
        {"", "x", "", KIN_JINJA_MAX_SOURCE + 1, "the limit is"},
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char *source = repeated(sources[i].head, sources[i].part, sources[i].n, sources[i].tail);
        fails_with(source, "{}", sources[i].sentence);
        free(source);
    }
    fails_with("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}", "nested too deep");
    fails_with("{% set ns = namespace(a=[]) %}{% for i in range(200) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}", "{}",
               "nested too deep");
    fails_with("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "{}", " limit");
    fails_with("{{ 'a' * 10000000000 }}", "{}", "64 MiB");
    fails_with("{% set a = 'a' * 1000000 %}{% for i in range(100) %}{{ a }}{% endfor %}", "{}", "64 MiB");
    fails_with("{% set ns = namespace(a='aaaaaaaaaaaaaaaa') %}{% for i in range(40) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
               "{}", " limit");
    fails_with("{{ [1] * 100000000 }}", "{}", " limit");
    fails_with("{{ range(1000000) }}", "{}", "a range must have at most");
    fails_with("{% set a = 'x' * 60000 %}{% for i in range(100000) %}{% set b = a|upper %}{% endfor %}", "{}", " limit");
}

// Each of these expressions examines a long string or list without allocating, so only the step budget can stop it.
static void what_takes_long_takes_many_steps(void **state) {
    (void)state;
    enum { N_ROUNDS = 10000, N_STEPS = 400 * N_ROUNDS }; // the proportion of the usual budget and 50000 rounds
    static const char *const uses[] = {
        "'a' in l",     "l.count('a')",    "s is lower",  "s.isdigit()", "s.strip(s)|length",
        "u|length",     "s.count('x')",    "s.find('y')", "{}[s]",       "{1: 1}.get(s)",
        "s in s ~ 'y'", "s.startswith(s)", "s == t",      "l == k",      "s < t",
        "l < k",        "s.split()|first", "u is lower",  "u[199999]",   "s.split('y')|last",
    };
    json_t *json = json_object(), *list = json_array(), *same = json_array();
    char *text = repeated("", "x", 1000000, ""), *accents = repeated("", "\u00e9", 200000, "");
    for (int i = 0; i < 100000; i++) {
        json_array_append_new(list, json_integer(i));
        json_array_append_new(same, json_integer(i));
    }
    json_object_set_new(json, "l", list);
    json_object_set_new(json, "k", same);
    json_object_set_new(json, "s", json_string(text));
    json_object_set_new(json, "t", json_string(text));
    json_object_set_new(json, "u", json_string(accents));
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i += KIN_SANITIZED ? 7 : 1) { // each one uses up the step budget
        char source[256];
        snprintf(source, sizeof source, "{%% for i in range(%d) %%}{%% if %s == 5 %%}{%% endif %%}{%% endfor %%}", N_ROUNDS,
                 uses[i]);
        rendering r = render_in_steps(N_STEPS, source, strlen(source), json, MAX_BYTES);
        if (r.rc == 0 || !strstr(r.err.text, " limit")) fail_msg("%s: %d %s", uses[i], r.rc, r.err.text);
        rendering_fini(&r);
    }
    free(text);
    free(accents);
    json_decref(json);
}

static void a_sentence_ends_with_a_whole_character(void **state) {
    (void)state;
    for (int n = 390; n < 402; n++) {
        char *source = repeated("{{ raise_exception('", "a", (size_t)n, "\u6771\u4eac') }}");
        rendering r = render(source, "{}");
        assert_int_equal(r.rc, KIN_FAIL);
        json_t *text = json_string(r.err.text); // NULL: not UTF-8
        assert_non_null(text);
        json_decref(text);
        rendering_fini(&r);
        free(source);
    }
}

static void equal_and_printed_values_that_share_their_parts_end(void **state) {
    (void)state;
    static const char make[] = "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(100) %}{% set ns.a = [ns.a, ns.a] %}"
                               "{% set ns.b = [ns.b, ns.b] %}{% endfor %}";
    static const char *const uses[] = {"{{ ns.a == ns.b }}", "{{ ns.a }}", "{{ ns.a|tojson }}", "{{ ns.a in [ns.b] }}",
                                       "{{ [ns.a, ns.b]|sort }}"};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        char source[512];
        snprintf(source, sizeof source, "%s%s", make, uses[i]);
        fails_with(source, "{}", " limit");
    }
}

static void deep_input_and_bad_utf8_are_errors(void **state) {
    (void)state;
    kin_values *values = kin_values_new(MAX_BYTES);
    kin_value *inner = kin_value_list(values);
    for (int i = 0; i < 200; i++) {
        kin_value *outer = kin_value_list(values);
        kin_value_append(values, outer, inner);
        inner = outer;
    }
    kin_err err;
    assert_int_equal(kin_values_check(values, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "nested too deep"));
    kin_values_free(values);

    static const char *const bad[] = {"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kin_jinja *jinja;
        assert_int_equal(kin_jinja_new(&jinja, bad[i], strlen(bad[i]), &err), KIN_FAIL);
        assert_string_equal(err.text, "the template is not UTF-8");
        values = kin_values_new(MAX_BYTES);
        assert_null(kin_value_string(values, bad[i], strlen(bad[i]), KIN_ORIGIN_INPUT));
        assert_int_equal(kin_values_check(values, &err), KIN_FAIL);
        assert_string_equal(err.text, "a string is not UTF-8");
        kin_values_free(values);
    }
}

static void every_limit_of_memory_gives_an_error_or_the_text(void **state) {
    (void)state;
    static const char source[] =
        "{% macro m(a) %}{{ a|upper }}{% endmacro %}{% for x in l %}{{ m(x) ~ x|tojson + 'a' }}{% endfor %}{{ l|sort|join }}";
    json_t *json =
        json_loads("{\"l\": [\"b\", \"a\", \"\\u00e9 and more\", \"d\", \"e\", \"f\", \"g\", \"h\", \"i\", \"j\"]}", 0, NULL);
    size_t n_failed = 0, max = 0;
    for (; max < 200000; max += 97) {
        kin_values *values = kin_values_new(max);
        kin_jinja *jinja;
        kin_jinja_text text;
        kin_err err = {""};
        assert_non_null(values);
        assert_int_equal(kin_jinja_new(&jinja, source, strlen(source), &err), 0);
        kin_value *dict = json_variables(values, json);
        int rc = dict ? kin_jinja_render(jinja, values, dict, NOW, &text, &err) : kin_values_check(values, &err);
        if (rc != 0) assert_non_null(strstr(err.text, "memory"));
        n_failed += rc != 0;
        kin_jinja_free(jinja);
        kin_values_free(values);
        if (rc == 0) break;
    }
    json_decref(json);
    assert_true(n_failed > 10 && max < 200000);
}

// ---- threads

typedef struct renderer {
    const kin_jinja *jinja;
    pthread_t thread;
    bool same;
} renderer;

static void *render_often(void *argument) {
    renderer *r = argument;
    r->same = true;
    for (int i = 0; i < 200; i++) {
        kin_values *values = kin_values_new(MAX_BYTES);
        kin_value *dict = kin_value_dict(values), *list = kin_value_list(values);
        kin_jinja_text text;
        for (int k = 0; k < 5; k++) kin_value_append(values, list, kin_value_int(values, k));
        kin_value_put(values, dict, "l", 1, list);
        r->same &= kin_jinja_render(r->jinja, values, dict, NOW, &text, NULL) == 0 && strcmp(text.at, "0<1<2<3<4<") == 0;
        kin_values_free(values);
    }
    return NULL;
}

static void threads_share_a_template(void **state) {
    (void)state;
    static const char source[] = "{% for x in l|map('string') %}{{ x ~ '<' }}{% endfor %}";
    kin_jinja *jinja;
    renderer renderers[3];
    assert_int_equal(kin_jinja_new(&jinja, source, strlen(source), NULL), 0);
    for (int i = 0; i < 3; i++) {
        renderers[i].jinja = jinja;
        assert_int_equal(pthread_create(&renderers[i].thread, NULL, render_often, &renderers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(renderers[i].thread, NULL);
        assert_true(renderers[i].same);
    }
    kin_jinja_free(jinja);
}

// ---- a program for jinja_oracle.py

static int render_lines(void) {
    char *line = NULL;
    size_t size = 0;
    ssize_t len;
    while ((len = getline(&line, &size, stdin)) > 0) {
        json_t *request = json_loadb(line, (size_t)len, 0, NULL);
        assert_non_null(request);
        const json_t *source = json_object_get(request, "template");
        rendering r =
            render_json(json_string_value(source), json_string_length(source), json_object_get(request, "variables"), MAX_BYTES);
        json_t *answer = r.rc == 0 ? json_pack("{s:s%}", "text", r.text.at, r.text.len) : json_pack("{s:s}", "error", r.err.text);
        json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(answer);
        json_decref(request);
        rendering_fini(&r);
    }
    free(line);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--render") == 0) return render_lines();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snippets_give_what_jinja_gives),
        cmocka_unit_test(time_is_what_the_caller_says),
        cmocka_unit_test(every_byte_keeps_its_origin),
        cmocka_unit_test(a_sum_grows_in_place_without_changing_its_parts),
        cmocka_unit_test(errors_say_the_line_and_what),
        cmocka_unit_test(what_is_too_large_or_too_deep_is_an_error),
        cmocka_unit_test(what_takes_long_takes_many_steps),
        cmocka_unit_test(a_sentence_ends_with_a_whole_character),
        cmocka_unit_test(equal_and_printed_values_that_share_their_parts_end),
        cmocka_unit_test(deep_input_and_bad_utf8_are_errors),
        cmocka_unit_test(every_limit_of_memory_gives_an_error_or_the_text),
        cmocka_unit_test(threads_share_a_template),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
