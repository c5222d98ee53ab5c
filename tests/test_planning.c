// The planner's thread (cluster/planning.h): it answers only the latest question, and only closing waits for it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cluster/planning.h"
#include "tests/place.h"

// A planner whose calls wait until they are released: call i (from 1) until n_released >= i.
typedef struct bench {
    kin_planning *planning;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int n_begun, n_released, n_done;
    char log[256];
} bench;

static void wait_until(bench *b, const int *count, int n) {
    pthread_mutex_lock(&b->mutex);
    while (*count < n) pthread_cond_wait(&b->changed, &b->mutex);
    pthread_mutex_unlock(&b->mutex);
}

static void raise_to(bench *b, int *count, int n) {
    pthread_mutex_lock(&b->mutex);
    *count = n;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->mutex);
}

static void pass(bench *b, const char *what) {
    pthread_mutex_lock(&b->mutex);
    int n = ++b->n_begun;
    snprintf(b->log + strlen(b->log), sizeof b->log - strlen(b->log), "%s ", what);
    pthread_cond_broadcast(&b->changed);
    while (b->n_released < n) pthread_cond_wait(&b->changed, &b->mutex);
    pthread_mutex_unlock(&b->mutex);
}

static int plan(kin_planner *user, const kin_planner_question *q, kin_plan *out, kin_err *err) {
    pass((bench *)user, q->candidates[0].name);
    if (q->has_facts) return kin_err_set(err, "%d facts", q->facts.n_device);
    *out = (kin_plan){.n_stops = q->n, .n_rounds = q->ids[0].bytes[0]};
    return 0;
}

static int without(kin_planner *user, const kin_planner_question *q, int i, kin_plan *out, kin_err *err) {
    char what[32];
    snprintf(what, sizeof what, "without-%s", q->candidates[i].name);
    pass((bench *)user, what);
    *out = (kin_plan){.n_stops = q->n - 1};
    return i == 1 ? 0 : kin_err_set(err, "no plan");
}

static void left_out(kin_planner *user, const kin_planner_question *q, int i, char why[KIN_PLAN_WHY_MAX]) {
    char what[32];
    snprintf(what, sizeof what, "why-%s", q->candidates[i].name);
    pass((bench *)user, what);
    snprintf(why, KIN_PLAN_WHY_MAX, "%s", i == 1 ? "" : "it is slow");
}

static bool measured(kin_planner *user, const kin_planner_measured *m) {
    char what[32];
    snprintf(what, sizeof what, "measured-%d-%d", m->n_cached, m->facts ? m->facts->n_device : 0);
    pass((bench *)user, what);
    return m->n_cached == 1;
}

static void done(void *user) {
    bench *b = user;
    pthread_mutex_lock(&b->mutex);
    b->n_done++;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->mutex);
}

static void open_bench(bench *b) {
    kin_err err;
    *b = (bench){.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    kin_planning_options o = {.planner = (kin_planner *)b,
                              .calls = {.ask = plan, .without = without, .add_measured = measured},
                              .done = done,
                              .user = b};
    assert_int_equal(kin_planning_open(&b->planning, &o, &err), 0);
}
#define open_bench(...) FROM_TEST(open_bench(__VA_ARGS__))

// Asks a question, and then overwrites its memory, because the planner must have copied it.
static void ask(bench *b, uint32_t number, const char *name, int n_facts) {
    static kin_planner_question question;
    question = (kin_planner_question){.number = number, .n = 1, .ids = {{{(uint8_t)number}}}, .has_facts = n_facts > 0};
    snprintf(question.candidates[0].name, KIN_CANDIDATE_NAME, "%s", name);
    question.facts.n_device = n_facts;
    kin_planning_ask(b->planning, &question);
    memset(&question, 'x', sizeof question);
}

static kin_planner_question about_three(uint32_t number) {
    return (kin_planner_question){
        .number = number, .n = 3, .candidates = {{.name = "head"}, {.name = "a"}, {.name = "b"}}, .ids = {{{3}}, {{1}}, {{2}}}};
}

static void only_the_latest_question_is_thought_about(void **state) {
    (void)state;
    bench b;
    static kin_planning_answer answer;
    open_bench(&b);
    assert_false(kin_planning_pop_answer(b.planning, &answer));
    ask(&b, 1, "first", 0);
    wait_until(&b, &b.n_begun, 1);
    ask(&b, 2, "second", 0);
    ask(&b, 3, "third", 0);
    raise_to(&b, &b.n_released, 1);
    wait_until(&b, &b.n_done, 1);
    assert_true(kin_planning_pop_answer(b.planning, &answer));
    assert_int_equal(answer.question, 1);
    assert_true(answer.has_plan && answer.plan.n_rounds == 1 && answer.n == 1 && answer.ids[0].bytes[0] == 1);
    raise_to(&b, &b.n_released, 2);
    wait_until(&b, &b.n_done, 2);
    assert_true(kin_planning_pop_answer(b.planning, &answer));
    assert_int_equal(answer.question, 3);
    assert_false(kin_planning_pop_answer(b.planning, &answer)); // already taken
    assert_string_equal(b.log, "first third ");
    kin_planning_close(b.planning);
}

static void reasons_come_after_the_last_answer(void **state) {
    (void)state;
    bench b = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    static kin_planning_answer answer;
    static kin_planning_reasons reasons;
    static kin_planner_question question;
    question = about_three(6);
    kin_planning_options o = {
        .planner = (kin_planner *)&b, .calls = {.ask = plan, .without = without, .left_out = left_out}, .done = done, .user = &b};
    kin_err err;
    assert_int_equal(kin_planning_open(&b.planning, &o, &err), 0);
    kin_planning_ask(b.planning, &question);
    wait_until(&b, &b.n_begun, 1);
    question.number = 8;
    kin_planning_ask_standby(b.planning, &question);
    question.number = 7;
    kin_planning_ask(b.planning, &question);
    raise_to(&b, &b.n_released, 2); // releases both answers
    wait_until(&b, &b.n_done, 2);
    assert_true(kin_planning_pop_answer(b.planning, &answer));
    assert_false(kin_planning_pop_reasons(b.planning, &reasons));
    raise_to(&b, &b.n_released, 6);
    wait_until(&b, &b.n_done, 4);
    assert_string_equal(b.log, "head head why-a why-b without-a without-b ");
    assert_true(kin_planning_pop_reasons(b.planning, &reasons));
    assert_true(reasons.question == 7 && reasons.n == 3 && reasons.ids[1].bytes[0] == 1);
    assert_string_equal(reasons.why[1], "");
    assert_string_equal(reasons.why[2], "it is slow");
    assert_false(kin_planning_pop_reasons(b.planning, &reasons)); // already taken
    kin_planning_close(b.planning);
}

static void plans_without_each_of_the_devices_come_after_everything_else(void **state) {
    (void)state;
    bench b;
    static kin_planning_standby spares;
    static kin_planner_question question;
    question = about_three(8);
    open_bench(&b);
    ask(&b, 1, "first", 0);
    wait_until(&b, &b.n_begun, 1);
    kin_planning_ask_standby(b.planning, &question);
    ask(&b, 2, "second", 0);
    raise_to(&b, &b.n_released, 4);
    wait_until(&b, &b.n_done, 3);
    assert_string_equal(b.log, "first second without-a without-b ");
    assert_true(kin_planning_pop_standby(b.planning, &spares));
    assert_true(spares.number == 8 && spares.n == 3 && spares.ids[1].bytes[0] == 1);
    assert_true(spares.has[1] && !spares.has[2] && spares.plans[1].n_stops == 2);
    assert_false(kin_planning_pop_standby(b.planning, &spares)); // already taken
    kin_planning_close(b.planning);
}

static void what_was_measured_comes_before_a_question(void **state) {
    (void)state;
    bench b;
    static kin_planning_answer answer;
    static kin_facts facts = {.n_device = 2};
    uint32_t round;
    bool asks;
    open_bench(&b);
    ask(&b, 1, "first", 0);
    wait_until(&b, &b.n_begun, 1);
    ask(&b, 2, "second", 5);
    kin_planning_add_measurement(b.planning, 7, &(kin_planner_measured){.n_cached = 1, .facts = &facts});
    facts.n_device = -1;
    raise_to(&b, &b.n_released, 2);
    wait_until(&b, &b.n_done, 2);
    assert_true(kin_planning_pop_round(b.planning, &round, &asks));
    assert_int_equal(round, 7);
    assert_true(asks);
    assert_false(kin_planning_pop_round(b.planning, &round, &asks));
    raise_to(&b, &b.n_released, 3);
    wait_until(&b, &b.n_done, 3);
    assert_true(kin_planning_pop_answer(b.planning, &answer));
    assert_false(answer.has_plan);
    assert_string_equal(answer.why.text, "5 facts");
    assert_string_equal(b.log, "first measured-1-2 second ");
    kin_planning_close(b.planning);
}

static void stopping_waits_for_what_runs_and_begins_nothing_more(void **state) {
    (void)state;
    bench b;
    open_bench(&b);
    ask(&b, 1, "first", 0);
    wait_until(&b, &b.n_begun, 1);
    raise_to(&b, &b.n_released, 1);
    kin_planning_stop(b.planning);
    assert_string_equal(b.log, "first ");
    ask(&b, 2, "second", 0); // as a loop does that has not ended yet
    kin_planning_close(b.planning);
    assert_string_equal(b.log, "first ");
    kin_planning_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_latest_question_is_thought_about),
        cmocka_unit_test(reasons_come_after_the_last_answer),
        cmocka_unit_test(plans_without_each_of_the_devices_come_after_everything_else),
        cmocka_unit_test(what_was_measured_comes_before_a_question),
        cmocka_unit_test(stopping_waits_for_what_runs_and_begins_nothing_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
