// The division of sequences into micro-batches, for rings whose best division is known and for random ones.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pure/plan/batching.h"
#include "pure/plan/scheduler.h"
#include "pure/plan/timeline.h"
#include "testkit/paper_clusters.h"
#include "testkit/plan_random.h"
#include "tests/place.h"

enum { MOST = 16 };

// Four devices like the paper's head without a GPU, with `memory` bytes each and the layers of `shares`.
static void make_ring(kin_facts *facts, kin_plan *plan, double memory, double rtt_s, const int shares[4]) {
    kin_paper_facts(facts, KIN_PAPER_TABLE_3, KIN_PAPER_8B, 4);
    *plan = (kin_plan){.n_rounds = 1, .n_stops = 4};
    facts->devices[0].has_gpu = false;
    facts->devices[0].memory_bytes = memory;
    for (int i = 0; i < 4; i++) {
        facts->devices[i] = facts->devices[0];
        plan->stops[i].device = i;
        plan->shares[i].n_layer = shares[i];
        for (int k = 0; k < 4; k++) facts->links[i][k] = (kin_link_facts){rtt_s, 125e6};
    }
}

enum { N_CACHED = 64 };

static kin_batching choose_at(const kin_facts *facts, const kin_plan *plan, int n_sequences, int n_cached, int most) {
    kin_batching b;
    kin_err err = {""};
    if (kin_batching_choose(facts, plan, n_sequences, n_cached, most, &b, &err) != 0) fail_msg("%s", err.text);
    return b;
}
#define choose_at(...) FROM_TEST(choose_at(__VA_ARGS__))

static kin_batching choose(const kin_facts *facts, const kin_plan *plan, int n_sequences, int most) {
    return choose_at(facts, plan, n_sequences, N_CACHED, most);
}
#define choose(...) FROM_TEST(choose(__VA_ARGS__))

static void four_equal_devices_have_a_text_each(void **state) {
    (void)state;
    kin_facts facts;
    kin_plan plan;
    make_ring(&facts, &plan, 64e9, 1e-4, (const int[]){8, 8, 8, 8});
    kin_batching one = choose(&facts, &plan, 1, MOST), four = choose(&facts, &plan, 4, MOST);
    assert_int_equal(one.n_batches, 1);
    assert_int_equal(four.n_batches, 4);
    assert_true(four.rate > 3 * one.rate);
    assert_true(four.rate < 4.01 * one.rate);
}

// The busy device reads its weights once for all sequences; with four micro-batches it would read them four times.
static void where_one_device_has_almost_all_layers_texts_stay_together(void **state) {
    (void)state;
    kin_facts facts;
    kin_plan plan;
    make_ring(&facts, &plan, 64e9, 1e-4, (const int[]){1, 29, 1, 1});
    assert_int_equal(choose(&facts, &plan, 4, MOST).n_batches, 1);
}

static void slow_links_take_more_micro_batches_than_there_are_devices(void **state) {
    (void)state;
    kin_facts facts;
    kin_plan plan;
    make_ring(&facts, &plan, 64e9, 0.2, (const int[]){8, 8, 8, 8});
    kin_batching free = choose(&facts, &plan, 8, MOST), at_most_4 = choose(&facts, &plan, 8, 4);
    assert_true(free.n_batches > 4);
    assert_true(free.rate > 1.2 * at_most_4.rate);
}

static void streamed_weights_are_read_once_for_all_texts(void **state) {
    (void)state;
    kin_facts facts;
    kin_plan plan;
    make_ring(&facts, &plan, 1.5e9, 1e-4, (const int[]){8, 8, 8, 8});
    facts.work.n_ctx = 1024;
    for (int i = 0; i < 4; i++) facts.devices[i].disk_bytes_s = 250e6;
    kin_batching one = choose(&facts, &plan, 1, MOST), eight = choose(&facts, &plan, 8, MOST);
    assert_int_equal(eight.n_batches, 1);
    assert_true(eight.rate > 6 * one.rate);
}

// With 64 sequences computing is the limit in one round; in several rounds it reads ahead for only one pass.
static void streamed_weights_in_several_rounds_are_read_for_one_pass_at_a_time(void **state) {
    (void)state;
    kin_facts facts;
    kin_plan plan;
    make_ring(&facts, &plan, 1.5e9, 1e-4, (const int[]){8, 8, 8, 8});
    facts.work.n_ctx = 1024;
    for (int i = 0; i < 4; i++) facts.devices[i].disk_bytes_s = 2e9;
    assert_true(choose(&facts, &plan, 64, MOST).n_batches > 1);
    plan.n_rounds = 2;
    assert_int_equal(choose(&facts, &plan, 64, MOST).n_batches, 1);
}

// The period equals the simulated time of the plan's token, which differs from the closed form: weight blocks are indivisible, so
// some of the equal windows wait for one block more.
static void streamed_texts_are_expected_as_the_plans_token_is(void **state) {
    (void)state;
    kin_facts facts;
    kin_plan plan;
    kin_prediction closed, played;
    kin_err err = {""};
    make_ring(&facts, &plan, 1.75e9, 1e-4, (const int[]){8, 8, 8, 8});
    plan.n_rounds = 8;
    facts.work.n_ctx = 1024;
    for (int i = 0; i < 4; i++) facts.devices[i].disk_bytes_s = 300e6;
    assert_int_equal(kin_timeline_closed(&facts, &plan, &closed, &err), 0);
    assert_int_equal(kin_timeline_predict(&facts, &plan, &played, &err), 0);
    assert_true(fabs(played.tpot_s - closed.tpot_s) > 0.03 * closed.tpot_s);
    assert_true(fabs(choose_at(&facts, &plan, 1, facts.work.n_cached, MOST).period_s - played.tpot_s) < 1e-9);
}

static void no_number_of_micro_batches_is_better_than_the_chosen_one(void **state) {
    (void)state;
    enum { N = 200 };
    static kin_facts facts;
    static kin_plan plan;
    kin_rng rng;
    int n_seen = 0;
    kin_rng_seed(&rng, 7);
    for (int i = 0; i < N; i++) {
        kin_plan_options options = kin_plan_options_defaults();
        kin_err err;
        kin_random_facts(&facts, &rng, 5, 60);
        if (kin_plan_memsched(&facts, &options, &plan, NULL) != 0) continue;
        int n_sequences = 1 + kin_random_below(&rng, 64);
        kin_batching best;
        if (kin_batching_choose(&facts, &plan, n_sequences, N_CACHED, MOST, &best, &err) != 0) continue;
        n_seen++;
        assert_true(best.n_batches >= 1 && best.n_batches <= MOST && best.rate > 0);
        for (int most = 1; most < MOST; most++) assert_true(choose(&facts, &plan, n_sequences, most).rate < 1.03 * best.rate);
    }
    assert_true(n_seen > N / 4);
}

static void texts_with_more_tokens_are_slower(void **state) {
    (void)state;
    kin_facts facts;
    kin_plan plan;
    make_ring(&facts, &plan, 64e9, 1e-4, (const int[]){8, 8, 8, 8});
    double none_s = choose_at(&facts, &plan, 8, 0, 1).period_s, some_s = choose_at(&facts, &plan, 8, 1000, 1).period_s,
           more_s = choose_at(&facts, &plan, 8, 2000, 1).period_s;
    assert_true(some_s > none_s);
    assert_true(fabs((more_s - none_s) / (some_s - none_s) - 2) < 0.01);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_equal_devices_have_a_text_each),
        cmocka_unit_test(where_one_device_has_almost_all_layers_texts_stay_together),
        cmocka_unit_test(slow_links_take_more_micro_batches_than_there_are_devices),
        cmocka_unit_test(streamed_weights_are_read_once_for_all_texts),
        cmocka_unit_test(streamed_weights_in_several_rounds_are_read_for_one_pass_at_a_time),
        cmocka_unit_test(streamed_texts_are_expected_as_the_plans_token_is),
        cmocka_unit_test(no_number_of_micro_batches_is_better_than_the_chosen_one),
        cmocka_unit_test(texts_with_more_tokens_are_slower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
