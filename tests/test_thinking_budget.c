// The budget of reasoning tokens (pure/chat/thinking_budget.h): which tokens count, and when it forces the end.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "pure/chat/thinking_budget.h"
#include "tests/place.h"

static const int32_t end[] = {7, 8};

static kin_thinking_budget *budget_of(int n_tokens, bool begun) {
    kin_thinking_budget *b;
    kin_err err;
    assert_int_equal(kin_thinking_budget_new(&b, kin_chat_format_known(KIN_CHAT_HERMES), n_tokens, begun, end, 2, &err), 0);
    return b;
}
#define budget_of(...) FROM_TEST(budget_of(__VA_ARGS__))

// Continues the text with these strings, one token each; none is forced.
static void write_all(kin_thinking_budget *b, int n, const char *const *tokens) {
    for (int i = 0; i < n; i++) {
        assert_int_equal(kin_thinking_budget_next(b), KIN_FAIL);
        kin_thinking_budget_accept(b, (kin_str){tokens[i], strlen(tokens[i])});
    }
}
#define write_all(...) FROM_TEST(write_all(__VA_ARGS__))
#define WRITE(b, ...)                                                                                                            \
    write_all(b, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *const[]){__VA_ARGS__})

static void expect_end(kin_thinking_budget *b) {
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kin_thinking_budget_next(b), end[i]);
        kin_thinking_budget_accept(b, (kin_str){"x", 1});
    }
    WRITE(b, "The", " answer", "<think>", " a", " b", " c");
    kin_thinking_budget_free(b);
}
#define expect_end(...) FROM_TEST(expect_end(__VA_ARGS__))

static void expect_no_end(kin_thinking_budget *b) {
    for (int i = 0; i < 20; i++) WRITE(b, " more");
    kin_thinking_budget_free(b);
}

static void what_is_spent_forces_the_end_once(void **state) {
    (void)state;
    kin_thinking_budget *b = budget_of(3, true);
    WRITE(b, "I", " th", "ink");
    expect_end(b);
}

static void what_was_not_begun_counts_from_the_marker_on(void **state) {
    (void)state;
    kin_thinking_budget *b = budget_of(2, false);
    WRITE(b, "\n ", "<think>", "I", " think");
    expect_end(b);
    b = budget_of(2, false); // the marker is cut, and its last piece has more text
    WRITE(b, " <th", "in", "k>I", " think", " so");
    expect_end(b);
}

static void without_a_budget_no_token_is_thought(void **state) {
    (void)state;
    expect_end(budget_of(0, true));
    kin_thinking_budget *b = budget_of(0, false);
    WRITE(b, "<think>");
    expect_end(b);
}

static void reasoning_that_ends_by_itself_is_left_alone(void **state) {
    (void)state;
    kin_thinking_budget *b = budget_of(5, true);
    WRITE(b, "a", "b", "</think>");
    expect_no_end(b);
    b = budget_of(5, true);
    WRITE(b, "a<", "</", "thi", "nk>b");
    expect_no_end(b);
    b = budget_of(5, false);
    WRITE(b, "<think>", "a", "</think>");
    expect_no_end(b);
}

static void what_does_not_begin_with_the_marker_is_no_reasoning(void **state) {
    (void)state;
    static const char *const beginnings[] = {"Hi", " a<think>", "<thin", "<<think>", "< think>"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        kin_thinking_budget *b = budget_of(0, false);
        WRITE(b, beginnings[i], "x", "<think>");
        expect_no_end(b);
    }
}

static void a_part_of_the_end_is_not_the_end(void **state) {
    (void)state;
    kin_thinking_budget *b = budget_of(3, true);
    WRITE(b, "</thin", "</", "think ");
    expect_end(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_spent_forces_the_end_once),
        cmocka_unit_test(what_was_not_begun_counts_from_the_marker_on),
        cmocka_unit_test(without_a_budget_no_token_is_thought),
        cmocka_unit_test(reasoning_that_ends_by_itself_is_left_alone),
        cmocka_unit_test(what_does_not_begin_with_the_marker_is_no_reasoning),
        cmocka_unit_test(a_part_of_the_end_is_not_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
