// Drafts by n-gram lookup (pure/sampling/ngram_draft.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "pure/sampling/ngram_draft.h"
#include "tests/place.h"

static kin_ngram_draft *open_draft(void) {
    kin_ngram_draft *d;
    kin_err err;
    assert_int_equal(kin_ngram_draft_open(&d, &err), 0);
    return d;
}
#define open_draft(...) FROM_TEST(open_draft(__VA_ARGS__))

static void what_followed_before_is_drafted(void **state) {
    (void)state;
    static const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 1, 2, 3};
    kin_ngram_draft *d = open_draft();
    kin_draft out;
    kin_ngram_draft_propose(d, tokens, 10, 3, &out);
    assert_int_equal(out.kind, KIN_DRAFT_NGRAM);
    assert_int_equal(out.n, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(out.tokens[i], 4 + i);
    assert_int_equal(out.grades[0], 1); // 3 tokens match, then 4, then 5
    assert_int_equal(out.grades[1], 2);
    assert_int_equal(out.grades[2], 2);
    kin_ngram_draft_propose(d, tokens, 10, KIN_DRAFT_MAX, &out);
    assert_int_equal(out.n, KIN_DRAFT_MAX);
    for (int i = 0; i < KIN_DRAFT_MAX; i++) assert_int_equal(out.tokens[i], (i + 3) % 7 + 1); // the draft repeats
    kin_ngram_draft_close(d);
}

static void without_a_match_of_three_there_is_no_draft(void **state) {
    (void)state;
    static const int32_t tokens[] = {1, 2, 3, 4, 9, 2, 3};
    kin_ngram_draft *d = open_draft();
    kin_draft out;
    for (int n = 0; n <= 7; n++) {
        kin_ngram_draft_propose(d, tokens, n, KIN_DRAFT_MAX, &out);
        assert_int_equal(out.n, 0);
    }
    kin_ngram_draft_close(d);
}

static void the_longest_match_wins_and_then_the_latest(void **state) {
    (void)state;
    static const int32_t longest[] = {8, 1, 2, 3, 50, 9, 1, 2, 3, 60, 8, 1, 2, 3};
    static const int32_t latest[] = {1, 2, 3, 50, 1, 2, 3, 60, 1, 2, 3};
    kin_ngram_draft *d = open_draft();
    kin_draft out;
    kin_ngram_draft_propose(d, longest, 14, 1, &out);
    assert_int_equal(out.tokens[0], 50);
    kin_ngram_draft_close(d);
    d = open_draft();
    kin_ngram_draft_propose(d, latest, 11, 1, &out);
    assert_int_equal(out.tokens[0], 60);
    kin_ngram_draft_close(d);
}

// After a replaced token the draft continues behind the original token.
static void an_edited_copy_is_drafted_on(void **state) {
    (void)state;
    int32_t tokens[120];
    kin_ngram_draft *d = open_draft();
    kin_draft out;
    for (int i = 0; i < 120; i++) tokens[i] = i < 60 ? i : i - 60;
    for (int i = 70; i < 120; i += 10) tokens[i] = 1000;
    for (int n = 63; n < 119; n++) {
        kin_ngram_draft_propose(d, tokens, n, 1, &out);
        assert_int_equal(out.n, 1);
        assert_int_equal(out.tokens[0], n - 60); // the next token, or the original of a replaced one
        assert_int_equal(out.grades[0] == 0, n >= 70 && (n - 60) % 10 >= 1 && (n - 60) % 10 <= 3);
    }
    for (int i = 100; i < 120; i++) tokens[i] = 2000 + i; // no longer a copy
    for (int n = 101; n < 120; n++) kin_ngram_draft_propose(d, tokens, n, 1, &out);
    assert_int_equal(out.n, 0);
    kin_ngram_draft_close(d);
}

static void a_long_match_has_the_best_grade(void **state) {
    (void)state;
    int32_t tokens[60];
    kin_ngram_draft *d = open_draft();
    kin_draft out;
    for (int i = 0; i < 60; i++) tokens[i] = i % 30;
    kin_ngram_draft_propose(d, tokens, 60, 1, &out);
    assert_int_equal(out.grades[0], KIN_DRAFT_GRADES - 1);
    kin_ngram_draft_close(d);
}

// Proposing after every token gives the same drafts as proposing once for the whole text, also when tables grow.
static void a_text_that_grows_is_one_that_was_there(void **state) {
    (void)state;
    enum { N = 5000 };
    static int32_t tokens[N];
    kin_rng rng;
    kin_ngram_draft *d = open_draft();
    kin_draft out, once;
    kin_rng_seed(&rng, 1);
    for (int i = 0; i < N; i++) tokens[i] = (int32_t)(kin_rng_u64(&rng) % 5);
    for (int n = 1; n <= N; n++) {
        kin_ngram_draft_propose(d, tokens, n, 4, &out);
        if (n % 500) continue;
        kin_ngram_draft *other = open_draft();
        kin_ngram_draft_propose(other, tokens, n, 4, &once);
        assert_int_equal(out.n, once.n);
        for (int i = 0; i < out.n; i++) assert_int_equal(out.tokens[i], once.tokens[i]);
        kin_ngram_draft_close(other);
    }
    kin_ngram_draft_propose(d, tokens, 10, 4, &out); // a shorter text restarts the tables
    kin_ngram_draft_propose(d, tokens, N, 4, &out);
    assert_memory_equal(out.tokens, once.tokens, (size_t)out.n * sizeof *out.tokens);
    kin_ngram_draft_close(d);
}

// The tokens of the previous text at the same positions have no effect.
static void another_text_begins_anew(void **state) {
    (void)state;
    const int32_t before[] = {11, 12, 13, 14, 15, 16}, text[] = {1, 2, 3, 4, 5, 1, 2, 3};
    kin_ngram_draft *d = open_draft();
    kin_draft out;
    kin_ngram_draft_propose(d, before, 6, 4, &out);
    kin_ngram_draft_reset(d);
    kin_ngram_draft_propose(d, text, 8, 2, &out);
    assert_int_equal(out.n, 2);
    assert_true(out.tokens[0] == 4 && out.tokens[1] == 5);
    kin_ngram_draft_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_followed_before_is_drafted),
        cmocka_unit_test(without_a_match_of_three_there_is_no_draft),
        cmocka_unit_test(the_longest_match_wins_and_then_the_latest),
        cmocka_unit_test(an_edited_copy_is_drafted_on),
        cmocka_unit_test(a_long_match_has_the_best_grade),
        cmocka_unit_test(a_text_that_grows_is_one_that_was_there),
        cmocka_unit_test(another_text_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
