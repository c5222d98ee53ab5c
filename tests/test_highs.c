// HiGHS behind kin's interface: on the programs that Halda generates it finds the same optima as an enumerating solver.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "pure/plan/scheduler.h"
#include "sys/highs.h"
#include "testkit/ilp_small.h"
#include "testkit/paper_clusters.h"
#include "testkit/plan_random.h"

enum { N_PLANS = 100, EXIT_SKIPPED = 77 };

static int n_solved, n_infeasible;

static double value_of(const kin_ilp *ilp, const double *x) {
    double sum = 0;
    for (int j = 0; j < ilp->n_column; j++) sum += ilp->cost[j] * x[j];
    return sum;
}

// Both solvers must agree. Halda continues with the enumerated solution, so that ties do not make the runs diverge.
static kin_ilp_outcome both(const kin_ilp *ilp, double *x, kin_err *err) {
    double counted[KIN_ILP_MAX_COLUMNS];
    kin_ilp_outcome outcome = kin_highs_solve(ilp, x, err), expected = kin_ilp_small(ilp, counted, err);
    assert_int_equal(outcome, expected);
    if (outcome == KIN_ILP_INFEASIBLE) {
        n_infeasible++;
        return outcome;
    }
    double a = value_of(ilp, x), b = value_of(ilp, counted);
    if (fabs(a - b) > 1e-6 * fabs(b) + 1e-9) fail_msg("HiGHS %.12g, counted %.12g", a, b);
    n_solved++;
    memcpy(x, counted, sizeof counted);
    return outcome;
}

static void highs_finds_the_optima_that_counting_finds(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_plan plan;
    kin_rng rng;
    options.ilp = both;
    kin_rng_seed(&rng, 41);
    for (int i = 0; i < N_PLANS; i++) {
        kin_random_facts(&facts, &rng, 6, 30);
        kin_plan_halda(&facts, &options, &plan, NULL);
    }
    print_message("%d programs solved, %d without a solution\n", n_solved, n_infeasible);
    assert_true(n_solved > N_PLANS && n_infeasible > 0);
}

static void halda_with_highs_makes_the_paper_s_choice(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_plan plan;
    kin_err err;
    options.ilp = kin_highs_solve;
    options.halda_kind = KIN_HALDA_RELEASED;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_11, KIN_PAPER_70B, 0);
    assert_int_equal(kin_plan_halda(&facts, &options, &plan, &err), 0);
    assert_int_equal(plan.shares[kin_paper_device(&facts, "D2")].n_layer, 48);
    assert_int_equal(plan.shares[kin_paper_device(&facts, "D0")].n_layer, 13);
    assert_int_equal(plan.shares[kin_paper_device(&facts, "D6")].n_layer, 19);
}

// The market split problem: a choice among 36 numbers whose sum is half of the total, in five rows at once. It is out of reach
// for these solvers.
static void a_program_that_takes_too_long_is_given_up_with_a_sentence(void **state) {
    (void)state;
    enum { N_ROWS = 5, N_NUMBERS = 36 };
    static kin_ilp ilp = {.n_column = N_NUMBERS, .n_row = N_ROWS};
    double x[KIN_ILP_MAX_COLUMNS];
    kin_rng rng;
    kin_err err;
    kin_rng_seed(&rng, 3);
    for (int j = 0; j < N_NUMBERS; j++) ilp.most[j] = 1;
    for (int i = 0; i < N_ROWS; i++) {
        double sum = 0;
        for (int j = 0; j < N_NUMBERS; j++) {
            double value = (double)(kin_rng_u64(&rng) % 1000);
            ilp.entries[ilp.n_entry].row = i;
            ilp.entries[ilp.n_entry].column = j;
            ilp.entries[ilp.n_entry++].value = value;
            sum += value;
        }
        ilp.row_least[i] = ilp.row_most[i] = floor(sum / 2);
    }
    assert_int_equal(kin_highs_solve(&ilp, x, &err), KIN_ILP_FAILED);
    assert_string_equal(err.text, "HiGHS did not solve a program within 2 s; choose another --scheduler");
}

static void without_highs_there_is_a_sentence(void **state) {
    (void)state;
    kin_ilp ilp = {0};
    kin_err err;
    assert_int_equal(kin_highs_solve(&ilp, NULL, &err), KIN_ILP_FAILED);
    assert_non_null(strstr(err.text, "without HiGHS"));
}

int main(void) {
    const struct CMUnitTest with[] = {
        cmocka_unit_test(highs_finds_the_optima_that_counting_finds),
        cmocka_unit_test(halda_with_highs_makes_the_paper_s_choice),
        cmocka_unit_test(a_program_that_takes_too_long_is_given_up_with_a_sentence),
    };
    const struct CMUnitTest without[] = {cmocka_unit_test(without_highs_there_is_a_sentence)};
    if (kin_highs_is_there()) return cmocka_run_group_tests(with, NULL, NULL);
    int failed = cmocka_run_group_tests(without, NULL, NULL);
    return failed ? failed : EXIT_SKIPPED;
}
