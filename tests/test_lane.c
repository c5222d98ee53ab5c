// A lane of libuv's pool: one piece of work at a time, in order; what waits can be taken out, and too much is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>

#include "serve/lane.h"
#include "tests/place.h"

enum { N = 6 };

typedef struct story {
    uv_loop_t loop;
    kin_lane lane;
    kin_lane_work works[N];
    atomic_int n_at_once;
    atomic_bool is_wrong, is_short_done;
    int ended[N], n_ended;
    kin_lane_work *again; // queued when the first has ended
} story;

static void run(kin_lane_work *work) {
    story *s = work->user;
    if (atomic_fetch_add(&s->n_at_once, 1) != 0) atomic_store(&s->is_wrong, true);
    uv_sleep(2); // long enough for another one to be seen beside it
    atomic_fetch_sub(&s->n_at_once, 1);
}

static void done(kin_lane_work *work, int status) {
    story *s = work->user;
    assert_int_equal(status, 0);
    s->ended[s->n_ended++] = (int)(work - s->works);
    if (s->again) assert_true(kin_lane_queue(&s->lane, s->again));
    s->again = NULL;
}

static void begin(story *s, int n_most) {
    *s = (story){0};
    assert_int_equal(uv_loop_init(&s->loop), 0);
    kin_lane_init(&s->lane, &s->loop, n_most);
    for (int i = 0; i < N; i++) s->works[i] = (kin_lane_work){.run = run, .done = done, .user = s};
}
#define begin(...) FROM_TEST(begin(__VA_ARGS__))

static void end(story *s, const int *order, int n) {
    assert_int_equal(uv_run(&s->loop, UV_RUN_DEFAULT), 0);
    assert_false(atomic_load(&s->is_wrong));
    assert_int_equal(s->n_ended, n);
    for (int i = 0; i < n; i++) assert_int_equal(s->ended[i], order[i]);
    assert_int_equal(s->lane.n_waiting, 0);
    assert_int_equal(uv_loop_close(&s->loop), 0);
}
#define end(...) FROM_TEST(end(__VA_ARGS__))

static void work_runs_one_at_a_time_in_order(void **state) {
    static const int order[] = {0, 1, 2, 3, 4, 5};
    story s;
    (void)state;
    begin(&s, N);
    for (int i = 0; i < N; i++) assert_true(kin_lane_queue(&s.lane, &s.works[i]));
    end(&s, order, N);
}

static void what_waits_can_be_taken_out(void **state) {
    static const int order[] = {0, 2, 4};
    story s;
    (void)state;
    begin(&s, N);
    for (int i = 0; i < 4; i++) assert_true(kin_lane_queue(&s.lane, &s.works[i]));
    assert_false(kin_lane_remove(&s.lane, &s.works[0])); // it runs
    assert_true(kin_lane_remove(&s.lane, &s.works[1]));
    assert_true(kin_lane_remove(&s.lane, &s.works[3])); // the last one
    assert_false(kin_lane_remove(&s.lane, &s.works[3]));
    assert_true(kin_lane_queue(&s.lane, &s.works[4]));
    end(&s, order, 3);
}

static void too_much_is_refused(void **state) {
    static const int order[] = {0, 1, 2, 4};
    story s;
    (void)state;
    begin(&s, 2);
    for (int i = 0; i < 3; i++) assert_true(kin_lane_queue(&s.lane, &s.works[i]));
    assert_false(kin_lane_queue(&s.lane, &s.works[3]));
    s.again = &s.works[4]; // there is room when the first has ended
    s.lane.n_most = 3;
    end(&s, order, 4);
}

// The first piece of long work runs until what came last, which is not long, is done.
static void wait_for_short_work(kin_lane_work *work) {
    story *s = work->user;
    for (int ms = 0; work == s->works && !atomic_load(&s->is_short_done); ms++) {
        uv_sleep(1);
        if (ms > 20000) atomic_store(&s->is_wrong, true), atomic_store(&s->is_short_done, true);
    }
}

static void run_short(kin_lane_work *work) {
    story *s = work->user;
    atomic_store(&s->is_short_done, true);
}

static void long_work_leaves_threads_to_what_is_not_long(void **state) {
    static const int order[] = {5, 0, 1, 2, 3, 4};
    story s;
    (void)state;
    begin(&s, N);
    for (int i = 0; i < N - 1; i++) { // more than the pool has threads
        s.works[i].run = wait_for_short_work;
        kin_lane_run(&s.lane, &s.works[i], true);
    }
    s.works[N - 1].run = run_short;
    kin_lane_run(&s.lane, &s.works[N - 1], false);
    end(&s, order, N);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_runs_one_at_a_time_in_order),
        cmocka_unit_test(what_waits_can_be_taken_out),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(long_work_leaves_threads_to_what_is_not_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
