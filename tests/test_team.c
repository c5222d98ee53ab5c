// Teams of threads: steps come in order, each chunk has one result, and a thread that stands still delays no other.
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "sys/team/interrupt.h"
#include "sys/team/team.h"
#include "tests/place.h"

#ifdef KIN_INTERRUPTS
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { N_STEPS = 40, MOST_CHUNKS = 64 };

// A job that counts what happens to its chunks.
typedef struct counted {
    int n_chunks[N_STEPS]; // of each step
    bool repeats;
    int n_threads;     // that compute; 0: all
    int number;        // of the job, from 1
    atomic_int n_seen; // threads that computed
    atomic_int n_computed[N_STEPS][MOST_CHUNKS], n_published[N_STEPS][MOST_CHUNKS];
    atomic_int n_done;       // chunks of the step that runs
    int n_planned;           // steps; written by one thread at a time
    atomic_int n_wrong;      // a step was planned while another one was not done, or chunks came out of order
    atomic_int stands_still; // 1: the first thread that has chunk 0 of step 0 stays until a later step is planned
    int stops_at;            // step before which the job ends; 0: never
} counted;

static kin_team_step plan(void *user, int step) {
    counted *j = user;
    if (step > 0 && j->n_chunks[step - 1] != atomic_load(&j->n_done)) j->n_wrong++;
    if (j->n_planned++ != step) j->n_wrong++;
    if (step > 2) atomic_store(&j->stands_still, 0);
    atomic_store(&j->n_done, 0);
    return (kin_team_step){.n_chunks = j->n_chunks[step], .claims_ahead = step % 2, .result_bytes = j->repeats ? sizeof(int) : 0};
}

static void note_done(counted *j, const kin_team_chunk *c) {
    atomic_fetch_add(&j->n_published[c->step][c->i], 1);
    atomic_fetch_add(&j->n_done, 1);
}

static void count_thread(counted *j) {
    static _Thread_local int last;
    if (last != j->number) atomic_fetch_add(&j->n_seen, 1);
    last = j->number;
}

static void compute(void *user, const kin_team_chunk *c) {
    counted *j = user;
    count_thread(j);
    int *last = c->state; // chunks of a thread ascend, unless it computes another one's again
    if (!c->is_new && !j->repeats && *last >= c->i) j->n_wrong++;
    *last = c->i;
    if (c->next >= 0 && (c->next <= c->i || c->next >= j->n_chunks[c->step])) j->n_wrong++;
    atomic_fetch_add(&j->n_computed[c->step][c->i], 1);
    int one = 1;
    if (c->step == 0 && c->i == 0 && atomic_compare_exchange_strong(&j->stands_still, &one, 2))
        while (atomic_load(&j->stands_still)) sched_yield();
    if (c->result)
        memcpy(c->result, &c->i, sizeof c->i);
    else
        note_done(j, c);
}

static void publish(void *user, const kin_team_chunk *c) {
    int i;
    memcpy(&i, c->result, sizeof i);
    assert_int_equal(i, c->i);
    note_done(user, c);
}

static bool stops(void *user) {
    const counted *j = user;
    return j->stops_at > 0 && j->n_planned == j->stops_at;
}

static kin_team *open_team(int n_threads) {
    kin_team *team;
    kin_err err;
    assert_int_equal(kin_team_open(&team, n_threads, &err), 0);
    assert_int_equal(kin_team_size(team), n_threads);
    assert_int_equal(kin_team_reserve(team, N_STEPS, &err), 0);
    return team;
}
#define open_team(...) FROM_TEST(open_team(__VA_ARGS__))

static bool run(kin_team *team, counted *j) {
    const kin_team_job job = {.n_steps = N_STEPS,
                              .n_threads = j->n_threads,
                              .plan = plan,
                              .compute = compute,
                              .publish = publish,
                              .stops = stops,
                              .user = j};
    return kin_team_run(team, &job);
}

static void cut(counted *j) {
    for (int i = 0; i < N_STEPS; i++) j->n_chunks[i] = i * 7 % (MOST_CHUNKS + 1); // 0 in the first one, and now and then
}

static void check_published(const counted *j, int n_steps) {
    assert_int_equal(j->n_wrong, 0);
    for (int step = 0; step < N_STEPS; step++)
        for (int i = 0; i < MOST_CHUNKS; i++) assert_int_equal(j->n_published[step][i], step < n_steps && i < j->n_chunks[step]);
}
#define check_published(...) FROM_TEST(check_published(__VA_ARGS__))

static void each_chunk_has_one_result_and_steps_come_in_order(void **state) {
    (void)state;
    for (int n_threads = 1; n_threads <= 9; n_threads += 2) { // more than there are processors, too
        kin_team *team = open_team(n_threads);
        for (int round = 0; round < 40; round++) {
            static counted j;
            memset(&j, 0, sizeof j);
            j.repeats = round % 2;
            cut(&j);
            assert_true(run(team, &j));
            check_published(&j, N_STEPS);
        }
        kin_team_close(team);
    }
}

// Helpers sleep and wake as the number changes.
static void a_job_is_computed_by_the_number_of_threads_that_it_names(void **state) {
    (void)state;
    enum { SIZE = 6 };
    kin_team *team = open_team(SIZE);
    for (int number = 1; number <= 200; number++) {
        static counted j;
        memset(&j, 0, sizeof j);
        j.number = number;
        j.n_threads = number % SIZE + 1;
        j.repeats = number % 2;
        cut(&j);
        assert_true(run(team, &j));
        check_published(&j, N_STEPS);
        assert_in_range(j.n_seen, 1, j.n_threads);
    }
    kin_team_close(team);
}

static void a_chunk_without_result_is_computed_once(void **state) {
    (void)state;
    kin_team *team = open_team(4);
    static counted j;
    memset(&j, 0, sizeof j);
    cut(&j);
    assert_true(run(team, &j));
    for (int step = 0; step < N_STEPS; step++)
        for (int i = 0; i < j.n_chunks[step]; i++) assert_int_equal(j.n_computed[step][i], 1);
    kin_team_close(team);
}

// The thread that stands still goes on only when step 3 has begun: without another one the job would never get there.
static void another_thread_computes_the_chunk_of_one_that_stands_still(void **state) {
    (void)state;
    for (int n_threads = 2; n_threads <= 5; n_threads++) {
        kin_team *team = open_team(n_threads);
        for (int round = 0; round < 5; round++) {
            static counted j;
            memset(&j, 0, sizeof j);
            j.repeats = true;
            cut(&j);
            j.n_chunks[0] = 3;
            j.stands_still = 1;
            assert_true(run(team, &j));
            check_published(&j, N_STEPS);
            assert_true(j.n_computed[0][0] >= 2);
        }
        kin_team_close(team);
    }
}

static void a_job_ends_where_it_is_told_to_stop(void **state) {
    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        kin_team *team = open_team(n_threads);
        static counted j;
        memset(&j, 0, sizeof j);
        cut(&j);
        j.stops_at = 11;
        assert_false(run(team, &j));
        check_published(&j, 11);
        memset(&j, 0, sizeof j);
        cut(&j);
        assert_true(run(team, &j));
        check_published(&j, N_STEPS);
        kin_team_close(team);
    }
}

#ifdef KIN_INTERRUPTS

// A job of one step in which helpers count for ever, and the caller computes all chunks.
typedef struct endless {
    pthread_t caller;
    atomic_int n_counting; // helpers
    _Atomic uint64_t count;
} endless;

static kin_team_step plan_endless(void *user, int step) {
    (void)user, (void)step;
    return (kin_team_step){.n_chunks = 50, .result_bytes = sizeof(int)};
}

static void compute_endless(void *user, const kin_team_chunk *c) {
    endless *j = user;
    (void)c;
    if (!pthread_equal(pthread_self(), j->caller)) {
        atomic_fetch_add(&j->n_counting, 1);
        for (;;) atomic_fetch_add(&j->count, 1);
    }
    while (atomic_load(&j->n_counting) == 0) sched_yield();
}

static void publish_nothing(void *user, const kin_team_chunk *c) {
    (void)user, (void)c;
}

static void a_job_ends_without_a_helper_that_stands_still(void **state) {
    (void)state;
    const long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (commands < 0 || (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) skip();
    sigset_t all, usual; // helpers inherit a mask; the signal must reach them all the same
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &usual);
    for (int n_threads = 2; n_threads <= 5; n_threads++) {
        kin_team *team = open_team(n_threads);
        for (int round = 0; round < 100; round++) {
            endless j = {.caller = pthread_self()};
            const kin_team_job job = {
                .n_steps = 1, .plan = plan_endless, .compute = compute_endless, .publish = publish_nothing, .user = &j};
            assert_true(kin_team_run(team, &job));
            if (round % 2) kin_team_rest(team); // the helper has left its chunk
            const uint64_t count = j.count;
            for (volatile int i = 0; i < 1000; i++) continue;
            assert_int_equal(j.count, count);
        }
        static counted j;
        static int number = 1000;
        for (j.n_seen = 0; j.n_seen < 2;) { // the helpers come back
            memset(&j, 0, sizeof j);
            j.number = number++;
            cut(&j);
            assert_true(run(team, &j));
            check_published(&j, N_STEPS);
        }
        kin_team_close(team);
    }
    pthread_sigmask(SIG_SETMASK, &usual, NULL);
}

#endif

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Seven helpers that spun would take seconds where there are processors for them, and at least one second anywhere.
static void threads_without_a_job_leave_the_processors_to_others(void **state) {
    (void)state;
    kin_team *team = open_team(8);
    static counted j;
    memset(&j, 0, sizeof j);
    cut(&j);
    assert_true(run(team, &j));
    const double begun = cpu_s();
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    assert_true(cpu_s() - begun < 0.2);
    kin_team_close(team);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_chunk_has_one_result_and_steps_come_in_order),
        cmocka_unit_test(a_job_is_computed_by_the_number_of_threads_that_it_names),
        cmocka_unit_test(a_chunk_without_result_is_computed_once),
        cmocka_unit_test(another_thread_computes_the_chunk_of_one_that_stands_still),
        cmocka_unit_test(a_job_ends_where_it_is_told_to_stop),
#ifdef KIN_INTERRUPTS
        cmocka_unit_test(a_job_ends_without_a_helper_that_stands_still),
#endif
        cmocka_unit_test(threads_without_a_job_leave_the_processors_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
