#include "sys/team/system.h"

#ifdef __linux__

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(atomic_int) == 4, "the kernel compares 32 bits");

void kin_futex_wait(atomic_int *value, int old) {
    syscall(SYS_futex, value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
}

void kin_futex_wake(atomic_int *value) {
    syscall(SYS_futex, value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void kin_thread_yield(void) {
    sched_yield();
}

int kin_thread_cpu(void) {
    return sched_getcpu();
}

void kin_thread_avoid_cpus(const atomic_int *cpus, int n) {
    cpu_set_t usual, others;
    if (sched_getaffinity(0, sizeof usual, &usual) != 0) return;
    others = usual;
    for (int i = 0; i < n; i++) {
        const int cpu = atomic_load_explicit(&cpus[i], memory_order_relaxed);
        if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_CLR(cpu, &others);
    }
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return;
    sched_setaffinity(0, sizeof usual, &usual);
}

#else

#include <pthread.h>
#include <sched.h>

// One condition variable for all: sleeping is rare, and an early return is allowed.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

void kin_futex_wait(atomic_int *value, int old) {
    pthread_mutex_lock(&mutex);
    if (atomic_load(value) == old) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

void kin_futex_wake(atomic_int *value) {
    (void)value;
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

void kin_thread_yield(void) {
    sched_yield();
}

int kin_thread_cpu(void) {
    return -1;
}

void kin_thread_avoid_cpus(const atomic_int *cpus, int n) {
    (void)cpus, (void)n;
}

#endif
