// What the page is told of plans: those of measured facts with times, reasons and links; those by rule without.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/facts_file.h"
#include "serve/cluster_json.h"

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
        n_leave += strstr(text_of(d, "why"), "without it") != NULL;
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
    b->facts.n_device = 0; // as of a question without facts; names are there
    memset(b->facts.links, 0, sizeof b->facts.links);
    json_t *json = kin_plan_basis_json(b);
    assert_non_null(strstr(text_of(json, "not_predicted"), "nothing was measured"));
    assert_null(json_object_get(json, "tpot_ms"));
    assert_int_equal(json_array_size(json_object_get(json, "ring")), b->plan.n_stops);
    assert_int_equal(json_array_size(json_object_get(json, "links")), 0);
    json_decref(json);
    free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_measured_plan_has_times_reasons_and_the_links_of_its_ring),
        cmocka_unit_test(a_plan_by_rule_says_that_nothing_was_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
