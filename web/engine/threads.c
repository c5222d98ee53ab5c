#include "web/engine/threads.h"

#include <stdatomic.h>

#include "web/exports.h"

enum { SPINS = 100000 }; // about 100 us: the spin of threads that wait within a step, because a sleeping thread wakes up late

typedef struct job {
    kin_threads_step step;
    void *user;
    int n_steps, n_threads;
} job;

// A number that threads wait on.
typedef struct mark {
    atomic_int value;
    atomic_int n_asleep; // threads that may be in the wait instruction
} mark;

static job current;
static int n_threads = 1;
static mark generation;    // of `current`
static mark phase;         // steps that all threads have completed
static atomic_int arrived; // threads that have completed the step

static void wait_change(mark *m, int old) {
    for (int i = 0; i < SPINS; i++)
        if (atomic_load_explicit(&m->value, memory_order_acquire) != old) return;
    atomic_fetch_add(&m->n_asleep, 1);
    while (atomic_load(&m->value) == old) __builtin_wasm_memory_atomic_wait32((int *)&m->value, old, -1);
    atomic_fetch_sub(&m->n_asleep, 1);
}

// A thread that goes to sleep registers before it checks the value again, and this function checks after it changed it, so no
// wake-up is lost.
static void change(mark *m, int value) {
    atomic_store(&m->value, value);
    if (atomic_load(&m->n_asleep) > 0) __builtin_wasm_memory_atomic_notify((int *)&m->value, ~0u);
}

static void meet(int n) {
    int now = atomic_load(&phase.value);
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
    if (n_threads > 1) change(&generation, atomic_load(&generation.value) + 1);
    work(current, 0);
}

void kin_web_thread(int ith) {
    for (int seen = 0;;) {
        wait_change(&generation, seen);
        seen = atomic_load(&generation.value);
        job j = current;
        if (ith < j.n_threads) work(j, ith);
    }
}
