// The text of a file of settings.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pure/text/settings.h"
#include "tests/place.h"

static kin_setting settings[KIN_SETTINGS_MAX];
static int n, line;
static kin_err err;

static int parse(const char *from) {
    static char text[16384];
    assert_true(strlen(from) < sizeof text);
    strcpy(text, from);
    err.text[0] = '\0';
    return kin_settings_parse(text, settings, &n, &line, &err);
}
#define parse(...) FROM_TEST(parse(__VA_ARGS__))

static void expect(int i, const char *section, const char *name, const char *value, int at) {
    assert_string_equal(settings[i].section, section);
    assert_string_equal(settings[i].name, name);
    if (value)
        assert_string_equal(settings[i].value, value);
    else
        assert_null(settings[i].value);
    assert_int_equal(settings[i].line, at);
}
#define expect(...) FROM_TEST(expect(__VA_ARGS__))

static void lines_become_settings_of_their_section(void **state) {
    (void)state;
    assert_int_equal(
        parse("# mine\n\nthreads = 4\n  no-gpu  \n[serve]\nhost=0.0.0.0\n[ chat ]\r\nsystem = Be brief # always\r\n"), 0);
    assert_int_equal(n, 4);
    expect(0, "", "threads", "4", 3);
    expect(1, "", "no-gpu", NULL, 4);
    expect(2, "serve", "host", "0.0.0.0", 6);
    expect(3, "chat", "system", "Be brief # always", 8); // a value may contain '#'
}

static void a_value_may_be_empty_or_contain_an_equals_sign(void **state) {
    (void)state;
    assert_int_equal(parse("alias =\nsystem = a = b"), 0);
    assert_int_equal(n, 2);
    expect(0, "", "alias", "", 1);
    expect(1, "", "system", "a = b", 2);
}

static void an_empty_text_has_no_settings(void **state) {
    (void)state;
    assert_int_equal(parse(""), 0);
    assert_int_equal(n, 0);
    assert_int_equal(parse("\xef\xbb\xbf# a mark of Notepad\n"), 0);
    assert_int_equal(n, 0);
}

static void malformed_lines_are_refused_with_their_number(void **state) {
    (void)state;
    static const struct {
        const char *text, *expected;
        int line;
    } cases[] = {
        {"threads 4", "'=' is missing", 1},
        {"\n--threads = 4", "without '--': threads", 2},
        {"a = 1\nb = 2\n= 3", "a line is NAME = VALUE", 3},
        {"na_me = 1", "a line is NAME = VALUE", 1},
        {"4 = 1", "a line is NAME = VALUE", 1},
        {"[serve", "a section is [COMMAND]", 1},
        {"[]", "a section is [COMMAND]", 1},
        {"[a b]", "a section is [COMMAND]", 1},
        {"a = \x1b[1m", "control character", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (parse(cases[i].text) != KIN_FAIL) fail_msg("'%s' is accepted", cases[i].text);
        if (!strstr(err.text, cases[i].expected)) fail_msg("'%s' is not: %s", err.text, cases[i].expected);
        assert_int_equal(line, cases[i].line);
    }
}

static void more_settings_than_the_maximum_are_refused(void **state) {
    (void)state;
    static char text[8 * (KIN_SETTINGS_MAX + 1) + 1];
    for (int i = 0; i < KIN_SETTINGS_MAX; i++) strcat(text, "n = 1\n");
    assert_int_equal(parse(text), 0);
    assert_int_equal(n, KIN_SETTINGS_MAX);
    strcat(text, "n = 1\n");
    assert_int_equal(parse(text), KIN_FAIL);
    assert_non_null(strstr(err.text, "more than 256 settings"));
    assert_int_equal(line, KIN_SETTINGS_MAX + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_become_settings_of_their_section),
        cmocka_unit_test(a_value_may_be_empty_or_contain_an_equals_sign),
        cmocka_unit_test(an_empty_text_has_no_settings),
        cmocka_unit_test(malformed_lines_are_refused_with_their_number),
        cmocka_unit_test(more_settings_than_the_maximum_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
