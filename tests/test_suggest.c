// Suggestions of the closest known word. app/ is a program, not a library, so this file includes its source.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "app/suggest.c"

static const char *meant(const char *word) {
    static const char *const known[] = {"run",  "join",  "status", "plan",  "profile",
                                        "eval", "bench", "info",   "cache", "gpu-layers"};
    kin_suggestion s = {.word = word};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) kin_suggest(&s, known[i]);
    return s.best ? s.best : "nothing";
}

static void the_nearest_known_word_is_meant(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"stauts", "status"}, {"stat", "status"},          {"runn", "run"},    {"rn", "run"},
        {"pln", "plan"},      {"prof", "profile"},         {"plans", "plan"},  {"gpu-layer", "gpu-layers"},
        {"cahce", "cache"},   {"gpulayers", "gpu-layers"}, {"benhc", "bench"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) assert_string_equal(meant(cases[i][0]), cases[i][1]);
}

static void what_is_far_from_all_is_nothing(void **state) {
    (void)state;
    static const char *const cases[] = {"",     "x",  "serve",
                                        "nope", "zz", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(meant(cases[i]), "nothing");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nearest_known_word_is_meant),
        cmocka_unit_test(what_is_far_from_all_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
