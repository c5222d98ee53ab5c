// The playoff: if weights stream, `kin plan` and rings use the best plan, by simulation, among the neighbours of the exact one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "pure/plan/latency.h"
#include "pure/plan/scheduler.h"
#include "pure/plan/timeline.h"
#include "testkit/plan_random.h"
#include "tests/place.h"

static double played(const kin_facts *facts, const kin_plan *plan) {
    double s;
    kin_err err;
    if (kin_timeline_play(facts, plan, &s, &err) != 0) fail_msg("%s", err.text);
    return s;
}
#define played(...) FROM_TEST(played(__VA_ARGS__))

static bool streams(const kin_facts *facts, const kin_plan *plan) {
    kin_prediction p;
    assert_int_equal(kin_latency_pass(facts, plan, 1, facts->work.n_cached, 1, &p, NULL), 0);
    for (int i = 0; i < facts->n_device; i++) {
        if (p.devices[i].streamed_bytes > 0) return true;
    }
    return false;
}
#define streams(...) FROM_TEST(streams(__VA_ARGS__))

static void a_playoff_is_never_slower_and_changes_nothing_where_all_fits(void **state) {
    (void)state;
    enum { N = 1000 };
    static kin_facts facts;
    const kin_plan_options options = kin_plan_options_defaults();
    kin_rng rng;
    int n_streaming = 0, n_better = 0;
    double gain = 0, most = 0;
    kin_rng_seed(&rng, 41);
    for (int n = 0; n < N;) {
        kin_plan exact, plan;
        kin_prediction p;
        kin_random_facts(&facts, &rng, 6, 60);
        if (kin_plan_exact(&facts, &options, &exact, NULL) != 0) continue;
        n++;
        assert_int_equal(kin_plan_playoff(&facts, &options, &plan, NULL), 0);
        if (!streams(&facts, &exact)) {
            assert_memory_equal(&plan, &exact, sizeof plan);
            continue;
        }
        double before_s = played(&facts, &exact), after_s = played(&facts, &plan);
        assert_true(after_s <= before_s);
        assert_true(plan.tpot_s >= exact.tpot_s * (1 - 1e-9)); // in closed form, where the exact plan is optimal
        if (after_s < before_s)
            assert_true(plan.bound_s == 0);
        else
            assert_memory_equal(&plan, &exact, sizeof plan);
        assert_int_equal(kin_latency_pass(&facts, &plan, 1, facts.work.n_cached, 1, &p, NULL), 0);
        assert_true(plan.tpot_s == p.tpot_s);
        n_streaming++;
        n_better += after_s < before_s * 0.999;
        gain += 1 - after_s / before_s;
        if (1 - after_s / before_s > most) most = 1 - after_s / before_s;
    }
    print_message(
        "%d plans, %d stream, %d of those are better after the playoff: %.2f %% on average of all that stream, %.1f %% at most\n",
        N, n_streaming, n_better, 100 * gain / n_streaming, 100 * most);
    assert_true(n_better > n_streaming / 20);
}

// Plans with any other number of rounds are simulated, too.
static void a_playoff_is_rarely_beaten_by_another_number_of_rounds(void **state) {
    (void)state;
    enum { N = 60, MAX_ROUNDS = 40 };
    static kin_facts facts;
    kin_rng rng;
    int n_beaten = 0;
    double most = 0;
    kin_rng_seed(&rng, 53);
    for (int n = 0; n < N;) {
        kin_plan_options options = kin_plan_options_defaults();
        kin_plan plan, other;
        double best_s = INFINITY;
        kin_random_facts(&facts, &rng, 5, 60);
        if (kin_plan_playoff(&facts, &options, &plan, NULL) != 0 || !streams(&facts, &plan)) continue;
        n++;
        options.max_nodes = 50;
        for (options.n_rounds = 1; options.n_rounds <= facts.model.n_layer && options.n_rounds <= MAX_ROUNDS;
             options.n_rounds++) {
            if (kin_plan_exact(&facts, &options, &other, NULL) == 0) best_s = fmin(best_s, played(&facts, &other));
        }
        double lost = played(&facts, &plan) / best_s - 1;
        n_beaten += lost > 1e-3;
        most = fmax(most, lost);
    }
    print_message("%d of %d plans are beaten by another number of rounds, by %.1f %% at most\n", n_beaten, N, 100 * most);
    assert_true(n_beaten <= N / 20);
}

// The options hold for all plans of a playoff, also if layers differ in size.
static void a_device_that_is_refused_stays_so(void **state) {
    (void)state;
    enum { N = 300, REFUSED = 1 };
    static kin_facts facts;
    const kin_plan_options options = kin_plan_options_defaults();
    kin_rng rng;
    int n_streaming = 0;
    kin_rng_seed(&rng, 47);
    for (int n = 0; n < N;) {
        kin_plan plan;
        kin_random_facts(&facts, &rng, 6, 60);
        if (facts.n_device <= REFUSED) continue;
        facts.devices[REFUSED].disk_bytes_s = 1e91; // the only reason to refuse this device
        if (kin_plan_playoff(&facts, &options, &plan, NULL) != 0) continue;
        n++;
        n_streaming += streams(&facts, &plan);
        assert_false(kin_plan_workers(&plan, facts.n_device) & kin_device_bit(REFUSED));
    }
    assert_true(n_streaming > N / 10);
}

static void a_playoff_heeds_the_options(void **state) {
    (void)state;
    enum { N = 300 };
    static kin_facts facts;
    kin_rng rng;
    int n_rounds_kept = 0, n_left_out = 0, n_forced = 0;
    kin_rng_seed(&rng, 43);
    for (int n = 0; n < N; n++) {
        kin_plan plan;
        double sizes[KIN_FACTS_MAX_LAYERS];
        kin_plan_options options = kin_plan_options_defaults();
        kin_random_facts(&facts, &rng, 6, 40);
        for (int il = 0; il < facts.model.n_layer; il++) sizes[il] = 10 + kin_random_below(&rng, 20);
        kin_facts_set_shares(&facts.model, sizes);
        if (facts.n_device < 2) continue;
        options.n_rounds = kin_random_below(&rng, 2) ? 1 + kin_random_below(&rng, 4) : 0;
        int who = 1 + kin_random_below(&rng, facts.n_device - 1);
        bool in = kin_random_below(&rng, 2);
        *(in ? &options.force_in : &options.leave_out) = kin_device_bit(who);
        if (kin_plan_playoff(&facts, &options, &plan, NULL) != 0) continue;
        assert_true(options.n_rounds == 0 || plan.n_rounds == options.n_rounds);
        assert_true(in == (plan.shares[who].n_layer > 0));
        n_rounds_kept += options.n_rounds > 0;
        n_left_out += !in;
        n_forced += in;
    }
    assert_true(n_rounds_kept > 30 && n_left_out > 30 && n_forced > 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_is_refused_stays_so),
        cmocka_unit_test(a_playoff_heeds_the_options),
        cmocka_unit_test(a_playoff_is_rarely_beaten_by_another_number_of_rounds),
        cmocka_unit_test(a_playoff_is_never_slower_and_changes_nothing_where_all_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
