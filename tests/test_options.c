// Options of the command line and the environment. app/ is a program, not a library, so this file includes its options' source.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <unistd.h>

#include "app/options.c"
#include "app/suggest.c"
#include "tests/place.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct values {
    bool flag;
    int n, threads;
    float temp;
    uint64_t memory, seed;
    const char *name, *file;
    bool shared;
    int needy;
} values;

enum { N_OWN = 12, N_SHARED = 2, N_NEEDY = 3 };

typedef struct tables {
    kin_option own[N_OWN], shared[N_SHARED], needy[N_NEEDY];
} tables;

static void fill_tables(values *v, tables *t) {
    *v = (values){.n = 5, .temp = 0.5f, .memory = 7, .seed = 9, .name = "default"};
    const kin_option own[N_OWN] = {
        {KIN_OPTION_FLAG, "a-flag", 'a', &v->flag, NULL, "a flag", 0, 0},
        {KIN_OPTION_INT, "n", 'n', &v->n, "N", "a count", -10, 100},
        {KIN_OPTION_FLOAT, "temp", 0, &v->temp, "T", "a number", 0, 2},
        {KIN_OPTION_SIZE, "memory", 0, &v->memory, "SIZE", "bytes", 0, 0},
        {KIN_OPTION_U64, "seed", 's', &v->seed, "N", "any number", 0, 0},
        {KIN_OPTION_STRING, "name", 0, &v->name, "TEXT", "a text", 0, 0},
        {KIN_OPTION_STRING, "file", 0, &v->file, "FILE", "a file", 0, 0},
        {KIN_OPTION_STRING, "some", 0, &v->file, "N|all|auto", "some", 0, 0},
        {KIN_OPTION_STRING, "plan", 0, &v->file, "even|FILE", "a plan", 0, 0},
        {KIN_OPTION_ADDRESS, "listen", 0, &v->file, "ADDRESS", "an address", 0, 0},
        {KIN_OPTION_THREADS, "threads", 't', &v->threads, "N", "CPU threads", 0, 1024},
        {0},
    };
    const kin_option shared[N_SHARED] = {{KIN_OPTION_FLAG, "shared", 0, &v->shared, NULL, "in the second table", 0, 0}, {0}};
    memcpy(t->own, own, sizeof own);
    const kin_option needy[N_NEEDY] = {{KIN_OPTION_NEEDS, "shared", 0, &v->shared, NULL, NULL, 0, 0},
                                       {KIN_OPTION_INT, "needy", 0, &v->needy, "N", "a count", 0, 9},
                                       {0}};
    memcpy(t->shared, shared, sizeof shared);
    memcpy(t->needy, needy, sizeof needy);
}

// Parses the words up to NULL, starting from the defaults.
static int parse_words(values *v, const char **operand, kin_err *err, const char *const *words) {
    tables t;
    char *argv[16];
    int argc = 0;
    fill_tables(v, &t);
    while (words[argc]) {
        argv[argc] = (char *)words[argc];
        argc++;
    }
    return kin_options_parse((kin_option_tables){t.own, t.shared, t.needy}, argc, argv, operand, err);
}

#define parse(v, operand, err, ...) parse_words(v, operand, err, (const char *const[]){__VA_ARGS__, NULL})

static void without_words_the_defaults_stay(void **state) {
    (void)state;
    values v;
    kin_err err;
    assert_int_equal(parse_words(&v, NULL, &err, (const char *const[]){NULL}), 0);
    assert_false(v.flag);
    assert_int_equal(v.n, 5);
    assert_true(v.temp == 0.5f);
    assert_string_equal(v.name, "default");
}

static void every_kind_is_parsed(void **state) {
    (void)state;
    values v;
    kin_err err;
    assert_int_equal(parse(&v, NULL, &err, "--a-flag", "--n", "-3", "--temp", "1.25", "--memory", "1.5G", "--seed",
                           "18446744073709551615", "--name", "--n", "--shared"),
                     0);
    assert_true(v.flag && v.shared);
    assert_int_equal(v.n, -3);
    assert_true(v.temp == 1.25f);
    assert_true(v.memory == 3ull << 29);
    assert_true(v.seed == UINT64_MAX);
    assert_string_equal(v.name, "--n"); // a value may look like an option
}

static void values_may_follow_an_equals_sign(void **state) {
    (void)state;
    values v;
    kin_err err;
    assert_int_equal(parse(&v, NULL, &err, "--n=7", "--name=a=b", "--a-flag=0", "--shared=1"), 0);
    assert_int_equal(v.n, 7);
    assert_string_equal(v.name, "a=b");
    assert_false(v.flag);
    assert_true(v.shared);
    assert_int_equal(parse(&v, NULL, &err, "--name="), 0);
    assert_string_equal(v.name, "");
}

static void words_to_choose_from_are_accepted(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"--some", "0"},          {"--some", "12"},   {"--some", "all"},
                                           {"--some", "auto"},       {"--plan", "even"}, {"--plan", "my.json"},
                                           {"--listen", "10.0.0.1"}, {"--listen", "::"}, {"--listen", "fe80::1%lo"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        values v;
        kin_err err;
        assert_int_equal(parse(&v, NULL, &err, cases[i][0], cases[i][1]), 0);
        assert_string_equal(v.file, cases[i][1]);
    }
}

static void letters_stand_for_names(void **state) {
    (void)state;
    values v;
    kin_err err;
    assert_int_equal(parse(&v, NULL, &err, "-a", "-n", "8", "-s", "0"), 0);
    assert_true(v.flag);
    assert_int_equal(v.n, 8);
    assert_true(v.seed == 0);
}

static void the_last_of_several_wins(void **state) {
    (void)state;
    values v;
    kin_err err;
    assert_int_equal(parse(&v, NULL, &err, "-n", "1", "--n=2", "-n", "3"), 0);
    assert_int_equal(v.n, 3);
}

static void limits_are_part_of_the_range(void **state) {
    (void)state;
    values v;
    kin_err err;
    assert_int_equal(parse(&v, NULL, &err, "--n", "-10", "--temp", "2"), 0);
    assert_int_equal(v.n, -10);
    assert_int_equal(parse(&v, NULL, &err, "--n", "100", "--temp", "0"), 0);
    assert_int_equal(v.n, 100);
}

static void wrong_words_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *words[4], *expected;
    } cases[] = {
        {{"--nope"}, "unknown option '--nope'"},
        {{"--nope=1"}, "unknown option '--nope=1'"},
        {{"-x"}, "unknown option '-x'"},
        {{"-n5"}, "unknown option '-n5'"},
        {{"--"}, "unknown option '--'"},
        {{"--temp2", "1"}, "unknown option '--temp2'"},
        {{"--tem", "1"}, "unknown option '--tem'; did you mean --temp?"},
        {{"--n"}, "--n needs a value (N)"},
        {{"-n"}, "--n needs a value (N)"},
        {{"--n", "x"}, "--n x: must be a whole number from -10 to 100"},
        {{"--n", ""}, "--n : must be a whole number from -10 to 100"},
        {{"--n", "1.5"}, "--n 1.5"},
        {{"--n", "101"}, "--n 101: must be a whole number from -10 to 100"},
        {{"--n", "-11"}, "--n -11"},
        {{"--n", "99999999999999999999"}, "--n 9999"},
        {{"--temp", "2.01"}, "--temp 2.01: must be a number from 0 to 2"},
        {{"--temp", "nan"}, "--temp nan"},
        {{"--temp", "inf"}, "--temp inf"},
        {{"--temp", "1e999"}, "--temp 1e999"},
        {{"--seed", "-2"}, "--seed -2: must be a whole number"},
        {{"--seed", "12x"}, "--seed 12x"},
        {{"--seed", "18446744073709551616"}, "--seed 18446744073709551616"},
        {{"--memory", "1X"}, "--memory"},
        {{"--memory", "-1"}, "--memory"},
        {{"--file", ""}, "--file: the value is empty"},
        {{"--some", ""}, "--some : must be a number, all or auto"},
        {{"--some", "1x"}, "--some 1x: must be a number, all or auto"},
        {{"--some", "-1"}, "--some -1: must be"},
        {{"--some", "al"}, "--some al: must be"},
        {{"--plan", ""}, "--plan : must be even or a FILE"},
        {{"--listen", "desk"}, "--listen desk: must be a numeric address"},
        {{"--listen", "1.2.3"}, "--listen 1.2.3: must be"},
        {{"word"}, "unexpected argument 'word'"},
        {{"-"}, "unexpected argument '-'"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        values v;
        kin_err err = {""};
        if (parse_words(&v, NULL, &err, cases[i].words) != KIN_FAIL) fail_msg("%s is accepted", cases[i].words[0]);
        if (!strstr(err.text, cases[i].expected)) fail_msg("'%s' is not: %s", err.text, cases[i].expected);
    }
}

static void what_needs_a_flag_is_refused_without_it(void **state) {
    (void)state;
    values v;
    kin_err err;
    assert_int_equal(parse(&v, NULL, &err, "--needy", "3"), KIN_FAIL);
    assert_string_equal(err.text, "--needy has no effect without --shared");
    assert_int_equal(parse(&v, NULL, &err, "--needy=3", "--shared=0"), KIN_FAIL);
    assert_int_equal(parse(&v, NULL, &err, "--needy", "3", "--shared"), 0); // the order does not matter
    assert_int_equal(v.needy, 3);
    setenv("KIN_NEEDY", "4", 1); // not an error: it is for other commands
    assert_int_equal(parse(&v, NULL, &err, "-n", "1"), 0);
    unsetenv("KIN_NEEDY");
    setenv("KIN_SHARED", "1", 1);
    assert_int_equal(parse(&v, NULL, &err, "--needy", "3"), 0);
    unsetenv("KIN_SHARED");
}

static void a_flag_is_on_or_off_in_words_too(void **state) {
    (void)state;
    static const char *const words[][2] = {{"0", "1"}, {"false", "true"}, {"no", "yes"}, {"off", "on"}, {"FALSE", "True"}};
    values v;
    kin_err err;
    for (size_t i = 0; i < COUNT(words); i++) {
        for (int on = 0; on < 2; on++) {
            setenv("KIN_A_FLAG", words[i][on], 1);
            assert_int_equal(parse(&v, NULL, &err, "-n", "1"), 0);
            assert_true(v.flag == on);
        }
    }
    setenv("KIN_A_FLAG", "maybe", 1);
    assert_int_equal(parse(&v, NULL, &err, "-n", "1"), KIN_FAIL);
    assert_string_equal(err.text, "environment variable KIN_A_FLAG: --a-flag: 'maybe': must be 1 or 0");
    unsetenv("KIN_A_FLAG");
    assert_int_equal(parse(&v, NULL, &err, "--a-flag="), KIN_FAIL);
}

static void one_word_that_is_no_option_may_stand_anywhere(void **state) {
    (void)state;
    values v;
    kin_err err;
    const char *operand = NULL;
    assert_int_equal(parse(&v, &operand, &err, "-a", "file", "--n", "1"), 0);
    assert_string_equal(operand, "file");
    assert_int_equal(parse(&v, &operand, &err, "second"), KIN_FAIL); // a second operand
    operand = NULL;
    assert_int_equal(parse(&v, &operand, &err, "a", "b"), KIN_FAIL);
    assert_non_null(strstr(err.text, "unexpected argument 'b'"));
}

static void the_environment_counts_and_the_command_line_wins(void **state) {
    (void)state;
    values v;
    kin_err err;
    setenv("KIN_N", "11", 1);
    setenv("KIN_A_FLAG", "1", 1);
    setenv("KIN_SHARED", "0", 1);
    setenv("KIN_NAME", "", 1); // empty: like unset
    assert_int_equal(parse(&v, NULL, &err, "--temp", "1"), 0);
    assert_int_equal(v.n, 11);
    assert_true(v.flag);
    assert_false(v.shared);
    assert_string_equal(v.name, "default");
    assert_int_equal(parse(&v, NULL, &err, "--n", "12"), 0);
    assert_int_equal(v.n, 12);

    setenv("KIN_N", "many", 1);
    assert_int_equal(parse(&v, NULL, &err, "--n", "12"), KIN_FAIL);
    assert_non_null(strstr(err.text, "environment variable KIN_N"));
    unsetenv("KIN_N");
    unsetenv("KIN_A_FLAG");
    unsetenv("KIN_SHARED");
    unsetenv("KIN_NAME");
}

static void presets_count_less_than_the_environment_and_the_command_line(void **state) {
    (void)state;
    static const kin_option_preset presets[] = {{"n", "3", "kin.conf", 1, true},
                                                {"a-flag", "1", "kin.conf", 2, true},
                                                {"n", "4", "kin.conf", 3, true},
                                                {"name", "preset", "kin.conf", 4, true},
                                                {"of-others", "x", "kin.conf", 5, true}};
    values v;
    kin_err err;
    kin_options_preset(presets, COUNT(presets));
    assert_int_equal(parse(&v, NULL, &err, "--temp", "1"), 0);
    assert_int_equal(v.n, 4); // the last one wins
    assert_true(v.flag);
    assert_true(kin_options_is_preset("name", v.name));
    setenv("KIN_N", "5", 1);
    const char same[] = "preset"; // at another address than the literal
    assert_int_equal(parse(&v, NULL, &err, "--name", same), 0);
    assert_int_equal(v.n, 5);
    assert_false(kin_options_is_preset("name", v.name)); // the same text, but from the command line
    assert_int_equal(parse(&v, NULL, &err, "-n", "6", "--a-flag=0"), 0);
    assert_int_equal(v.n, 6);
    assert_false(v.flag);
    unsetenv("KIN_N");
    kin_options_preset(NULL, 0);
}

static void a_wrong_preset_is_named_with_its_line(void **state) {
    (void)state;
    static const kin_option_preset presets[] = {{"n", "3", "kin.conf", 1, true}, {"n", "many", "kin.conf", 7, true}};
    values v;
    kin_err err;
    kin_options_preset(presets, COUNT(presets));
    assert_int_equal(parse(&v, NULL, &err, "-n", "1"), KIN_FAIL);
    assert_string_equal(err.text, "kin.conf:7: --n many: must be a whole number from -10 to 100");
    kin_options_preset(NULL, 0);
}

static void a_preset_for_all_commands_is_ignored_where_it_does_not_fit(void **state) {
    (void)state;
    static const kin_option_preset presets[] = {{"a-flag", "a text", "kin.conf", 1, false}, {"name", "own", "kin.conf", 2, true}};
    values v;
    kin_err err;
    kin_options_preset(presets, COUNT(presets));
    assert_int_equal(parse(&v, NULL, &err, "-n", "1"), 0);
    assert_false(v.flag);
    assert_true(kin_options_is_preset("name", v.name));
    assert_false(kin_options_is_for_all("name", v.name));
    kin_options_preset(NULL, 0);
}

static void a_value_can_be_checked_without_being_set(void **state) {
    (void)state;
    values v;
    tables t;
    kin_err err;
    fill_tables(&v, &t);
    kin_option_tables all = {t.own, t.shared, t.needy};
    assert_int_equal(kin_options_check(all, "n", "7", &err), 0);
    assert_int_equal(v.n, 5);
    assert_int_equal(kin_options_check(all, "n", "many", &err), KIN_FAIL);
    assert_int_equal(kin_options_check(all, "a-flag", NULL, &err), 0);
    assert_false(v.flag);
    assert_int_equal(kin_options_check(all, "name", NULL, &err), KIN_FAIL);
    assert_string_equal(err.text, "--name needs a value (TEXT)");
    assert_int_equal(kin_options_check(all, "nothing", "1", &err), KIN_FAIL);
    assert_string_equal(err.text, "unknown option 'nothing'");
}

static void an_option_of_the_command_line_is_told_from_a_preset(void **state) {
    (void)state;
    char *words[] = {(char[]){"--file=x"}, (char[]){"--name"}, (char[]){"--plan"}};
    values v;
    tables t;
    fill_tables(&v, &t);
    kin_option_tables all = {t.own, t.shared, t.needy};
    assert_true(kin_options_gives_way(all, 3, words, "plan", "file")); // "--plan" is a value here
    assert_true(kin_options_gives_way(all, 3, words, "plan", "name"));
    assert_false(kin_options_gives_way(all, 3, words, "file", "name"));
    assert_false(kin_options_gives_way(all, 3, words, "name", "plan"));
    assert_string_equal(kin_options_find(all, "--file=x")->name, "file");
    assert_string_equal(kin_options_find(all, "-n")->name, "n");
    assert_null(kin_options_find(all, "file"));
    assert_null(kin_options_find(all, "--nothing"));
}

// Returns the output of kin_options_help in `text`.
static void capture_help(char *text, size_t n) {
    values v;
    tables t;
    char path[] = "/tmp/kin-test-options-XXXXXX";
    fill_tables(&v, &t);
    fflush(stdout);
    int kept = dup(STDOUT_FILENO), fd = mkstemp(path);
    assert_true(fd >= 0 && kept >= 0);
    dup2(fd, STDOUT_FILENO);
    kin_options_help((kin_option_tables){t.own, t.shared, t.needy});
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    ssize_t len = pread(fd, text, n - 1, 0);
    assert_true(len > 0);
    text[len] = '\0';
    close(kept);
    close(fd);
    unlink(path);
}
#define capture_help(...) FROM_TEST(capture_help(__VA_ARGS__))

static char logged[256];

static void keep_line(void *user, kin_log_level level, const char *line) {
    (void)user;
    (void)level;
    snprintf(logged, sizeof logged, "%s", line);
}

static void more_threads_than_the_machine_runs_at_once_are_capped_with_a_sentence(void **state) {
    (void)state;
    values v;
    kin_err err;
    char most[16], more[16];
    snprintf(most, sizeof most, "%d", kin_cpu_n_threads());
    snprintf(more, sizeof more, "%d", kin_cpu_n_threads() + 1);
    kin_log_set_sink(keep_line, NULL);
    logged[0] = '\0';
    assert_int_equal(parse(&v, NULL, &err, "-t", most), 0);
    assert_int_equal(v.threads, kin_cpu_n_threads());
    assert_string_equal(logged, "");
    assert_int_equal(parse(&v, NULL, &err, "-t", more), 0);
    assert_int_equal(v.threads, kin_cpu_n_threads());
    assert_non_null(strstr(logged, "hardware threads"));
    assert_int_equal(parse(&v, NULL, &err, "--threads=1025"), KIN_FAIL);
    assert_int_equal(parse(&v, NULL, &err, "--threads=-1"), KIN_FAIL);
    kin_log_set_sink(NULL, NULL);
}

static void help_has_a_line_for_every_option_of_every_table(void **state) {
    (void)state;
    char text[4096];
    int n_lines = 0;
    capture_help(text, sizeof text);
    for (const char *p = text; *p; p++) n_lines += *p == '\n';
    assert_int_equal(n_lines, N_OWN - 1 + N_SHARED - 1 + N_NEEDY - 2 + 2); // a blank line and a heading before N_NEEDY's options
    static const char *const expected[] = {"-a, --a-flag ",       "-n, --n N ",         "    --temp T ", "--memory SIZE ",
                                           "in the second table", "\nWith --shared:\n", "--needy N "};
    for (size_t i = 0; i < COUNT(expected); i++) {
        if (!strstr(text, expected[i])) fail_msg("no '%s' in:\n%s", expected[i], text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_words_the_defaults_stay),
        cmocka_unit_test(every_kind_is_parsed),
        cmocka_unit_test(values_may_follow_an_equals_sign),
        cmocka_unit_test(words_to_choose_from_are_accepted),
        cmocka_unit_test(letters_stand_for_names),
        cmocka_unit_test(the_last_of_several_wins),
        cmocka_unit_test(limits_are_part_of_the_range),
        cmocka_unit_test(wrong_words_are_refused_by_name),
        cmocka_unit_test(what_needs_a_flag_is_refused_without_it),
        cmocka_unit_test(a_flag_is_on_or_off_in_words_too),
        cmocka_unit_test(one_word_that_is_no_option_may_stand_anywhere),
        cmocka_unit_test(the_environment_counts_and_the_command_line_wins),
        cmocka_unit_test(presets_count_less_than_the_environment_and_the_command_line),
        cmocka_unit_test(a_wrong_preset_is_named_with_its_line),
        cmocka_unit_test(a_preset_for_all_commands_is_ignored_where_it_does_not_fit),
        cmocka_unit_test(a_value_can_be_checked_without_being_set),
        cmocka_unit_test(an_option_of_the_command_line_is_told_from_a_preset),
        cmocka_unit_test(more_threads_than_the_machine_runs_at_once_are_capped_with_a_sentence),
        cmocka_unit_test(help_has_a_line_for_every_option_of_every_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
