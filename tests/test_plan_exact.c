// The exact scheduler: equal to brute force on small instances, never worse than any other scheduler on larger ones.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pure/plan/hops.h"
#include "pure/plan/latency.h"
#include "pure/plan/scheduler.h"
#include "pure/plan/timeline.h"
#include "testkit/ilp_small.h"
#include "testkit/paper_clusters.h"
#include "testkit/plan_brute.h"
#include "testkit/plan_random.h"
#include "tests/place.h"

enum { N_SMALL = 10000, N_LARGE = 10000, N_STEADY = 200, MAX_SMALL_DEVICES = 4 };

// ---- against brute force

static void exact_equals_brute_force_on_small_instances(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_rng rng;
    int n_none = 0, n_ring = 0, n_rounds = 0, n_disk = 0, n_mixed = 0, n_divided = 0, n_no_head = 0;
    kin_rng_seed(&rng, 5);
    for (int round = 0; round - n_none < N_SMALL; round++) {
        kin_plan plan;
        kin_prediction prediction;
        kin_err err;
        kin_random_facts(&facts, &rng, MAX_SMALL_DEVICES, round % 10 == 0 ? KIN_BRUTE_LAYERS : 5);
        double best_s = kin_plan_brute(&facts, 0);
        int rc = kin_plan_exact(&facts, &options, &plan, &err);
        assert_int_equal(rc == 0, isfinite(best_s));
        if (rc != 0) {
            n_none++;
            continue;
        }
        if (fabs(plan.tpot_s - best_s) > 1e-9 * best_s)
            fail_msg("round %d: exact %.9g ms, brute force %.9g ms", round, plan.tpot_s * 1e3, best_s * 1e3);
        if (fabs(plan.bound_s - best_s) > 1e-9 * best_s) fail_msg("round %d: the plan is not proven", round);
        assert_int_equal(kin_timeline_closed(&facts, &plan, &prediction, &err), 0);
        assert_true(prediction.tpot_s == plan.tpot_s);
        n_ring += plan.n_stops > 1;
        n_rounds += plan.n_rounds > 1;
        n_disk += prediction.slowest_disk >= 0;
        n_no_head += plan.shares[0].n_layer == 0;
        for (int i = 0; i < facts.n_device; i++) {
            n_mixed += plan.shares[i].n_layer_gpu > 0 && plan.shares[i].n_layer_gpu < plan.shares[i].n_layer;
            n_divided += plan.shares[i].n_cpu_moe > 0;
        }
    }
    print_message("%d instances, %d more without a plan, %d rings, %d with more rounds, %d limited by a disk, %d with CPU and "
                  "GPU, %d with experts on "
                  "the CPU alone, %d heads without layers\n",
                  N_SMALL, n_none, n_ring, n_rounds, n_disk, n_mixed, n_divided, n_no_head);
    assert_true(n_ring > 500 && n_rounds > 100 && n_disk > 100 && n_mixed > 100 && n_divided > 100 && n_no_head > 100);
}

// ---- against the others

static void exact_is_never_worse_than_the_others(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_rng rng;
    double gain[8] = {0};
    int n_plans[8] = {0}, n_open = 0;
    options.ilp = kin_ilp_small;
    options.max_orders = 20;
    kin_rng_seed(&rng, 7);
    for (int round = 0; n_plans[1] < N_LARGE; round++) {
        kin_plan exact, other;
        kin_err err;
        kin_random_facts(&facts, &rng, 10, round % 50 == 0 ? 80 : 24);
        int rc = kin_plan_exact(&facts, &options, &exact, &err);
        n_open += rc == 0 && exact.bound_s < exact.tpot_s * (1 - 1e-9);
        for (int i = 1; kin_plan_schedulers[i].name; i++) {
            if (i > 1 && round % 10 != 0) continue; // halda (index 1) in every round, the others in every tenth
            if (kin_plan_schedulers[i].plan(&facts, &options, &other, NULL) != 0) continue;
            if (rc != 0) fail_msg("round %d: %s has a plan, exact has none", round, kin_plan_schedulers[i].name);
            if (exact.tpot_s > other.tpot_s * (1 + 1e-9))
                fail_msg("round %d: exact %g ms, %s %g ms", round, exact.tpot_s * 1e3, kin_plan_schedulers[i].name,
                         other.tpot_s * 1e3);
            gain[i] += log(other.tpot_s / exact.tpot_s);
            n_plans[i]++;
        }
    }
    for (int i = 1; kin_plan_schedulers[i].name; i++)
        print_message("%s: %d plans, on average %.2f times as long\n", kin_plan_schedulers[i].name, n_plans[i],
                      exp(gain[i] / n_plans[i]));
    print_message("exact: %d not proven\n", n_open);
    assert_int_equal(n_open, 0);
}

// ---- other claims

static void the_same_facts_give_the_same_plan(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_rng rng;
    options.ilp = kin_ilp_small;
    kin_rng_seed(&rng, 11);
    for (int round = 0; round < N_STEADY; round++) {
        kin_random_facts(&facts, &rng, 8, 20);
        for (int i = 0; kin_plan_schedulers[i].name; i++) {
            static kin_plan a, b;
            memset(&a, 1, sizeof a);
            memset(&b, 2, sizeof b);
            int rc = kin_plan_schedulers[i].plan(&facts, &options, &a, NULL);
            assert_int_equal(kin_plan_schedulers[i].plan(&facts, &options, &b, NULL), rc);
            if (rc == 0) {
                assert_int_equal(a.n_rounds, b.n_rounds);
                assert_int_equal(a.n_stops, b.n_stops);
                assert_memory_equal(a.shares, b.shares, sizeof a.shares);
                for (int s = 0; s < a.n_stops; s++) assert_int_equal(a.stops[s].device, b.stops[s].device);
                assert_true(a.tpot_s == b.tpot_s);
            }
        }
    }
}

static void one_more_device_never_makes_it_slower(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_rng rng;
    kin_rng_seed(&rng, 13);
    for (int round = 0; round < N_STEADY; round++) {
        kin_plan plan;
        double before_s = INFINITY;
        kin_random_facts(&facts, &rng, 10, 30);
        for (int all = facts.n_device, n = 1; n <= all; n++) {
            facts.n_device = n;
            if (kin_plan_exact(&facts, &options, &plan, NULL) != 0) continue;
            if (plan.tpot_s > before_s * (1 + 1e-9)) fail_msg("round %d: %d devices are slower than one less", round, n);
            before_s = plan.tpot_s;
        }
    }
}

// Device D2 has no link to the head; D1 has links to both.
static void a_relay_joins_devices_that_have_no_link(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_plan plan;
    kin_err err;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_30B, 3); // D3, D2, D1
    int gate = kin_paper_device(&facts, "D1"), far = kin_paper_device(&facts, "D2");
    facts.links[0][far].bytes_s = facts.links[far][0].bytes_s = 0;
    for (int q = 0; q < KIN_N_QUANT; q++) facts.devices[gate].cpu.token_bytes_s[q] = 1e9;
    assert_int_equal(kin_plan_exact(&facts, &options, &plan, &err), 0);
    assert_true(plan.shares[far].n_layer > 0);
    assert_int_equal(plan.shares[gate].n_layer, 0);
    assert_int_equal(plan.n_stops, 4); // head, relay, far, relay
    assert_true(plan.stops[1].relay && plan.stops[3].relay);
    assert_int_equal(plan.stops[1].device, gate);
    assert_int_equal(plan.stops[2].device, far);
    assert_int_equal(kin_plan_check(&plan, &facts, &err), 0);
}

static void windows_cover_all_layers_once(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_rng rng;
    kin_rng_seed(&rng, 17);
    for (int round = 0; round < N_STEADY; round++) {
        kin_plan plan;
        static kin_windows windows[KIN_FACTS_MAX_DEVICES];
        int il = 0;
        kin_random_facts(&facts, &rng, 6, 40);
        options.n_rounds = 1 + kin_random_below(&rng, 4);
        if (kin_plan_exact(&facts, &options, &plan, NULL) != 0) continue;
        assert_int_equal(plan.n_rounds, options.n_rounds);
        for (int i = 0; i < facts.n_device; i++) {
            kin_plan_windows(&plan, i, &windows[i]);
            assert_true(kin_windows_valid(&windows[i], facts.model.n_layer));
            assert_int_equal(windows[i].n, plan.shares[i].n_layer > 0 ? plan.n_rounds : 0);
            assert_int_equal(kin_windows_n_layers(&windows[i]), plan.shares[i].n_layer);
            assert_int_equal(kin_windows_n_gpu_layers(&windows[i]), plan.shares[i].n_layer_gpu);
        }
        for (int r = 0; r < plan.n_rounds; r++) {
            for (int i = 0; i < plan.n_stops; i++) {
                int s = kin_plan_turn(&plan, i), device = plan.stops[s].device;
                if (plan.stops[s].relay || plan.shares[device].n_layer == 0) continue;
                assert_int_equal(windows[device].at[r].layer_begin, il);
                il = windows[device].at[r].layer_end;
            }
        }
        assert_int_equal(il, facts.model.n_layer);
    }
}

// The output matrix, which the head has, takes the last layer's result, so the head computes the last layers if it has any.
static void in_each_round_the_head_computes_last(void **state) {
    (void)state;
    kin_plan plan = {.n_rounds = 2,
                     .n_stops = 4,
                     .stops = {{0, false}, {2, false}, {1, true}, {1, false}},
                     .shares = {{4, 1, 0}, {3, 2, 0}, {5, 0, 0}}};
    const kin_window windows[3][2] = {
        {{5, 7, 1, 0}, {10, 12, 0, 0}}, {{3, 5, 1, 0}, {9, 10, 1, 0}}, {{0, 3, 0, 0}, {7, 9, 0, 0}}};
    static kin_windows of_device;
    for (int device = 0; device < 3; device++) {
        kin_plan_windows(&plan, device, &of_device);
        assert_int_equal(of_device.n, 2);
        assert_memory_equal(of_device.at, windows[device], sizeof windows[device]);
    }
    static kin_windows head;
    kin_plan_windows(&plan, 0, &head);
    assert_int_equal(head.n, 2);
    assert_int_equal(head.at[1].layer_end, 12);
    plan = (kin_plan){.n_rounds = 1, .n_stops = 1, .shares = {{12, 0, 0}}};
    kin_plan_windows(&plan, 0, &head);
    assert_int_equal(head.n, 1);
    assert_int_equal(head.at[0].layer_end, 12);
}

// Returns the length of the shortest ring over all members of `hops` (Held-Karp).
static double shortest_ring(const kin_hops *hops) {
    enum { MOST = KIN_HOPS_EXACT + 2 };
    static double cost[1 << MOST][MOST];
    int n = hops->n_device - 1;
    double shortest = INFINITY;
    assert_true(n <= MOST);
    for (int set = 1; set < 1 << n; set++) {
        for (int last = 0; last < n; last++) {
            int rest = set & ~(1 << last);
            cost[set][last] = rest ? INFINITY : hops->cost[0][last + 1];
            if (rest == set) cost[set][last] = INFINITY;
            for (int i = 0; i < n; i++) {
                if (rest != set && rest >> i & 1)
                    cost[set][last] = fmin(cost[set][last], cost[rest][i] + hops->cost[i + 1][last + 1]);
            }
            if (set == (1 << n) - 1) shortest = fmin(shortest, cost[set][last] + hops->cost[last + 1][0]);
        }
    }
    return shortest;
}
#define shortest_ring(...) FROM_TEST(shortest_ring(__VA_ARGS__))

static void a_long_ring_is_the_shortest_or_says_that_it_may_not_be(void **state) {
    (void)state;
    enum { N_RINGS = 40 };
    static kin_facts facts;
    kin_rng rng;
    int n_proven = 0;
    kin_rng_seed(&rng, 43);
    for (int round = 0; round < N_RINGS; round++) {
        kin_hops hops;
        int order[KIN_FACTS_MAX_DEVICES];
        bool proven;
        do {
            kin_random_facts(&facts, &rng, KIN_FACTS_MAX_DEVICES, 8);
        } while (facts.n_device < KIN_HOPS_EXACT + 3);
        facts.n_device = KIN_HOPS_EXACT + 3;
        for (int a = 0; a < facts.n_device; a++) {
            for (int b = 0; b < facts.n_device; b++)
                facts.links[a][b] = (kin_link_facts){.rtt_s = 1e-3 + 20e-3 * kin_rng_unit(&rng), .bytes_s = 50e6};
        }
        kin_device_set all = kin_device_bit(facts.n_device) - 1;
        kin_hops_init(&hops, &facts, all, 1);
        double found = kin_hops_tour(&hops, all, order, &proven), shortest = shortest_ring(&hops), sum = 0;
        kin_device_set seen = 0;
        for (int i = 0; i < facts.n_device; i++) {
            seen |= kin_device_bit(order[i]);
            sum += hops.cost[order[i]][order[(i + 1) % facts.n_device]];
        }
        assert_true(seen == all && order[0] == 0 && fabs(sum / found - 1) < 1e-12);
        assert_true(found >= shortest * (1 - 1e-12));
        if (proven && found > shortest * (1 + 1e-8)) fail_msg("round %d: %g s, the shortest %g s", round, found, shortest);
        n_proven += proven;
    }
    print_message("%d of %d rings of 13 proven\n", n_proven, N_RINGS);
    assert_true(n_proven > N_RINGS / 2);
}

// Makes facts in which all links differ and rings may have too many members to try all orders. False if there is no plan.
static bool many_unlike(kin_facts *facts, kin_rng *rng, const kin_plan_options *options, kin_plan *plan) {
    do {
        kin_random_facts(facts, rng, KIN_FACTS_MAX_DEVICES, 80);
    } while (facts->n_device < KIN_FACTS_MAX_DEVICES / 2);
    for (int a = 0; a < facts->n_device; a++) {
        for (int b = 0; b < facts->n_device; b++) facts->links[a][b].rtt_s = 1e-3 + 20e-3 * kin_rng_unit(rng);
    }
    return kin_plan_exact(facts, options, plan, NULL) == 0;
}

static bool is_proven(const kin_plan *plan) {
    return plan->bound_s > plan->tpot_s * (1 - 1e-9);
}

static void nearly_all_plans_of_many_devices_are_proven_with_few_decisions(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    static kin_facts facts;
    kin_rng rng;
    kin_plan plan;
    int n = 0, n_proven = 0;
    options.max_nodes = 200;
    kin_rng_seed(&rng, 31);
    while (n < N_STEADY) {
        if (!many_unlike(&facts, &rng, &options, &plan)) continue;
        n++;
        n_proven += is_proven(&plan);
    }
    print_message("%d of %d proven\n", n_proven, n);
    assert_true(n_proven >= N_STEADY * 9 / 10);
}

static void a_search_that_stops_early_says_how_far_it_may_be_off(void **state) {
    (void)state;
    kin_plan_options hasty = kin_plan_options_defaults(), patient = hasty;
    static kin_facts facts;
    kin_rng rng;
    kin_plan early, plan;
    int n = 0, n_open = 0;
    hasty.max_nodes = 0;
    kin_rng_seed(&rng, 19);
    while (n < N_STEADY / 4) {
        if (!many_unlike(&facts, &rng, &hasty, &early)) continue;
        assert_int_equal(kin_plan_exact(&facts, &patient, &plan, NULL), 0);
        if (!is_proven(&plan)) continue;
        n++;
        n_open += !is_proven(&early);
        assert_true(early.bound_s > 0 && early.bound_s <= plan.tpot_s * (1 + 1e-9));
        assert_true(early.tpot_s >= plan.tpot_s * (1 - 1e-9));
    }
    print_message("%d of %d not proven without any decision\n", n_open, n);
    assert_true(n_open > 5);
}

static void what_cannot_be_is_said(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_plan plan;
    kin_err err;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 2);
    options.leave_out = kin_device_bit(0);
    assert_int_equal(kin_plan_exact(&facts, &options, &plan, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "head"));
    options.leave_out = 0;
    facts.devices[0].disk_bytes_s = facts.devices[1].disk_bytes_s = 0;
    assert_int_equal(kin_plan_exact(&facts, &options, &plan, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "cannot hold the model"));
    options.n_rounds = 81;
    assert_int_equal(kin_plan_exact(&facts, &options, &plan, &err), KIN_FAIL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_equals_brute_force_on_small_instances),
        cmocka_unit_test(exact_is_never_worse_than_the_others),
        cmocka_unit_test(the_same_facts_give_the_same_plan),
        cmocka_unit_test(one_more_device_never_makes_it_slower),
        cmocka_unit_test(a_relay_joins_devices_that_have_no_link),
        cmocka_unit_test(windows_cover_all_layers_once),
        cmocka_unit_test(in_each_round_the_head_computes_last),
        cmocka_unit_test(a_long_ring_is_the_shortest_or_says_that_it_may_not_be),
        cmocka_unit_test(nearly_all_plans_of_many_devices_are_proven_with_few_decisions),
        cmocka_unit_test(a_search_that_stops_early_says_how_far_it_may_be_off),
        cmocka_unit_test(what_cannot_be_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
