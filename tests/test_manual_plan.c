// Plans by rule and by hand (pure/plan/manual_plan.h), and plan files (observe/plan_file.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observe/plan_file.h"
#include "tests/place.h"

#define GB ((uint64_t)1 << 30)

static const kin_candidate home[] = {{.name = "desk", .memory = 8 * GB},
                                     {.name = "phone", .memory = 2 * GB},
                                     {.name = "laptop", .memory = 8 * GB},
                                     {.name = "tower", .memory = 22 * GB}};
enum { N_HOME = 4 };

static void even_gives_the_odd_layers_to_the_first(void **state) {
    (void)state;
    kin_plan p;
    kin_err err;
    assert_int_equal(kin_plan_even(home, N_HOME, 30, 1, &p, &err), 0);
    const int want[] = {7, 8, 8, 7}; // the head computes last
    for (int i = 0; i < N_HOME; i++) {
        assert_int_equal(p.stops[i].device, i);
        assert_int_equal(p.shares[i].n_layer, want[i]);
    }
    assert_int_equal(kin_plan_even(home, N_HOME, 30, 4, &p, &err), 0); // 8 layers per round
    assert_int_equal(p.n_rounds, 4);
    for (int i = 0; i < N_HOME; i++) assert_int_equal(p.windows[i].n_layer, 2);
}

static void by_memory_is_in_proportion(void **state) {
    (void)state;
    kin_plan p;
    kin_err err;
    assert_int_equal(kin_plan_by_memory(home, N_HOME, 40, 1, &p, &err), 0);
    const int want[] = {8, 2, 8, 22};
    for (int i = 0; i < N_HOME; i++) assert_int_equal(p.shares[i].n_layer, want[i]);
    const kin_candidate none[] = {{.name = "a"}, {.name = "b"}};
    assert_int_equal(kin_plan_by_memory(none, 2, 4, 1, &p, &err), 0);
    assert_int_equal(p.shares[0].n_layer + p.shares[1].n_layer, 4);
}

static void a_device_for_which_there_is_no_layer_is_no_member(void **state) {
    (void)state;
    kin_plan p;
    kin_err err;
    assert_int_equal(kin_plan_even(home, N_HOME, 2, 1, &p, &err), 0);
    assert_int_equal(p.n_stops, 3); // phone, laptop; the head without layers
    assert_true(p.stops[1].device == 1 && p.stops[2].device == 2 && p.shares[0].n_layer == 0 && !p.stops[0].relay);
    assert_int_equal(kin_plan_even(home, N_HOME, 8, 8, &p, &err), 0); // one layer per round
    assert_int_equal(p.n_stops, 2);
    const kin_candidate uneven[] = {
        {.name = "desk", .memory = 32 * GB}, {.name = "watch", .memory = GB / 8}, {.name = "tower", .memory = 32 * GB}};
    assert_int_equal(kin_plan_by_memory(uneven, 3, 16, 1, &p, &err), 0);
    assert_int_equal(p.n_stops, 2);
    assert_true(p.stops[1].device == 2 && p.shares[0].n_layer == 8 && p.shares[2].n_layer == 8);
}

static void ranks_of_a_group_follow_the_names(void **state) {
    (void)state;
    kin_plan p;
    const int want[] = {2, 1, 3, 0}; // laptop, phone, tower; the head
    kin_plan_one_group(home, N_HOME, N_HOME, 8, &p);
    assert_true(p.n_stops == 1 && p.n_rounds == 1 && p.groups.n == 1 && p.groups.groups[0].n == N_HOME);
    assert_memory_equal(p.groups.groups[0].devices, want, sizeof want);
    kin_plan_one_group(home, 1, N_HOME, 8, &p);
    assert_true(p.n_stops == 1 && p.groups.n == 0 && p.shares[0].n_layer == 8);
}

// Devices that had layers keep them when another device returns. The head is always a member.
static void a_group_has_no_more_devices_than_can_share(void **state) {
    (void)state;
    kin_candidate there[N_HOME];
    kin_plan p;
    const kin_group *g = &p.groups.groups[0];
    const int first[] = {1, 0}, had[] = {3, 0}, two[] = {2, 1, 0};
    memcpy(there, home, sizeof there);
    kin_plan_one_group(there, N_HOME, 2, 8, &p);
    assert_int_equal(g->n, 2);
    assert_memory_equal(g->devices, first, sizeof first);
    assert_int_equal(p.shares[0].n_layer, 8); // the last one stands for the group
    there[3].has_layers = true;
    kin_plan_one_group(there, N_HOME, 2, 8, &p);
    assert_memory_equal(g->devices, had, sizeof had);
    there[3].has_layers = false;
    kin_plan_one_group(there, N_HOME, 3, 8, &p);
    assert_memory_equal(g->devices, two, sizeof two); // laptop, phone; the head
    for (int n_most = 0; n_most < 2; n_most++) {      // the model cannot be cut; layout reports the error
        kin_plan_one_group(there, N_HOME, n_most, 8, &p);
        assert_int_equal(g->n, N_HOME);
    }
}

static void rounds_that_cannot_be_are_refused(void **state) {
    (void)state;
    kin_plan p;
    kin_err err;
    assert_int_equal(kin_plan_even(home, N_HOME, 8, 9, &p, &err), KIN_FAIL);
    assert_string_equal(err.text, "9 rounds for 8 layers");
    assert_int_equal(kin_plan_by_memory(home, N_HOME, 8, 0, &p, &err), KIN_FAIL);
}

static void a_written_plan_keeps_its_order_with_the_head_last(void **state) {
    (void)state;
    const kin_manual_plan hand = {
        .n_entries = 3, .entries = {{"desk", 1, 0, 0, 0, 0, 0}, {"tower", 6, 4, 0, GB, 0, 0}, {"phone", 0, 0, 0, 0, 0, 0}}};
    kin_plan p;
    kin_err err;
    assert_int_equal(kin_manual_plan_apply(&hand, home, N_HOME, 7, &p, &err), 0);
    assert_int_equal(p.n_stops, 3);
    assert_true(p.stops[1].device == 3 && !p.stops[1].relay);
    assert_int_equal(p.shares[3].n_layer_gpu, 4);
    assert_int_equal(p.memory[3], GB);
    assert_true(p.stops[2].device == 1 && p.stops[2].relay);
    assert_int_equal(p.shares[1].n_layer, 0);
    assert_int_equal(p.shares[0].n_layer, 1);
}

static void a_plan_without_the_head_gives_it_no_layers(void **state) {
    (void)state;
    const kin_manual_plan hand = {.n_entries = 1, .entries = {{"tower", 6, 0, 0, 0, 0, 0}}};
    kin_plan p;
    kin_err err;
    assert_int_equal(kin_manual_plan_apply(&hand, home, N_HOME, 6, &p, &err), 0);
    assert_int_equal(p.n_stops, 2);
    assert_true(p.shares[3].n_layer == 6 && p.shares[0].n_layer == 0);
}

static void a_written_group_is_one_stop_of_its_last_device(void **state) {
    (void)state;
    kin_manual_plan hand = {.n_entries = 3,
                            .entries = {{"phone", 5, 0, 0, 0, 0, 0}, {"laptop", 3, 0, 0, 0, 2, 1}, {"tower", 0, 0, 0, 0, 2, 4}}};
    kin_plan p;
    kin_err err;
    assert_int_equal(kin_manual_plan_apply(&hand, home, N_HOME, 8, &p, &err), 0);
    const kin_group *g = &p.groups.groups[0];
    assert_true(p.n_stops == 3 && p.stops[1].device == 1 && p.stops[2].device == 3);
    assert_true(p.groups.n == 1 && g->n == 2 && g->devices[0] == 2 && g->devices[1] == 3 && g->weights[1] == 4);
    assert_true(p.shares[3].n_layer == 3 && p.shares[2].n_layer == 0);
    hand.entries[0].group = 2; // three in a group, the head is not
    hand.entries[1].group = 0;
    assert_int_equal(kin_manual_plan_apply(&hand, home, N_HOME, 8, &p, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "must follow each other"));
}

static void devices_that_are_missing_or_named_twice_are_said(void **state) {
    (void)state;
    const kin_manual_plan missing = {.n_entries = 1, .entries = {{"attic", 6, 0, 0, 0, 0, 0}}};
    const kin_manual_plan twice = {.n_entries = 2, .entries = {{"tower", 6, 0, 0, 0, 0, 0}, {"tower", 1, 0, 0, 0, 0, 0}}};
    kin_plan p;
    kin_err err;
    assert_int_equal(kin_manual_plan_apply(&missing, home, N_HOME, 6, &p, &err), KIN_FAIL);
    assert_string_equal(err.text, "device 'attic' of the plan has not joined");
    assert_int_equal(kin_manual_plan_check(&missing, &err), 0);
    assert_int_equal(kin_manual_plan_check(&twice, &err), KIN_FAIL);
    assert_string_equal(err.text, "the plan names device 'tower' twice");
    assert_int_equal(kin_manual_plan_check_layers(&missing, 6, &err), 0);
    assert_int_equal(kin_manual_plan_check_layers(&missing, 5, &err), KIN_FAIL);
    assert_string_equal(err.text, "a window of 6 layers, but the model has 5");
}

// ---- files

static int read_text(const char *text, kin_manual_plan *plan, kin_err *err) {
    char path[] = "/tmp/kin-test-plan-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int rc = kin_plan_file_read(path, "desk", plan, err);
    unlink(path);
    return rc;
}
#define read_text(...) FROM_TEST(read_text(__VA_ARGS__))

static void a_file_says_device_window_gpu_layers_and_memory(void **state) {
    (void)state;
    kin_manual_plan p;
    kin_err err;
    int rc = read_text("{\"devices\": [{\"device\": \"tower\", \"window\": 8, \"gpu_layers\": 4, \"memory\": \"6G\"},"
                       "{\"device\": \"phone\", \"window\": 0, \"memory\": 1000}, {\"device\": \"head\", \"window\": 2}]}",
                       &p, &err);
    if (rc != 0) fail_msg("%s", err.text);
    assert_int_equal(p.n_entries, 3);
    assert_int_equal(p.entries[0].n_gpu_layers, 4);
    assert_int_equal(p.entries[0].memory, 6 * GB);
    assert_int_equal(p.entries[1].memory, 1000);
    assert_string_equal(p.entries[2].name, "desk");
}

static void mistakes_in_a_file_are_said_with_their_place(void **state) {
    (void)state;
    static const char *const mistakes[][2] = {
        {"", "end of file"},
        {"{\"devices\": [", "line 1"},
        {"{}", "\"devices\" must be a list"},
        {"[1]", "\"devices\" must be a list"},
        {"{\"devices\": []}", "at least one"},
        {"{\"devices\": [3]}", "device 1: \"device\" must be a name"},
        {"{\"devices\": [{\"device\": \"a\"}]}", "device 1: \"window\" must be"},
        {"{\"devices\": [{\"device\": \"a\", \"window\": -1}]}", "\"window\" must be"},
        {"{\"devices\": [{\"device\": \"a\", \"window\": 1.5}]}", "\"window\" must be"},
        {"{\"devices\": [{\"device\": \"a\", \"window\": 1, \"gpu\": 1}]}", "unknown key \"gpu\""},
        {"{\"devices\": [{\"device\": \"a\", \"window\": 1, \"memory\": \"much\"}]}", "much"},
        {"{\"devices\": [{\"device\": \"a\", \"window\": 1, \"memory\": -5}]}", "\"memory\" must be a size"},
        {"{\"devices\": [{\"group\": [\"a\", \"a\"], \"window\": 1}]}", "names device 'a' twice"},
        {"{\"devices\": [{\"group\": [1, 2, 3, 4, 5, 6, 7, 8, 9], \"window\": 1}]}", "of 9 devices: at most 8 are allowed"},
        {"{\"devices\": [{\"device\": \"head\", \"window\": 1}, {\"device\": \"desk\", \"window\": 1}]}", "'desk' twice"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        kin_manual_plan p;
        kin_err err;
        assert_int_equal(read_text(mistakes[i][0], &p, &err), KIN_FAIL);
        if (!strstr(err.text, mistakes[i][1])) fail_msg("'%s' gives '%s'", mistakes[i][0], err.text);
    }
    kin_manual_plan p;
    kin_err err;
    assert_int_equal(kin_plan_file_read("/nonexistent/plan.json", "desk", &p, &err), KIN_FAIL);
    assert_string_equal(err.text,
                        "--plan /nonexistent/plan.json: there is no such file, and the words are auto, even, memory and tp");
    assert_int_equal(kin_plan_file_read("/", "desk", &p, &err), KIN_FAIL);
    assert_string_equal(err.text, "/: Is a directory");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_gives_the_odd_layers_to_the_first),
        cmocka_unit_test(by_memory_is_in_proportion),
        cmocka_unit_test(a_device_for_which_there_is_no_layer_is_no_member),
        cmocka_unit_test(ranks_of_a_group_follow_the_names),
        cmocka_unit_test(a_group_has_no_more_devices_than_can_share),
        cmocka_unit_test(rounds_that_cannot_be_are_refused),
        cmocka_unit_test(a_written_plan_keeps_its_order_with_the_head_last),
        cmocka_unit_test(a_plan_without_the_head_gives_it_no_layers),
        cmocka_unit_test(a_written_group_is_one_stop_of_its_last_device),
        cmocka_unit_test(devices_that_are_missing_or_named_twice_are_said),
        cmocka_unit_test(a_file_says_device_window_gpu_layers_and_memory),
        cmocka_unit_test(mistakes_in_a_file_are_said_with_their_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
