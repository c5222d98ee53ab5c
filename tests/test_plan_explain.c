// Explanations: one sentence per device, whose numbers equal those of planning without the device, or with it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/plan/explain.h"
#include "pure/plan/timeline.h"
#include "testkit/paper_clusters.h"
#include "tests/place.h"

static char sentences[KIN_FACTS_MAX_DEVICES][KIN_PLAN_EXPLAIN_MAX];
static kin_plan_without without[KIN_FACTS_MAX_DEVICES];

static kin_plan explain(const kin_facts *facts, const kin_plan_options *options) {
    kin_plan plan;
    kin_err err;
    if (kin_plan_playoff(facts, options, &plan, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_plan_explain(facts, options, &plan, sentences, without, &err), 0);
    for (int i = 0; i < facts->n_device; i++) print_message("%s\n", sentences[i]);
    return plan;
}
#define explain(...) FROM_TEST(explain(__VA_ARGS__))

static double played(const kin_facts *facts, const kin_plan *plan) {
    double s;
    kin_err err;
    if (kin_timeline_play(facts, plan, &s, &err) != 0) fail_msg("%s", err.text);
    return s;
}
#define played(...) FROM_TEST(played(__VA_ARGS__))

// Returns the number before " ms/token", in seconds.
static double number_of(const char *sentence) {
    const char *end = strstr(sentence, " ms/token");
    assert_non_null(end);
    const char *at = end;
    while (at > sentence && at[-1] != ' ') at--;
    return atof(at) / 1e3;
}
#define number_of(...) FROM_TEST(number_of(__VA_ARGS__))

static void a_device_left_out_says_what_it_would_add(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults(), with = options;
    kin_facts facts;
    kin_plan forced;
    kin_err err;
    kin_paper_facts(&facts, KIN_PAPER_A4, KIN_PAPER_70B, 0);
    kin_plan plan = explain(&facts, &options);
    int phone = kin_paper_device(&facts, "phone");
    assert_non_null(strstr(sentences[phone], "phone left out: it would add "));
    with.force_in = kin_device_bit(phone);
    assert_int_equal(kin_plan_playoff(&facts, &with, &forced, &err), 0);
    assert_true(forced.shares[phone].n_layer > 0);
    double more_s = played(&facts, &forced) - played(&facts, &plan);
    assert_true(fabs(number_of(sentences[phone]) - more_s) < 0.005 * more_s);
    char why[KIN_PLAN_WHY_MAX];
    assert_int_equal(kin_plan_explain_left_out(&facts, &options, &plan, phone, why, &err), 0);
    assert_string_equal(sentences[phone] + strlen("phone left out: "), why);
    assert_int_equal(kin_plan_explain_left_out(&facts, &options, &forced, phone, why, &err), 0); // with another plan in force
    assert_string_equal(why, "it would not make the ring faster");
}

static void a_device_in_use_says_what_is_slower_without_it(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults(), without = options;
    kin_facts facts;
    kin_plan other;
    kin_err err;
    kin_paper_facts(&facts, KIN_PAPER_A4, KIN_PAPER_70B, 0);
    kin_plan plan = explain(&facts, &options);
    int pc = kin_paper_device(&facts, "host PC");
    without.leave_out = kin_device_bit(pc);
    assert_int_equal(kin_plan_playoff(&facts, &without, &other, &err), 0);
    double more_s = played(&facts, &other) - played(&facts, &plan);
    assert_true(fabs(number_of(sentences[pc]) - more_s) < 0.005 * more_s);
    assert_non_null(strstr(sentences[pc], "host PC: 19 layers, all on the GPU; without it "));
    assert_non_null(strstr(sentences[0], "the head"));
}

static void every_kind_of_device_has_its_sentence(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_30B, 5); // D3, D2, D1, D4, D5
    int d2 = kin_paper_device(&facts, "D2"), d1 = kin_paper_device(&facts, "D1");
    int d4 = kin_paper_device(&facts, "D4"), d5 = kin_paper_device(&facts, "D5");
    facts.links[0][d2].bytes_s = facts.links[d2][0].bytes_s = 0; // only through D1
    for (int other = d4; other <= d5; other++) facts.links[d2][other].bytes_s = facts.links[other][d2].bytes_s = 0;
    for (int q = 0; q < KIN_N_QUANT; q++) facts.devices[d1].cpu.token_bytes_s[q] = 1e9;
    facts.devices[d4].disk_bytes_s = NAN;
    options.leave_out = kin_device_bit(d5);
    explain(&facts, &options);
    assert_non_null(strstr(sentences[d1], "D1 is a relay between D3 and D2: a layer there would add "));
    assert_string_equal(sentences[d4], "D4 refused: disk rate is not a number");
    assert_string_equal(sentences[d5], "D5 left out by request");

    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 2);
    facts.devices[0].disk_bytes_s = 0;
    facts.devices[0].has_gpu = false;
    options.leave_out = 0;
    explain(&facts, &options);
    assert_non_null(strstr(sentences[1], "without it the model does not fit"));
    assert_true(isinf(without[1].more_s));

    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_8B, 2);
    facts.devices[1].memory_bytes = 1e6;
    facts.devices[1].has_gpu = false;
    explain(&facts, &options);
    assert_string_equal(sentences[1], "D2 left out: it cannot hold a layer");
}

static void a_head_may_have_no_layers(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_8B, 2); // D3, D2, both with a GPU
    kin_device_facts *head = &facts.devices[0];
    head->has_gpu = false;
    for (int q = 0; q < KIN_N_QUANT; q++) head->cpu.token_bytes_s[q] = 5e9;
    facts.devices[1].gpu_memory_bytes = facts.devices[1].memory_bytes = 64e9;
    kin_plan plan = explain(&facts, &options);
    assert_int_equal(plan.shares[0].n_layer, 0);
    assert_non_null(strstr(sentences[0], "D3 is the head, with embedding and output only: a layer there would add "));
    assert_non_null(strstr(sentences[1], "D2: 32 layers, all on the GPU; without it "));
    head->memory_bytes = facts.model.cpu_buffer_bytes + kin_facts_bytes_sum(facts.model.output_bytes);
    head->disk_bytes_s = head->disk_random_bytes_s = 0;
    explain(&facts, &options);
    assert_string_equal(sentences[0], "D3 is the head, with embedding and output only: it cannot hold a layer");
}

// A chain D3 - D2 - D1: D2 computes in one direction and is a relay in the other.
static void a_worker_can_be_a_relay_too(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 3);
    int d2 = kin_paper_device(&facts, "D2"), d1 = kin_paper_device(&facts, "D1");
    facts.links[0][d1].bytes_s = facts.links[d1][0].bytes_s = 0;
    options.force_in = kin_device_bit(d1);
    explain(&facts, &options);
    assert_non_null(strstr(sentences[d2], "; also a relay between D3 and D1; without it the model does not fit"));
}

static void long_times_are_said_in_plain_figures(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 4);
    kin_plan plan = explain(&facts, &options);
    for (int i = 1; i < facts.n_device; i++) {
        options.leave_out = kin_device_bit(i);
        kin_plan other;
        if (kin_plan_playoff(&facts, &options, &other, NULL) != 0) continue;
        assert_null(strstr(sentences[i], "e+"));
        double more_s = played(&facts, &other) - played(&facts, &plan);
        assert_true(fabs(number_of(sentences[i]) - more_s) <= 0.005 * more_s + 0.0005);
        assert_float_equal(without[i].more_s, more_s, 1e-9);
    }
}

static void a_device_that_must_compute_may_cost_time(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_paper_facts(&facts, KIN_PAPER_A4, KIN_PAPER_70B, 0);
    int phone = kin_paper_device(&facts, "phone");
    options.force_in = kin_device_bit(phone);
    explain(&facts, &options);
    assert_non_null(strstr(sentences[phone], "; without it 27.1 ms/token less"));
    assert_float_equal(without[phone].more_s, -0.0271, 5e-5);
    assert_true(isnan(without[0].more_s));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_left_out_says_what_it_would_add),
        cmocka_unit_test(a_device_in_use_says_what_is_slower_without_it),
        cmocka_unit_test(every_kind_of_device_has_its_sentence),
        cmocka_unit_test(a_head_may_have_no_layers),
        cmocka_unit_test(a_worker_can_be_a_relay_too),
        cmocka_unit_test(long_times_are_said_in_plain_figures),
        cmocka_unit_test(a_device_that_must_compute_may_cost_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
