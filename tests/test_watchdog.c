// A hanging computing thread is detected (pipeline/watchdog.h) and its device leaves the ring; a slow one is not.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>

#include "pipeline/watchdog.h"
#include "testkit/head_eval.h"
#include "testkit/runner.h"
#include "tests/small_cluster.h"

enum { TICK_MS = 100, LEAST_MS = 5000 };

static kin_time ms(uint64_t n) {
    return n * UINT64_C(1000000);
}

typedef struct dog {
    kin_watchdog w;
    kin_time now;
    unsigned n_signs;
} dog;

static dog open_dog(void) {
    dog d = {.w.least_ns = ms(LEAST_MS), .now = ms(1000)};
    kin_watchdog_check(&d.w, d.now, false, d.n_signs);
    return d;
}

// Passes for_ms without a sign of progress. Returns true if the thread is considered to hang.
static bool stays_silent(dog *d, int for_ms, bool is_busy) {
    bool hangs = false;
    for (int t = 0; t < for_ms; t += TICK_MS) {
        d->now += ms(TICK_MS);
        hangs = kin_watchdog_check(&d->w, d->now, is_busy, d->n_signs) || hangs;
    }
    return hangs;
}

static void silence_beyond_the_limit_hangs(void **state) {
    (void)state;
    dog d = open_dog();
    assert_false(stays_silent(&d, LEAST_MS, true));
    assert_true(stays_silent(&d, 2 * TICK_MS, true));
}

static void a_device_that_waits_for_work_does_not_hang(void **state) {
    (void)state;
    dog d = open_dog();
    assert_false(stays_silent(&d, 100 * LEAST_MS, false));
    assert_false(stays_silent(&d, LEAST_MS - TICK_MS, true)); // the time of waiting does not count
}

static void signs_begin_it_anew(void **state) {
    (void)state;
    dog d = open_dog();
    for (int i = 0; i < 10; i++, d.n_signs++) assert_false(stays_silent(&d, LEAST_MS - TICK_MS, true));
}

static void what_took_long_before_may_take_long_again(void **state) {
    (void)state;
    dog d = open_dog();
    assert_false(stays_silent(&d, 2000, true));
    d.n_signs++;
    assert_false(stays_silent(&d, 2000 * KIN_WATCHDOG_TIMES - TICK_MS, true));
    assert_true(stays_silent(&d, 3 * TICK_MS, true));
}

static void time_without_checks_is_not_counted(void **state) {
    (void)state;
    dog d = open_dog();
    assert_false(stays_silent(&d, 1000, true));
    d.now += ms(100 * LEAST_MS); // the process was stopped
    assert_false(stays_silent(&d, 1000, true));
}

// ---- a device

static void a_graph_gives_signs(void **state) {
    (void)state;
    atomic_bool stop = false;
    atomic_uint n_signs = 0;
    kin_runner r;
    kin_err err;
    float logits[N_VOCAB];
    kin_runner_options o = kin_runner_options_defaults();
    o.device.stop = &stop;
    o.device.n_signs = &n_signs;
    if (kin_runner_open(&r, model_path, &o, &err) != 0) fail_msg("%s", err.text);
    if (kin_head_eval(r.head, 0, 0, (const int32_t[]){1}, 1, logits, 1, &err) != 0) fail_msg("%s", err.text);
    assert_true(atomic_load(&n_signs) > N_LAYER);
    kin_runner_close(&r);
}

// An engine that hangs in its first step until the gate opens.
typedef struct engine {
    pthread_mutex_t gate;
    atomic_bool has_left;
    kin_remote_engine table;
} engine;

static int open_engine(void *user, const kin_remote_open *o, kin_proto_ready *ready, kin_err *err) {
    (void)user, (void)o, (void)err;
    *ready = (kin_proto_ready){0};
    return 0;
}

static int hang(void *user, kin_message_buffer *buffer, kin_err *err) {
    engine *e = user;
    (void)buffer;
    pthread_mutex_lock(&e->gate);
    pthread_mutex_unlock(&e->gate);
    return kin_err_set(err, "it hung");
}

static int reset_engine(void *user, kin_err *err) {
    (void)user, (void)err;
    return 0;
}

static void on_status(void *user, const char *line) {
    engine *e = user;
    if (strstr(line, "left the head permanently: no progress in a step for ")) atomic_store(&e->has_left, true);
}

static void a_device_whose_step_hangs_leaves(void **state) {
    (void)state;
    static device anna;
    static float logits[N_VOCAB];
    static engine e = {.gate = PTHREAD_MUTEX_INITIALIZER};
    const int32_t ids[] = {1, 50, 60, 70};
    kin_err err;
    e.table = (kin_remote_engine){.os = "test", .memory = 1 << 30, .user = &e, .open = open_engine, .handle = hang};
    e.table.reset = reset_engine;
    pthread_mutex_lock(&e.gate);
    kin_cluster_options o = cluster_options(1);
    o.calls.ask = plan_two_rounds;
    kin_cluster *c = open_small_cluster(&o);
    kin_join_options jo = device_with_model(99, "anna", kin_cluster_port(c));
    jo.engine = &e.table;
    jo.hang_ms = 500;
    jo.status = on_status;
    jo.user = &e;
    start_device(&anna, &jo, NULL);
    if (kin_cluster_begin(c, &err) != 0) fail_msg("%s", err.text);
    kin_head_clear(kin_cluster_head(c));
    assert_int_equal(kin_head_eval(kin_cluster_head(c), 0, 0, ids, 4, logits, 1, &err), KIN_FAIL);
    if (!strstr(err.text, "no progress in a step for ")) fail_msg("%s", err.text);
    kin_cluster_end(c);
    pthread_mutex_unlock(&e.gate); // the device does not rejoin
    pthread_join(anna.thread, NULL);
    assert_true(atomic_load(&e.has_left));
    assert_int_equal(anna.rc, KIN_FAIL);
    if (!strstr(anna.err.text, "no progress in a step for ")) fail_msg("%s", anna.err.text);
    kin_cluster_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence_beyond_the_limit_hangs),
        cmocka_unit_test(a_device_that_waits_for_work_does_not_hang),
        cmocka_unit_test(signs_begin_it_anew),
        cmocka_unit_test(what_took_long_before_may_take_long_again),
        cmocka_unit_test(time_without_checks_is_not_counted),
        cmocka_unit_test(a_graph_gives_signs),
        cmocka_unit_test(a_device_whose_step_hangs_leaves),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
