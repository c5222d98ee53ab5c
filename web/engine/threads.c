#include "web/engine/threads.h"

#include <stdlib.h>

#include "sys/team/system.h"
#include "sys/team/team_impl.h"
#include "web/exports.h"

static kin_team team = {.most_threads = 1};
static int n_results; // the number of threads that team.results has room for

void kin_futex_wait(atomic_int *value, int old) {
    __builtin_wasm_memory_atomic_wait32((int *)value, old, -1);
}

void kin_futex_wake(atomic_int *value) {
    __builtin_wasm_memory_atomic_notify((int *)value, ~0u);
}

void kin_thread_yield(void) {}

int kin_thread_cpu(void) {
    return -1;
}

void kin_thread_avoid_cpus(const atomic_int *cpus, int n) {
    (void)cpus, (void)n;
}

// If there is no memory for the results of all threads, fewer threads compute.
kin_team *kin_web_team_set(int n) {
    uint8_t *results = n > n_results ? realloc(team.results, (size_t)n * KIN_TEAM_RESULT) : NULL;
    if (results) {
        team.results = results;
        n_results = n;
    }
    team.most_threads = n <= n_results ? n : n_results > 0 ? n_results : 1;
    return &team;
}

kin_team *kin_web_team(void) {
    return &team;
}

typedef struct shares {
    kin_web_step step;
    void *user;
} shares;

static kin_team_step plan_shares(void *user, int step) {
    (void)user, (void)step;
    return (kin_team_step){.n_chunks = team.most_threads};
}

static void compute_share(void *user, const kin_team_chunk *c) {
    const shares *s = user;
    s->step(s->user, c->step, c->i, team.most_threads);
}

void kin_web_team_each(kin_web_step step, void *user, int n_steps) {
    kin_err err;
    kin_assert(kin_team_reserve(&team, n_steps, &err) == 0);
    kin_team_run(
        &team, &(kin_team_job){.n_steps = n_steps, .plan = plan_shares, .compute = compute_share, .user = &(shares){step, user}});
}

void kin_web_thread(int ith) {
    kin_team_help(&team, ith);
}
