// Untrusted text on a terminal: none of its bytes has an effect.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "pure/text/escape.h"
#include "tests/place.h"

static const char *escaped(const char *text, size_t n) {
    static char to[256];
    assert_ptr_equal(kin_escape(to, sizeof to, text, n), to);
    return to;
}
#define escaped(...) FROM_TEST(escaped(__VA_ARGS__))

static void what_acts_on_a_terminal_is_written_out(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"", ""},
        {"plain, \\ and \"", "plain, \\ and \""},
        {"\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"},
        {"one\nkin: two\r\t", "one\\nkin: two\\r\\t"},
        {"\x7f\xc2\x9b"
         "2J",
         "\\x7f\\x9b2J"},
        {"\xff\xc3", "\\xff\\xc3"},
        {"\xe2\x80\xae"
         "fdp.\xe2\x80\xa8",
         "\\u{202e}fdp.\\u{2028}"},
        {"Ноутбук 日本 \xf0\x9f\xa6\x99", "Ноутбук 日本 \xf0\x9f\xa6\x99"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(escaped(cases[i][0], strlen(cases[i][0])), cases[i][1]);
    assert_string_equal(escaped("a\0b", 3), "a\\x00b");
}

static void no_control_byte_survives_whatever_the_text_is(void **state) {
    (void)state;
    for (int a = 0; a < 256; a++) {
        for (int b = 0; b < 256; b++) {
            const char text[3] = {(char)a, (char)b, '\x1b'};
            const char *to = escaped(text, 3);
            for (const char *p = to; *p; p++) assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
            assert_null(strstr(to, "\xc2\x9b"));
        }
    }
}

static void a_text_that_does_not_fit_is_cut_between_characters(void **state) {
    (void)state;
    char to[6];
    assert_string_equal(kin_escape(to, sizeof to, "abcdefgh", 8), "abcde");
    assert_string_equal(kin_escape(to, sizeof to, "abcЖ", 5), "abcЖ");
    assert_string_equal(kin_escape(to, sizeof to, "abcdЖ", 6), "abcd");
    assert_string_equal(kin_escape(to, sizeof to, "ab\x1b", 3), "ab");
    assert_string_equal(kin_escape(to, 1, "a", 1), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_acts_on_a_terminal_is_written_out),
        cmocka_unit_test(no_control_byte_survives_whatever_the_text_is),
        cmocka_unit_test(a_text_that_does_not_fit_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
