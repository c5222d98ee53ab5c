// A model's output wrapped between words for a terminal (app/terminal/word_wrap.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "app/terminal/text_layout.c"
#include "app/terminal/word_wrap.c"

static char shown[4096];

static void show(void *user, const char *text, size_t n) {
    (void)user;
    strncat(shown, text, n);
}

// Wraps the text in pieces of this many bytes, which are whole characters in these texts.
static const char *wrapped(const char *text, int columns, size_t piece) {
    kin_word_wrap w = {.put = show};
    size_t n = strlen(text);
    shown[0] = '\0';
    for (size_t i = 0; i < n; i += piece) kin_word_wrap_add(&w, text + i, n - i < piece ? n - i : piece, columns);
    kin_word_wrap_end(&w, columns);
    return shown;
}

static void lines_break_between_words_however_the_text_comes(void **state) {
    (void)state;
    for (size_t piece = 1; piece < 40; piece++)
        assert_string_equal(wrapped("Once upon a time there was a dragon.\nIt was small.", 10, piece),
                            "Once upon\na time\nthere was\na dragon.\nIt was\nsmall.");
}

static void a_word_that_is_wider_than_the_terminal_stays_whole(void **state) {
    (void)state;
    assert_string_equal(wrapped("see https://example.org/path now", 10, 5), "see\nhttps://example.org/path now");
    char text[1025], *at = memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    wrapped(at, 2000, 7);
    assert_int_equal(strlen(shown), sizeof text - 1);
}

static void indents_and_empty_lines_stay(void **state) {
    (void)state;
    assert_string_equal(wrapped("  - one\n\n  - two", 20, 3), "  - one\n\n  - two");
}

static void code_is_not_broken(void **state) {
    (void)state;
    const char *text = "a b\n```c\nint main(void) { return 0; }\n```\nwords that are broken";
    assert_string_equal(wrapped(text, 12, 4), "a b\n```c\nint main(void) { return 0; }\n```\nwords that\nare broken");
}

static void text_without_spaces_breaks_between_its_characters(void **state) {
    (void)state;
    assert_string_equal(wrapped("\u65e5\u672c\u8a9e\u3067\u3059\u304b", 8, 3), "\u65e5\u672c\u8a9e\u3067\n\u3059\u304b");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_break_between_words_however_the_text_comes),
        cmocka_unit_test(a_word_that_is_wider_than_the_terminal_stays_whole),
        cmocka_unit_test(indents_and_empty_lines_stay),
        cmocka_unit_test(code_is_not_broken),
        cmocka_unit_test(text_without_spaces_breaks_between_its_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
