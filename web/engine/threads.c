#include "web/engine/threads.h"

#include <stdatomic.h>

#include "web/exports.h"

enum { SPINS = 4000 }; // some microseconds: a thread that sleeps takes 5 to 10 to come back

typedef struct job {
    kin_threads_step step;
    void *user;
    int n_steps, n_threads;
} job;

static job current;
static int n_threads = 1;
static atomic_int generation; // of `current`
static atomic_int arrived;    // threads that have done the step
static atomic_int phase;      // steps that all have done

static void wait_change(atomic_int *at, int old) {
    for (int i = 0; i < SPINS; i++)
        if (atomic_load_explicit(at, memory_order_acquire) != old) return;
    while (atomic_load_explicit(at, memory_order_acquire) == old) __builtin_wasm_memory_atomic_wait32((int *)at, old, -1);
}

static void change(atomic_int *at, int value) {
    atomic_store_explicit(at, value, memory_order_release);
    __builtin_wasm_memory_atomic_notify((int *)at, ~0u);
}

static void meet(int n) {
    int now = atomic_load(&phase);
    if (atomic_fetch_add(&arrived, 1) + 1 < n) {
        wait_change(&phase, now);
        return;
    }
    atomic_store(&arrived, 0);
    change(&phase, now + 1);
}

static void work(job j, int ith) {
    for (int i = 0; i < j.n_steps; i++) {
        j.step(j.user, i, ith, j.n_threads);
        if (j.n_threads > 1) meet(j.n_threads);
    }
}

void kin_threads_set(int n) {
    n_threads = n;
}

int kin_threads_n(void) {
    return n_threads;
}

void kin_threads_run(kin_threads_step step, void *user, int n_steps) {
    current = (job){step, user, n_steps, n_threads};
    if (n_threads > 1) change(&generation, atomic_load(&generation) + 1);
    work(current, 0);
}

void kin_web_thread(int ith) {
    for (int seen = 0;;) {
        wait_change(&generation, seen);
        seen = atomic_load(&generation);
        job j = current;
        if (ith < j.n_threads) work(j, ith);
    }
}
