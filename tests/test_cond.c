// Waits on a condition variable (sys/cond.h) last as long as requested, even if the wall clock jumps.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifndef __APPLE__
#include <sys/syscall.h>
#endif
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/cond.h"

// Simulates a wall clock that was set back by an hour.
int clock_gettime(clockid_t clock, struct timespec *at) {
#ifdef __APPLE__
    uint64_t ns = clock_gettime_nsec_np(clock);
    *at = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    int rc = 0;
#else
    int rc = (int)syscall(SYS_clock_gettime, clock, at);
#endif
    if (clock == CLOCK_REALTIME) at->tv_sec -= 3600;
    return rc;
}

typedef struct sleeper {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
} sleeper;

static void *wake(void *arg) {
    sleeper *s = arg;
    pthread_mutex_lock(&s->mutex); // taken only once the sleeper waits
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

static void a_wait_lasts_as_long_as_asked_though_the_wall_clock_was_set(void **state) {
    (void)state;
    const uint64_t wait_ns = 50 * UINT64_C(1000000);
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    assert_int_equal(kin_cond_init(&cond), 0);
    pthread_mutex_lock(&mutex);
    kin_time begun = kin_clock_now(), ended;
    kin_cond_wait_for(&cond, &mutex, wait_ns);
    ended = kin_clock_now();
    pthread_mutex_unlock(&mutex);
    assert_true(ended - begun >= wait_ns);
    pthread_cond_destroy(&cond);
}

static void a_signal_ends_a_wait(void **state) {
    (void)state;
    sleeper s = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    assert_int_equal(kin_cond_init(&s.cond), 0);
    pthread_mutex_lock(&s.mutex);
    assert_int_equal(pthread_create(&thread, NULL, wake, &s), 0);
    kin_cond_wait_for(&s.cond, &s.mutex, UINT64_MAX / 4); // practically for ever
    pthread_mutex_unlock(&s.mutex);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&s.cond);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_lasts_as_long_as_asked_though_the_wall_clock_was_set),
        cmocka_unit_test(a_signal_ends_a_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
