// Plans for the web page: measured ones with times, reasons and links; those by rule without.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/facts_file.h"
#include "serve/cluster_json.h"
#include "tests/place.h"

static const char *text_of(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static kin_plan_basis *basis_of(const char *file) {
    kin_plan_basis *b = calloc(1, sizeof *b);
    kin_plan_options options = kin_plan_options_defaults();
    kin_err err;
    assert_non_null(b);
    if (kin_facts_file_read(file, &b->facts, &err) != 0) fail_msg("%s", err.text);
    if (kin_plan_playoff(&b->facts, &options, &b->plan, &err) != 0) fail_msg("%s", err.text);
    return b;
}
#define basis_of(...) FROM_TEST(basis_of(__VA_ARGS__))

static void a_measured_plan_has_times_reasons_and_the_links_of_its_ring(void **state) {
    (void)state;
    kin_plan_basis *b = basis_of(KIN_SOURCE_DIR "/assets/facts/home.json");
    json_t *json = kin_plan_basis_json(b);
    const json_t *devices = json_object_get(json, "devices"), *links = json_object_get(json, "links");
    int n_layer = 0, n_leave = 0;
    assert_true(json_number_value(json_object_get(json, "tpot_ms")) > 0);
    assert_int_equal(json_array_size(devices), b->facts.n_device);
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *d = json_array_get(devices, i);
        n_layer += (int)json_integer_value(json_object_get(d, "layers"));
        const json_t *without = json_object_get(d, "without");
        assert_int_equal(without != NULL, strstr(text_of(d, "why"), "without it") != NULL);
        assert_true(!without || json_is_boolean(json_object_get(without, "fits")));
        assert_int_equal(json_object_get(without, "more_ms") != NULL, json_is_true(json_object_get(without, "fits")));
        n_leave += without != NULL;
        assert_true(text_of(d, "why")[0]);
    }
    assert_int_equal(n_layer, b->facts.model.n_layer);
    assert_true(n_leave >= 1);
    assert_int_equal(json_array_size(links), b->plan.n_stops);
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *l = json_array_get(links, i);
        const json_t *next = json_array_get(links, (i + 1) % json_array_size(links));
        assert_string_equal(text_of(l, "to"), text_of(next, "from"));
        assert_true(json_number_value(json_object_get(l, "rtt_ms")) > 0);
    }
    json_decref(json);
    free(b);
}

static void a_plan_by_rule_says_that_nothing_was_measured(void **state) {
    (void)state;
    kin_plan_basis *b = basis_of(KIN_SOURCE_DIR "/assets/facts/home.json");
    b->facts.n_device = 0; // as for a question without facts; the names are still there
    memset(b->facts.links, 0, sizeof b->facts.links);
    json_t *json = kin_plan_basis_json(b);
    assert_non_null(strstr(text_of(json, "not_predicted"), "not made from measurements"));
    assert_null(json_object_get(json, "tpot_ms"));
    assert_true(json_array_size(json_object_get(json, "devices")) >= (size_t)b->plan.n_stops);
    assert_int_equal(json_array_size(json_object_get(json, "ring")), b->plan.n_stops);
    assert_int_equal(json_array_size(json_object_get(json, "links")), 0);
    json_decref(json);
    free(b);
}

// Two devices share all layers; the second has a third of each.
static kin_plan_basis *group_of_two(void) {
    kin_plan_basis *b = basis_of(KIN_SOURCE_DIR "/assets/facts/home.json");
    int n_layer = b->facts.model.n_layer;
    b->facts.n_device = 2;
    b->facts.model.share_heads = b->facts.model.share_ff = 8;
    b->facts.devices[2].name[0] = '\0';
    b->facts.devices[0].memory_bytes = b->facts.devices[1].memory_bytes = 64e9;
    b->facts.links[0][1] = b->facts.links[1][0] = (kin_link_facts){.rtt_s = 1e-4, .bytes_s = 1e9};
    b->plan = (kin_plan){.n_rounds = 1, .n_stops = 1, .stops = {{0, false}}, .shares = {{n_layer, 0, 0}}};
    b->plan.groups = (kin_grouping){.n = 1, .groups = {{.n = 2, .devices = {1, 0}, .weights = {1, 2}}}};
    return b;
}
#define group_of_two(...) FROM_TEST(group_of_two(__VA_ARGS__))

static void expect_the_group(const kin_plan_basis *b, const json_t *json) {
    const json_t *groups = json_object_get(json, "groups"), *group = json_array_get(groups, 0);
    const json_t *names = json_object_get(group, "devices"), *shares = json_object_get(group, "shares");
    assert_int_equal(json_array_size(groups), 1);
    assert_string_equal(json_string_value(json_array_get(names, 0)), b->facts.devices[1].name);
    assert_string_equal(json_string_value(json_array_get(names, 1)), b->facts.devices[0].name);
    assert_true(fabs(json_number_value(json_array_get(shares, 0)) - 1. / 3) < 1e-9);
    assert_int_equal(json_integer_value(json_object_get(group, "layers")), b->facts.model.n_layer);
    for (size_t i = 0; i < 2; i++) {
        const json_t *d = json_array_get(json_object_get(json, "devices"), i);
        assert_int_equal(json_integer_value(json_object_get(d, "layers")), b->facts.model.n_layer);
        assert_string_equal(text_of(json_array_get(json_object_get(json, "ring"), i), "name"), b->facts.devices[1 - i].name);
    }
    assert_int_equal(json_array_size(json_object_get(json, "ring")), 2);
    assert_int_equal(json_array_size(json_object_get(json, "links")), 2);
}
#define expect_the_group(...) FROM_TEST(expect_the_group(__VA_ARGS__))

static void a_group_in_force_is_told_with_its_shares_its_sums_and_what_it_is_worth(void **state) {
    (void)state;
    kin_plan_basis *b = group_of_two();
    json_t *json = kin_plan_basis_json(b);
    const json_t *group = json_array_get(json_object_get(json, "groups"), 0);
    expect_the_group(b, json);
    assert_true(json_number_value(json_object_get(json, "tpot_ms")) > 0);
    assert_true(json_number_value(json_object_get(group, "sums_ms")) > 0);
    assert_non_null(strstr(text_of(json, "group"), " a token, the ring "));
    for (size_t i = 0; i < 2; i++)
        assert_non_null(strstr(text_of(json_array_get(json_object_get(json, "devices"), i), "why"), " with "));
    json_decref(json);
    free(b);
}

static void a_group_by_rule_is_told_though_nothing_was_measured(void **state) {
    (void)state;
    kin_plan_basis *b = group_of_two();
    b->facts.n_device = 0;
    json_t *json = kin_plan_basis_json(b);
    assert_null(json_object_get(json, "tpot_ms"));
    expect_the_group(b, json);
    json_decref(json);
    free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_measured_plan_has_times_reasons_and_the_links_of_its_ring),
        cmocka_unit_test(a_plan_by_rule_says_that_nothing_was_measured),
        cmocka_unit_test(a_group_in_force_is_told_with_its_shares_its_sums_and_what_it_is_worth),
        cmocka_unit_test(a_group_by_rule_is_told_though_nothing_was_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
