#include "sys/parallel.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MAX_THREADS = 64 };

typedef struct jobs {
    atomic_size_t next;
    size_t n;
    void (*job)(void *user, size_t i);
    void *user;
} jobs;

static void *work(void *arg) {
    jobs *j = arg;
    for (;;) {
        size_t i = atomic_fetch_add(&j->next, 1);
        if (i >= j->n) return NULL;
        j->job(j->user, i);
    }
}

void kin_parallel(int n_threads, size_t n_jobs, void (*job)(void *user, size_t i), void *user) {
    jobs j = {.n = n_jobs, .job = job, .user = user};
    pthread_t threads[MAX_THREADS];
    int n_started = 0;
    while (n_started + 1 < n_threads && n_started < MAX_THREADS && (size_t)n_started + 1 < n_jobs) {
        if (pthread_create(&threads[n_started], NULL, work, &j) != 0) break;
        n_started++;
    }
    work(&j);
    for (int i = 0; i < n_started; i++) pthread_join(threads[i], NULL);
}
