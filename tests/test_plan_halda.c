// Halda and the published objective: the equations agree with each other, and the published clusters give the published choices.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "pure/papers/halda_cost.h"
#include "pure/plan/latency.h"
#include "pure/plan/scheduler.h"
#include "testkit/ilp_small.h"
#include "testkit/paper_clusters.h"
#include "testkit/plan_random.h"
#include "tests/place.h"

enum { N_RANDOM = 2000 };

static kin_plan_options with_ilp(kin_halda_terms_kind kind) {
    kin_plan_options options = kin_plan_options_defaults();
    options.ilp = kin_ilp_small;
    options.halda_kind = kind;
    return options;
}

static kin_plan plan_by(kin_plan_scheduler_fn *scheduler, const kin_facts *facts, const kin_plan_options *options) {
    kin_plan plan;
    kin_err err;
    if (scheduler(facts, options, &plan, &err) != 0) fail_msg("%s", err.text);
    return plan;
}
#define plan_by(...) FROM_TEST(plan_by(__VA_ARGS__))

static kin_layer_share share_of(const kin_facts *facts, const kin_plan *plan, const char *name) {
    return plan->shares[kin_paper_device(facts, name)];
}

static void assert_share(const kin_facts *facts, const kin_plan *plan, const char *name, int n_gpu, int n_cpu) {
    kin_layer_share share = share_of(facts, plan, name);
    if (share.n_layer_gpu != n_gpu || share.n_layer - share.n_layer_gpu != n_cpu)
        fail_msg("%s: %d layers on the GPU and %d on the CPU, expected %d and %d", name, share.n_layer_gpu,
                 share.n_layer - share.n_layer_gpu, n_gpu, n_cpu);
}
#define assert_share(...) FROM_TEST(assert_share(__VA_ARGS__))

// ---- the objective

// Makes random w, n and k for random facts, with at least one layer per device and round. False if a disk's rate is unknown.
static bool make_windows(kin_facts *facts, kin_halda_model *h, int *w, int *n, int *k, kin_rng *rng) {
    int members[KIN_FACTS_MAX_DEVICES];
    double hop_s[KIN_FACTS_MAX_DEVICES];
    kin_random_facts(facts, rng, 6, 60);
    *k = 1 + kin_random_below(rng, 4);
    facts->model.n_layer = 0;
    for (int i = 0; i < facts->n_device; i++) {
        members[i] = i;
        hop_s[i] = 1e-3;
        w[i] = 1 + kin_random_below(rng, 8);
        n[i] = facts->devices[i].has_gpu ? kin_random_below(rng, w[i] + 1) : 0;
        facts->model.n_layer += *k * w[i];
        if (facts->devices[i].disk_bytes_s <= 0) return false;
    }
    kin_halda_model_init(h, facts, members, hop_s, facts->n_device, KIN_HALDA_PUBLISHED);
    return true;
}

static void the_linear_terms_add_up_to_the_objective(void **state) {
    (void)state;
    kin_facts facts;
    kin_halda_model h;
    kin_rng rng;
    int w[KIN_FACTS_MAX_DEVICES], n[KIN_FACTS_MAX_DEVICES], k, n_of_set[4] = {0};
    kin_rng_seed(&rng, 31);
    for (int round = 0; round < N_RANDOM; round++) {
        if (!make_windows(&facts, &h, w, n, &k, &rng)) continue;
        double sum = h.kappa_s;
        for (int i = 0; i < facts.n_device; i++) {
            kin_halda_set set = kin_halda_set_of(&h, i, w[i], n[i], k, false);
            kin_halda_terms t = kin_halda_terms_of(&h, i, set);
            // Devices of set M1 have no GPU. In set M3 a layer on the GPU does not count as held in memory, so it is not loaded.
            sum += k * (t.a_s * w[i] + t.b_s * n[i] + t.c_s) + t.constant_s;
            n_of_set[set]++;
        }
        double whole = kin_halda_objective_s(&h, w, n, k);
        if (fabs(sum - whole) > 1e-5 * whole) fail_msg("round %d: terms %.9g s, objective %.9g s", round, sum, whole);
    }
    for (int set = 0; set < 4; set++) assert_true(n_of_set[set] > 50);
}

// The paper sums all loading times, so more rounds only add hops. prima.cpp's solver always answers k = 1.
static void in_the_published_objective_more_rounds_never_help(void **state) {
    (void)state;
    kin_facts facts;
    kin_halda_model h;
    kin_rng rng;
    int w[KIN_FACTS_MAX_DEVICES], n[KIN_FACTS_MAX_DEVICES], k;
    kin_rng_seed(&rng, 37);
    for (int round = 0; round < N_RANDOM; round++) {
        if (!make_windows(&facts, &h, w, n, &k, &rng)) continue;
        double many = kin_halda_objective_s(&h, w, n, k);
        for (int i = 0; i < facts.n_device; i++) w[i] *= k, n[i] *= k;
        assert_true(kin_halda_objective_s(&h, w, n, 1) <= many * (1 + 1e-12));
    }
}

// The first device has a rate for weights, and another one for the KV cache; the second is an Android device.
static void objectives_differ_in_what_is_read_and_in_the_tokens_that_count(void **state) {
    (void)state;
    const double hop_s[] = {1e-3, 1e-3};
    const int members[] = {0, 1};
    kin_facts f;
    kin_halda_model published, released;
    kin_paper_facts(&f, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 2);
    f.devices[0].cpu.read_bytes_s = 1; // only attention reads at this rate
    f.devices[1].os = KIN_OS_ANDROID;
    f.devices[1].disk_random_bytes_s = f.devices[1].disk_bytes_s / 4;
    kin_halda_model_init(&published, &f, members, hop_s, 2, KIN_HALDA_PUBLISHED);
    kin_halda_model_init(&released, &f, members, hop_s, 2, KIN_HALDA_RELEASED);
    const double layer = kin_facts_layer_bytes(&f.model), rate = f.devices[0].cpu.token_bytes_s[KIN_QUANT_Q4_K];
    assert_true(fabs(published.layer_kv_bytes - layer - f.work.n_cached * f.model.kv_bytes) < 1);
    assert_true(fabs(released.layer_kv_bytes - layer - f.work.n_ctx * f.model.kv_bytes) < 1);
    double read_s = published.devices[0].alpha_s - released.devices[0].alpha_s;
    assert_true(fabs(read_s - published.layer_kv_bytes / rate) < 1e-9);
    read_s = published.kappa_s - released.kappa_s;
    assert_true(fabs(read_s - (published.row_bytes + published.output_bytes) / rate) < 1e-9);
    assert_true(published.devices[0].xi_s > 1e-3 && released.devices[0].xi_s == 0);
    assert_true(published.devices[1].disk_bytes_s == f.devices[1].disk_bytes_s);
    assert_true(released.devices[1].disk_bytes_s == f.devices[1].disk_random_bytes_s);
}

// ---- the algorithm, with a solver that always gives the same windows

static struct {
    int n_free;        // devices outside of M4 in the last program for four devices
    double first_cost; // of the head's layers in the first program
} asked;

// One round: the head has all layers but one per other device, on CPUs.
static kin_ilp_outcome gives_the_head_all(const kin_ilp *ilp, double *x, kin_err *err) {
    (void)err;
    int M = ilp->n_column / 2;
    if (ilp->row_least[0] < 80) return KIN_ILP_INFEASIBLE;
    if (asked.n_free < 0) asked.first_cost = ilp->cost[0];
    if (M == 4) asked.n_free = 0;
    for (int row = 1; row < ilp->n_row && M == 4; row++) asked.n_free += isinf(ilp->row_most[row]);
    for (int i = 0; i < 2 * M; i++) x[i] = i < M ? 1 : 0;
    x[0] = 80 - (M - 1);
    return KIN_ILP_OPTIMAL;
}

// A GPU has room, and RAM is full: as published devices are forced into M4 until none is left; the released code does not force
// any, because the other devices have one layer on their CPU.
static void weak_devices_prevent_the_calibration_in_the_released_code_only(void **state) {
    (void)state;
    for (int kind = KIN_HALDA_PUBLISHED; kind <= KIN_HALDA_RELEASED; kind++) {
        kin_plan_options options = with_ilp((kin_halda_terms_kind)kind);
        kin_facts facts;
        kin_plan plan;
        options.ilp = gives_the_head_all;
        asked.n_free = -1;
        kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 4);
        assert_int_equal(facts.model.n_layer, 80);
        kin_plan_halda(&facts, &options, &plan, NULL);
        assert_int_equal(asked.n_free, kind == KIN_HALDA_PUBLISHED ? 0 : 1);
    }
}

static void the_released_code_prefers_the_head_by_a_hundredth(void **state) {
    (void)state;
    const int members[] = {0, 1, 2, 3};
    const double hop_s[4] = {0};
    kin_plan_options options = with_ilp(KIN_HALDA_RELEASED);
    kin_facts facts;
    kin_halda_model h;
    kin_plan plan;
    options.ilp = gives_the_head_all;
    asked.n_free = -1;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 4);
    kin_plan_halda(&facts, &options, &plan, NULL);
    kin_halda_model_init(&h, &facts, members, hop_s, 4, KIN_HALDA_RELEASED);
    bool is_m4 = fabs(asked.first_cost * 1.01 - h.devices[0].alpha_s) < 1e-9;
    bool is_m3 = fabs(asked.first_cost * 1.01 - kin_halda_terms_of(&h, 0, KIN_HALDA_M3).a_s) < 1e-9;
    assert_true(is_m3 || is_m4);
}

static void a_number_of_rounds_is_obeyed_or_refused(void **state) {
    (void)state;
    kin_plan_options options = with_ilp(KIN_HALDA_PUBLISHED);
    kin_facts facts;
    kin_plan plan;
    kin_err err;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 4);
    for (options.n_rounds = 1; options.n_rounds <= 10; options.n_rounds++) {
        int rc = kin_plan_halda(&facts, &options, &plan, &err);
        bool divides = facts.model.n_layer % options.n_rounds == 0;
        assert_true(divides ? rc == 0 && plan.n_rounds == options.n_rounds : rc != 0 && strstr(err.text, "cannot be divided"));
    }
    kin_paper_facts(&facts, KIN_PAPER_A4, KIN_PAPER_70B, 0);
    options.n_rounds = 40; // two layers in each round, and more than the memory of two devices
    assert_int_equal(kin_plan_schedule(kin_plan_scheduler_find("halda"), &facts, &options, &plan, &err), KIN_FAIL);
    assert_string_equal(err.text, "halda: there is no plan with 40 rounds");
    options.n_rounds = 2;
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "dp-sa" : "perfsched";
        assert_int_equal(kin_plan_schedule(kin_plan_scheduler_find(name), &facts, &options, &plan, &err), KIN_FAIL);
        assert_non_null(strstr(err.text, "chooses the number of rounds itself"));
    }
}

// ---- the paper's choices

static void models_up_to_14b_run_on_d3_alone(void **state) {
    (void)state;
    for (int kind = KIN_HALDA_PUBLISHED; kind <= KIN_HALDA_RELEASED; kind++) {
        kin_plan_options options = with_ilp((kin_halda_terms_kind)kind);
        for (int model = KIN_PAPER_8B; model <= KIN_PAPER_14B; model++) {
            for (int n = 4; n <= 6; n++) {
                kin_facts facts;
                kin_paper_facts(&facts, KIN_PAPER_TABLE_3, (kin_paper_model)model, n);
                kin_plan halda = plan_by(kin_plan_halda, &facts, &options), exact = plan_by(kin_plan_exact, &facts, &options);
                assert_share(&facts, &halda, "D3", facts.model.n_layer, 0);
                assert_share(&facts, &exact, "D3", facts.model.n_layer, 0);
                assert_int_equal(exact.n_stops, 1); // no network hop
            }
        }
    }
}

static void larger_models_fill_the_gpus_of_d2_and_d3_first(void **state) {
    (void)state;
    for (int kind = KIN_HALDA_PUBLISHED; kind <= KIN_HALDA_RELEASED; kind++) {
        kin_plan_options options = with_ilp((kin_halda_terms_kind)kind);
        for (int model = KIN_PAPER_30B; model <= KIN_PAPER_70B; model++) {
            kin_facts facts;
            kin_paper_facts(&facts, KIN_PAPER_TABLE_3, (kin_paper_model)model, 4);
            kin_plan halda = plan_by(kin_plan_halda, &facts, &options), exact = plan_by(kin_plan_exact, &facts, &options);
            for (int i = 0; i < 2; i++) {
                kin_device_rates rates;
                kin_device_rates_init(&rates, &facts, i, 1, 0, 1);
                int most = kin_device_gpu_layers_max(&rates, facts.model.n_layer);
                assert_int_equal(halda.shares[i].n_layer_gpu, most);
                assert_int_equal(exact.shares[i].n_layer_gpu, most);
            }
        }
    }
}

// A.19.2: 13 / 46 / 19 layers on the GPUs of D0, D2, D6, two on D2's CPU, and D5 is removed. prima.cpp's released objective gives
// exactly this. The published objective also counts memory reads, where a 1080 Ti is faster than a 4060 Ti, so D5 replaces D0.
static void the_70b_model_takes_three_of_ten_devices(void **state) {
    (void)state;
    kin_plan_options released = with_ilp(KIN_HALDA_RELEASED), published = with_ilp(KIN_HALDA_PUBLISHED);
    kin_facts facts;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_11, KIN_PAPER_70B, 0);
    kin_plan plan = plan_by(kin_plan_halda, &facts, &released);
    assert_int_equal(plan.n_stops, 3);
    assert_share(&facts, &plan, "D2", 46, 2);
    assert_share(&facts, &plan, "D0", 13, 0);
    assert_share(&facts, &plan, "D6", 19, 0);
    assert_share(&facts, &plan, "D5", 0, 0);
    plan = plan_by(kin_plan_halda, &facts, &published);
    assert_int_equal(plan.n_stops, 3);
    assert_share(&facts, &plan, "D0", 0, 0);
    plan = plan_by(kin_plan_exact, &facts, &released);
    assert_int_equal(plan.n_stops, 3);
    assert_int_equal(share_of(&facts, &plan, "D0").n_layer, 0);
}

// A.19.2: the heuristic's split of the 70B model is 46 / 13 / 19 / 2 on D2, D0, D6, D5, which is slower than Halda's.
static void filling_the_fastest_gpus_first_gives_the_published_split(void **state) {
    (void)state;
    kin_plan_options options = with_ilp(KIN_HALDA_PUBLISHED);
    kin_facts facts;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_11, KIN_PAPER_70B, 0);
    kin_plan filled = plan_by(kin_plan_fill_gpus, &facts, &options), halda = plan_by(kin_plan_halda, &facts, &options);
    assert_share(&facts, &filled, "D2", 46, 0);
    assert_share(&facts, &filled, "D0", 13, 0);
    assert_share(&facts, &filled, "D6", 19, 0);
    assert_share(&facts, &filled, "D5", 2, 0);
    assert_int_equal(filled.n_stops, 4);
    assert_true(halda.tpot_s < filled.tpot_s);
}

// The paper does not say it: layers beyond all GPUs go to processors with room, the fastest first, then to all processors.
static void filling_gpus_goes_on_with_processors(void **state) {
    (void)state;
    kin_plan_options options = with_ilp(KIN_HALDA_PUBLISHED);
    kin_facts facts;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_11, KIN_PAPER_70B, 0);
    for (int i = 1; i < facts.n_device; i++) facts.devices[i].has_gpu = false;
    kin_plan plan = plan_by(kin_plan_fill_gpus, &facts, &options);
    assert_share(&facts, &plan, "D2", 46, 0);
    assert_int_equal(share_of(&facts, &plan, "D3").n_layer_gpu, 0);
    assert_true(share_of(&facts, &plan, "D3").n_layer > 20); // of the processors with room, the fastest one
    options.n_rounds = 2;
    kin_err err;
    assert_int_equal(kin_plan_schedule(kin_plan_scheduler_find("fill-gpus"), &facts, &options, &plan, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "chooses the number of rounds itself"));
}

static void models_below_32b_run_on_one_of_ten_devices(void **state) {
    (void)state;
    kin_plan_options options = with_ilp(KIN_HALDA_PUBLISHED);
    for (int model = KIN_PAPER_8B; model <= KIN_PAPER_30B; model++) {
        kin_facts facts;
        kin_paper_facts(&facts, KIN_PAPER_TABLE_11, (kin_paper_model)model, 0);
        kin_plan halda = plan_by(kin_plan_halda, &facts, &options), exact = plan_by(kin_plan_exact, &facts, &options);
        assert_share(&facts, &halda, "D2", facts.model.n_layer, 0);
        assert_share(&facts, &exact, "D2", facts.model.n_layer, 0);
    }
}

// A.7: D4 and D6 have weak CPUs and slow disks and make the ring slower. Here both together gain less than 1 %.
static void exact_gains_nothing_worth_from_d4_and_d6(void **state) {
    (void)state;
    kin_plan_options options = with_ilp(KIN_HALDA_PUBLISHED);
    kin_facts facts;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 6);
    kin_plan plan = plan_by(kin_plan_exact, &facts, &options);
    assert_true(share_of(&facts, &plan, "D5").n_layer > 0);
    options.leave_out = kin_device_bit(kin_paper_device(&facts, "D4")) | kin_device_bit(kin_paper_device(&facts, "D6"));
    assert_true(plan_by(kin_plan_exact, &facts, &options).tpot_s < 1.01 * plan.tpot_s);
}

// Every cluster and model of the paper with every scheduler, as in the table of docs/PLANNING.md.
static void exact_is_the_best_in_every_row(void **state) {
    (void)state;
    kin_plan_options options = with_ilp(KIN_HALDA_PUBLISHED);
    for (int cluster = 0; cluster <= KIN_PAPER_TABLE_11; cluster++) {
        for (int model = 0; model <= KIN_PAPER_70B; model++) {
            kin_facts facts;
            kin_paper_facts(&facts, (kin_paper_cluster)cluster, (kin_paper_model)model, cluster == KIN_PAPER_TABLE_3 ? 4 : 0);
            kin_plan exact = plan_by(kin_plan_exact, &facts, &options);
            print_message("%-8s %-11s", kin_paper_cluster_name((kin_paper_cluster)cluster),
                          kin_paper_model_name((kin_paper_model)model));
            for (const kin_plan_scheduler *s = kin_plan_schedulers; s->name; s++) {
                kin_plan plan;
                if (s->plan(&facts, &options, &plan, NULL) != 0) {
                    print_message(" %s -", s->name);
                    continue;
                }
                print_message(" %s %.0f", s->name, plan.tpot_s * 1e3);
                assert_true(exact.tpot_s <= plan.tpot_s * (1 + 1e-9));
            }
            print_message(" ms\n");
        }
    }
}

// ---- when programs cannot be solved

static kin_ilp_outcome never_solves(const kin_ilp *ilp, double *x, kin_err *err) {
    (void)ilp, (void)x;
    kin_err_set(err, "out of order");
    return KIN_ILP_FAILED;
}

static kin_ilp_outcome finds_none(const kin_ilp *ilp, double *x, kin_err *err) {
    (void)ilp, (void)x, (void)err;
    return KIN_ILP_INFEASIBLE;
}

static void a_solver_that_fails_is_an_error_and_one_that_finds_nothing_is_not(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_plan plan;
    kin_err err;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_30B, 4);
    assert_int_equal(kin_plan_halda(&facts, &options, &plan, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "HiGHS"));
    options.ilp = never_solves;
    assert_int_equal(kin_plan_halda(&facts, &options, &plan, &err), KIN_FAIL);
    assert_string_equal(err.text, "halda: out of order");
    options.ilp = finds_none; // then layers are shared in proportion to memory
    assert_int_equal(kin_plan_halda(&facts, &options, &plan, &err), 0);
    assert_true(plan.shares[0].n_layer > plan.shares[1].n_layer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_linear_terms_add_up_to_the_objective),
        cmocka_unit_test(in_the_published_objective_more_rounds_never_help),
        cmocka_unit_test(objectives_differ_in_what_is_read_and_in_the_tokens_that_count),
        cmocka_unit_test(weak_devices_prevent_the_calibration_in_the_released_code_only),
        cmocka_unit_test(the_released_code_prefers_the_head_by_a_hundredth),
        cmocka_unit_test(a_number_of_rounds_is_obeyed_or_refused),
        cmocka_unit_test(models_up_to_14b_run_on_d3_alone),
        cmocka_unit_test(larger_models_fill_the_gpus_of_d2_and_d3_first),
        cmocka_unit_test(the_70b_model_takes_three_of_ten_devices),
        cmocka_unit_test(filling_the_fastest_gpus_first_gives_the_published_split),
        cmocka_unit_test(filling_gpus_goes_on_with_processors),
        cmocka_unit_test(models_below_32b_run_on_one_of_ten_devices),
        cmocka_unit_test(exact_gains_nothing_worth_from_d4_and_d6),
        cmocka_unit_test(exact_is_the_best_in_every_row),
        cmocka_unit_test(a_solver_that_fails_is_an_error_and_one_that_finds_nothing_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
