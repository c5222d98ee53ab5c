// Runs an operation repeatedly: first its first allocation fails, then its second, and so on until the operation makes fewer
// allocations than that. Each failure must give an error message or be compensated for; nothing may leak; and the last run, in
// which no allocation fails, must succeed.
//
// Included by one file of each program test_no_memory_*, which tools/cmake/options.cmake links with --wrap. Allocations inside
// shared libraries are not counted and never fail. jansson is the exception: it is made to use these functions, and fails too
// unless failing_standby_json is set, because its parser (2.14) reads beyond a token that outgrows its buffer when memory runs
// out. Allocations of other threads never fail.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

// Each of the first FAILING_ALL allocations fails in turn; of the later ones only a part.
enum { FAILING_MAX_LIVE = 1 << 16, FAILING_ALL = 200 };

// The allocations that are alive and were counted, protected by `mutex`.
static struct {
    pthread_mutex_t mutex;
    void *live[FAILING_MAX_LIVE]; // a hash table; NULL: empty
    size_t n_live;
    void *failed_in; // return address of the first caller whose allocation was refused
} failing = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool failing_counts;  // this thread's allocations are counted and may fail
static _Thread_local long failing_left;    // allocations until one fails, including that one; 0: none fails
static _Thread_local bool failing_goes_on; // all later allocations fail too
static _Thread_local bool failing_has_failed;
static _Thread_local bool failing_standby_json; // jansson's allocations do not fail

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
int __real_posix_memalign(void **p, size_t align, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
int __wrap_posix_memalign(void **p, size_t align, size_t n);
void __wrap_free(void *p);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

static size_t failing_slot(const void *p) {
    size_t at = (size_t)((uintptr_t)p >> 4) * 0x9E3779B97F4A7C15u % FAILING_MAX_LIVE;
    while (failing.live[at] && failing.live[at] != p) at = (at + 1) % FAILING_MAX_LIVE;
    return at;
}

static void *failing_add(void *p) {
    if (!p || !failing_counts) return p;
    pthread_mutex_lock(&failing.mutex);
    kin_assert(failing.n_live < FAILING_MAX_LIVE / 2);
    failing.live[failing_slot(p)] = p;
    failing.n_live++;
    pthread_mutex_unlock(&failing.mutex);
    return p;
}

// Call before the memory is freed, so that no other thread can get the same address in between.
static void failing_remove(const void *p) {
    if (!p) return;
    pthread_mutex_lock(&failing.mutex);
    size_t at = failing.n_live > 0 ? failing_slot(p) : 0;
    if (failing.n_live > 0 && failing.live[at]) {
        failing.live[at] = NULL;
        failing.n_live--;
        for (size_t i = (at + 1) % FAILING_MAX_LIVE; failing.live[i]; i = (i + 1) % FAILING_MAX_LIVE) {
            void *moved = failing.live[i]; // an entry that was displaced by p's is inserted again from its own slot
            failing.live[i] = NULL;
            failing.live[failing_slot(moved)] = moved;
        }
    }
    pthread_mutex_unlock(&failing.mutex);
}

static bool failing_now(void *caller) {
    if (!failing_counts || failing_left == 0) return false;
    if (failing_left > 1) {
        failing_left--;
        return false;
    }
    if (!failing_goes_on) failing_left = 0;
    if (!failing_has_failed) failing.failed_in = caller;
    failing_has_failed = true;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t n) {
    return failing_now(__builtin_return_address(0)) ? NULL : failing_add(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size) {
    return failing_now(__builtin_return_address(0)) ? NULL : failing_add(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n) {
    if (failing_now(__builtin_return_address(0))) return NULL;
    failing_remove(p);
    void *moved = __real_realloc(p, n);
    return failing_add(moved);
}

int __wrap_posix_memalign(void **p, size_t align, size_t n) {
    if (failing_now(__builtin_return_address(0))) return ENOMEM;
    int rc = __real_posix_memalign(p, align, n);
    if (rc == 0) failing_add(*p);
    return rc;
}

void __wrap_free(void *p) {
    failing_remove(p);
    __real_free(p);
}

char *__wrap_strdup(const char *s) {
    return __wrap_strndup(s, strlen(s));
}

char *__wrap_strndup(const char *s, size_t n) {
    if (failing_now(__builtin_return_address(0))) return NULL;
    n = strnlen(s, n);
    char *copy = failing_add(__real_malloc(n + 1));
    if (!copy) return NULL;
    memcpy(copy, s, n);
    copy[n] = 0;
    return copy;
}

static inline void *failing_json_malloc(size_t n) {
    if (failing_standby_json) return failing_add(__real_malloc(n));
    return failing_now(__builtin_return_address(0)) ? NULL : failing_add(__real_malloc(n));
}

// An operation that opens, uses and closes something. Returns 0, or KIN_FAIL with an error message. If the tested function
// gives none, the operation must set one.
typedef int failing_run(void *arg, kin_err *err);

// Runs once with the n-th allocation failing. Returns true if the run reached it.
static bool run_failing_at(failing_run *run, void *arg, long n, bool goes_on) {
    kin_err err = {""};
    failing_left = n;
    failing_goes_on = goes_on;
    failing_has_failed = false;
    failing.failed_in = NULL;
    if (failing.n_live > 0) memset(failing.live, 0, sizeof failing.live); // left by a test that failed
    failing.n_live = 0;
    failing_counts = true;
    int rc = run(arg, &err);
    failing_counts = false;
    failing_left = 0;
    if (failing.n_live != 0) {
        fail_msg("allocation %ld failed (for %p), %s: %zu are left of what was allocated", n, failing.failed_in,
                 goes_on ? "and all after it" : "it alone", failing.n_live);
    }
    if (rc != 0 && err.text[0] == 0) fail_msg("allocation %ld failed (for %p): no sentence", n, failing.failed_in);
    if (rc != 0 && !failing_has_failed) fail_msg("it fails with all the memory that it asks for: %s", err.text);
    return failing_has_failed;
}

// Runs the operation with each of its allocations failing, alone and together with all later ones. For long operations: each of
// the first FAILING_ALL, then every n-th at distances that grow with n.
static inline void without_memory(failing_run *run, void *arg) {
    json_set_alloc_funcs(failing_json_malloc, __wrap_free);
    assert_false(run_failing_at(run, arg, 0, false)); // the first run makes the allocations that happen once per process
    long n = 1;
    while (run_failing_at(run, arg, n, false)) {
        run_failing_at(run, arg, n, true);
        n += 1 + n / FAILING_ALL;
    }
}
