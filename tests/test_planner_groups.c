// Groups of the planner (cluster/planner.h): when one is taken, what newcomers change, and what is measured of its sums.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "pure/plan/group_search.h"
#include "pure/plan/scheduler.h"
#include "pure/plan/timeline.h"
#include "sys/highs.h"
#include "testkit/equal_devices.h"
#include "tests/planner_context.h"

// Returns the time of two equal devices as a group, relative to the best ring.
static double group_over_ring(const kin_facts *facts) {
    kin_plan_options options = kin_plan_options_defaults();
    static kin_grouped_plan group;
    kin_prediction ring;
    kin_plan plan;
    kin_err err;
    assert_int_equal(kin_plan_exact(facts, &options, &plan, &err), 0);
    assert_int_equal(kin_timeline_predict(facts, &plan, &ring, &err), 0);
    assert_int_equal(kin_plan_grouped(facts, &options, ring.tpot_s, &group, &err), 0);
    return group.prediction.tpot_s / ring.tpot_s;
}

static void ask_two(kin_planner_question *a, double rtt_s) {
    kin_equal_devices(&cluster, 2, rtt_s);
    ask_about(a, (int[]){0, 1}, 2);
}

// Finds the round trip with which a group takes `ratio` times the ring's time.
static void ask_with_ratio(kin_planner_question *a, double ratio) {
    double low_s = 1e-5, high_s = 1e-2;
    for (int i = 0; i < 40; i++) {
        double rtt_s = (low_s + high_s) / 2;
        ask_two(a, rtt_s);
        *(group_over_ring(&a->facts) < ratio ? &low_s : &high_s) = rtt_s;
    }
    assert_true(fabs(group_over_ring(&a->facts) - ratio) < 1e-3);
}
#define ask_with_ratio(...) FROM_TEST(ask_with_ratio(__VA_ARGS__))

static bool answers_group(kin_planner *p, const kin_planner_question *a) {
    kin_plan ring;
    answer_to(p, a, &ring);
    return ring.groups.n == 1 && ring.groups.groups[0].n == 2;
}
#define answers_group(...) FROM_TEST(answers_group(__VA_ARGS__))

static void a_group_is_taken_where_it_is_faster_and_what_is_in_force_has_the_margin(void **state) {
    (void)state;
    static kin_planner_question faster, slower, far;
    ask_two(&far, 1e-2);
    ask_with_ratio(&slower, 1.02);
    ask_with_ratio(&faster, 0.98);
    kin_planner *p = open_planner("auto", "exact"), *q = open_planner("auto", "exact");
    assert_true(answers_group(p, &faster));
    assert_true(answers_group(p, &slower));
    assert_false(answers_group(p, &far));
    assert_false(answers_group(q, &slower));
    assert_false(answers_group(q, &faster));
    ask_two(&faster, 1e-4);
    assert_true(answers_group(q, &faster));
    kin_planner_close(p);
    kin_planner_close(q);
}

static void the_published_schedulers_never_make_groups(void **state) {
    (void)state;
    static kin_planner_question a;
    ask_with_ratio(&a, 0.9);
    for (const kin_plan_scheduler *s = kin_plan_schedulers; s->name; s++) {
        if (s->plan == kin_plan_halda && !kin_highs_is_there()) continue;
        kin_planner *p = open_planner("auto", s->name);
        assert_int_equal(answers_group(p, &a), s->plan == kin_plan_playoff);
        kin_planner_close(p);
    }
}

// A head alone is as fast as the best ring of two such devices: the group of both is 2 % faster.
static void a_group_that_a_newcomer_makes_possible_needs_no_margin(void **state) {
    (void)state;
    static kin_planner_question alone, both;
    kin_plan ring;
    ask_with_ratio(&both, 0.98);
    ask_about(&alone, (int[]){0}, 1);
    kin_planner_options o = options_of("auto", "exact");
    o.begins_alone = true;
    kin_planner *p = open_with(&o);
    answer_to(p, &alone, &ring);
    assert_int_equal(ring.n_stops, 1);
    assert_true(answers_group(p, &both));
    kin_planner_close(p);
}

// Returns the time of a group of three devices, relative to a group of the first two.
static double third_over_two(kin_planner_question *a) {
    static kin_grouped_plan two, three;
    kin_plan_options options = kin_plan_options_defaults();
    kin_err err;
    ask_about(a, (int[]){0, 1}, 2);
    assert_int_equal(kin_plan_grouped(&a->facts, &options, 1, &two, &err), 0);
    ask_about(a, (int[]){0, 1, 2}, 3);
    assert_int_equal(kin_plan_grouped(&a->facts, &options, 1, &three, &err), 0);
    return three.prediction.tpot_s / two.prediction.tpot_s;
}
#define third_over_two(...) FROM_TEST(third_over_two(__VA_ARGS__))

static void a_newcomer_that_makes_a_group_a_little_faster_leaves_it_as_it_is(void **state) {
    (void)state;
    static kin_planner_question two, three;
    kin_plan ring;
    kin_equal_devices(&cluster, 3, 1e-4);
    double ratio;
    for (double slow = 1; (ratio = third_over_two(&three)) < 0.955 && slow > 0.1; slow *= 0.95) {
        for (int q = 0; q < KIN_N_QUANT; q++) cluster.devices[2].cpu.token_bytes_s[q] = 45e9 * slow;
    }
    assert_true(ratio >= 0.955 && ratio < 0.99);
    ask_about(&two, (int[]){0, 1}, 2);
    kin_planner *p = open_planner("auto", "exact");
    assert_true(answers_group(p, &two));
    answer_to(p, &three, &ring);
    assert_int_equal(ring.groups.groups[0].n, 2);
    kin_planner_close(p);
}

static kin_planner_measured measured_tokens(const kin_planner_question *a, double compute_s) {
    kin_planner_measured m = {.n = a->n, .facts = &a->facts};
    for (int k = 0; k < m.n; k++) {
        m.members[k].compute_s = compute_s;
        m.ids[k] = a->ids[k];
    }
    return m;
}

static void a_group_of_all_is_expected_to_take_its_own_time(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan ring;
    static kin_grouped_plan group;
    kin_plan_options options = kin_plan_options_defaults();
    kin_expectation e;
    kin_err err;
    ask_two(&a, 1e-4);
    assert_int_equal(kin_plan_grouped(&a.facts, &options, 1, &group, &err), 0);
    kin_planner *p = open_planner("tp", "exact");
    answer_to(p, &a, &ring);
    assert_true(kin_planner_expects(p, &e));
    assert_true(fabs(e.before.tpot_s - group.prediction.tpot_s) < 1e-9 && e.before.ttft_s > 0);
    kin_planner_close(p);
}

// What the last device of a group measures beyond the prediction counts for sums: a ring's prediction does not change.
static void what_tokens_of_a_group_took_corrects_its_sums(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan ring;
    kin_expectation e;
    ask_two(&a, 1e-4);
    kin_planner *p = open_planner("auto", "exact");
    assert_true(answers_group(p, &a));
    assert_true(kin_planner_expects(p, &e));
    double before_s = e.before.tpot_s;
    kin_planner_measured m = measured_tokens(&a, e.before.compute_s * 1.1);
    assert_false(kin_planner_add_measured(p, &m));
    assert_true(kin_planner_expects(p, &e));
    assert_true(fabs(e.before.tpot_s - before_s) < 1e-9);
    assert_true(fabs(e.corrected.tpot_s - before_s - 0.1 * e.before.compute_s) < 1e-6);
    assert_true(fabs(e.corrected.sums_s - e.before.sums_s - 0.1 * e.before.compute_s) < 1e-6);
    answer_to(p, &a, &ring);
    assert_int_equal(ring.groups.groups[0].n, 2);
    // Sums are so slow that the ring is better by far: the planner asks for it.
    m = measured_tokens(&a, e.before.compute_s * 2.5);
    assert_true(kin_planner_add_measured(p, &m));
    answer_to(p, &a, &ring);
    assert_int_equal(ring.groups.n, 0);
    kin_planner_close(p);
}

// A device that has its weights waits in a sum for another one's disk, so sums are not learned there. Disks are, individually.
static void a_group_that_streams_corrects_its_disks_and_not_its_sums(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_expectation e;
    kin_equal_devices(&cluster, 2, 1e-4);
    cluster.model.output_blocks = 19;
    for (int i = 0; i < 2; i++) cluster.devices[i].memory_bytes = i == 0 ? 1.3e9 : 1e9;
    ask_about(&a, (int[]){0, 1}, 2);
    kin_planner *p = open_planner("auto", "exact");
    assert_true(answers_group(p, &a));
    assert_true(kin_planner_expects(p, &e));
    const kin_prediction before = e.before;
    kin_planner_measured m = measured_tokens(&a, before.compute_s * 20);
    for (int i = 0; i < 2; i++) {
        assert_true(before.devices[i].own_load_s > 0 && before.devices[i].streamed_bytes > 5e8);
        m.members[i].disk_bytes = before.devices[i].streamed_bytes;
        m.members[i].disk_s = (i == 0 ? 1 : 2) * before.devices[i].own_load_s;
    }
    kin_planner_add_measured(p, &m);
    assert_true(kin_planner_expects(p, &e));
    assert_true(fabs(e.corrected.sums_s - before.sums_s) < 1e-9);
    assert_true(fabs(e.corrected.devices[0].own_load_s / before.devices[0].own_load_s - 1) < 1e-6);
    assert_true(fabs(e.corrected.devices[1].own_load_s / before.devices[1].own_load_s - 2) < 1e-6);
    assert_true(e.corrected.tpot_s > 1.5 * before.tpot_s);
    kin_planner_close(p);
}

// Two devices by a cable, the head far away, and no memory for the whole model on any of them.
static void a_group_may_be_a_part_of_the_ring(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan ring;
    kin_expectation e;
    kin_equal_devices(&cluster, 3, 5e-3);
    cluster.links[1][2].rtt_s = cluster.links[2][1].rtt_s = 1e-4;
    for (int i = 0; i < 3; i++) cluster.devices[i].memory_bytes = 2.6e9, cluster.devices[i].disk_bytes_s = 0;
    ask_about(&a, (int[]){0, 1, 2}, 3);
    kin_planner *p = open_planner("auto", "exact");
    answer_to(p, &a, &ring);
    assert_int_equal(ring.n_stops, 2);
    assert_int_equal(ring.groups.n, 1); // the head is in none
    assert_int_equal(ring.groups.groups[0].n, 2);
    assert_int_equal(kin_group_last(&ring.groups.groups[0]), ring.stops[1].device);
    assert_true(ring.shares[ring.stops[1].device].n_layer > 20);
    assert_int_equal(ring.shares[0].n_layer + ring.shares[ring.stops[1].device].n_layer, cluster.model.n_layer);
    assert_true(kin_planner_expects(p, &e) && e.before.sums_s > 0);
    answer_to(p, &a, &ring);
    assert_int_equal(ring.groups.groups[0].n, 2); // it stays
    assert_int_equal(kin_planner_without(p, &a, 1, &ring, &(kin_err){""}), 0);
    assert_false(kin_plan_has(&ring, 1));
    kin_planner_close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_group_is_taken_where_it_is_faster_and_what_is_in_force_has_the_margin, setup),
        cmocka_unit_test_setup(the_published_schedulers_never_make_groups, setup),
        cmocka_unit_test_setup(a_group_that_a_newcomer_makes_possible_needs_no_margin, setup),
        cmocka_unit_test_setup(a_newcomer_that_makes_a_group_a_little_faster_leaves_it_as_it_is, setup),
        cmocka_unit_test_setup(a_group_of_all_is_expected_to_take_its_own_time, setup),
        cmocka_unit_test_setup(what_tokens_of_a_group_took_corrects_its_sums, setup),
        cmocka_unit_test_setup(a_group_that_streams_corrects_its_disks_and_not_its_sums, setup),
        cmocka_unit_test_setup(a_group_may_be_a_part_of_the_ring, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
