// The number of threads for small jobs follows what jobs took, and trying other numbers costs little.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sys/team/width.h"
#include "tests/place.h"

enum { US = 1000, MS = 1000 * US };
static const uint64_t second = 1000 * (uint64_t)MS;

// A machine on which time passes only while jobs run.
typedef struct machine {
    int most;
    uint64_t (*cost_ns)(int n_threads);
    kin_width width;
    kin_time now;
    uint64_t n_jobs;
} machine;

static void run_job(machine *m) {
    const int n = kin_width_next(&m->width, m->most, m->now);
    assert_in_range(n, 1, m->most);
    const uint64_t ns = m->cost_ns(n);
    m->now += ns;
    m->n_jobs++;
    kin_width_add(&m->width, m->most, ns, m->now);
}
#define run_job(...) FROM_TEST(run_job(__VA_ARGS__))

static void run_for(machine *m, uint64_t ns) {
    for (kin_time end = m->now + ns; m->now < end;) run_job(m);
}
#define run_for(...) FROM_TEST(run_for(__VA_ARGS__))

static uint64_t waits_for_others(int n) {
    return n == 1 ? 200 * US : 400 * US;
}

static uint64_t scales(int n) {
    return 400 * US / (uint64_t)n;
}

static uint64_t best_with_four(int n) {
    return 4000 * US / (uint64_t)n + 250 * US * (uint64_t)n;
}

static uint64_t takes_a_second(int n) {
    return second * 2 / (uint64_t)n;
}

static void a_job_that_one_thread_computes_faster_gets_one(void **state) {
    (void)state;
    machine m = {.most = 2, .cost_ns = waits_for_others, .now = second};
    run_for(&m, second);
    assert_int_equal(m.width.now, 1);
}

static void trials_cost_a_sixtieth_at_most(void **state) {
    (void)state;
    machine two = {.most = 2, .cost_ns = scales, .now = second}, eight = {.most = 8, .cost_ns = scales, .now = second};
    run_for(&two, 60 * second);
    run_for(&eight, 60 * second);
    assert_in_range(two.n_jobs, 60 * second / scales(2) * 59 / 60, 60 * second / scales(2));
    assert_in_range(eight.n_jobs, 60 * second / scales(8) * 59 / 60, 60 * second / scales(8));
}

static void the_best_of_many_numbers_is_found(void **state) {
    (void)state;
    machine m = {.most = 16, .cost_ns = best_with_four, .now = second};
    run_for(&m, 10 * second);
    assert_int_equal(m.width.now, 4);
}

static void a_processor_is_given_up_and_taken_back(void **state) {
    (void)state;
    machine m = {.most = 2, .cost_ns = scales, .now = second};
    run_for(&m, 10 * second);
    assert_int_equal(m.width.now, 2);
    m.cost_ns = waits_for_others;
    run_for(&m, 2 * second);
    assert_int_equal(m.width.now, 1);
    m.cost_ns = scales;
    run_for(&m, 10 * second);
    assert_int_equal(m.width.now, 2);
}

static void jobs_of_a_second_are_not_slowed_down_by_trials(void **state) {
    (void)state;
    machine m = {.most = 2, .cost_ns = takes_a_second, .now = second};
    for (int i = 0; i < 200; i++) run_job(&m);
    assert_int_equal(m.now, second + 200 * second);
}

static void one_thread_stays_one(void **state) {
    (void)state;
    machine m = {.most = 1, .cost_ns = scales, .now = second};
    run_for(&m, second);
    assert_int_equal(m.width.now, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_one_thread_computes_faster_gets_one),
        cmocka_unit_test(trials_cost_a_sixtieth_at_most),
        cmocka_unit_test(the_best_of_many_numbers_is_found),
        cmocka_unit_test(a_processor_is_given_up_and_taken_back),
        cmocka_unit_test(jobs_of_a_second_are_not_slowed_down_by_trials),
        cmocka_unit_test(one_thread_stays_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
