#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sys/team/system.h"
#include "sys/team/team_impl.h"

typedef struct helper {
    kin_team *team;
    int i;
    pthread_t thread;
} helper;

typedef struct native_team {
    kin_team team; // first: a kin_team * of this file points to both
    int n_helpers;
    helper helpers[];
} native_team;

static void *run_helper(void *user) {
    helper *h = user;
    kin_team_help(h->team, h->i);
    return NULL;
}

static kin_interruptible *new_members(int n) {
    kin_interruptible *members = aligned_alloc(_Alignof(kin_interruptible), (size_t)n * sizeof *members);
    if (members) memset(members, 0, (size_t)n * sizeof *members);
    return members;
}

int kin_team_open(kin_team **out, int n_threads, kin_err *err) {
    *out = NULL;
    kin_assert(n_threads >= 1 && n_threads <= KIN_TEAM_THREADS);
    const size_t bytes = sizeof(native_team) + (size_t)n_threads * sizeof(helper);
    native_team *n =
        aligned_alloc(_Alignof(native_team), (bytes + _Alignof(native_team) - 1) / _Alignof(native_team) * _Alignof(native_team));
    if (!n) return kin_err_set(err, "out of memory");
    memset(n, 0, bytes);
    n->team.most_threads = n_threads;
    n->team.results = malloc((size_t)n_threads * KIN_TEAM_RESULT);
    n->team.members = new_members(n_threads);
    bool ok = n->team.results && n->team.members;
    kin_interrupt_prepare();
    for (int i = 1; i < n_threads && ok; i++) {
        helper *h = &n->helpers[n->n_helpers];
        *h = (helper){.team = &n->team, .i = i};
        ok = pthread_create(&h->thread, NULL, run_helper, h) == 0;
        n->n_helpers += ok;
    }
    if (!ok) {
        kin_team_close(&n->team);
        return kin_err_set(err, "cannot start %d threads: too many processes or too little memory", n_threads);
    }
    *out = &n->team;
    return 0;
}

void kin_team_close(kin_team *team) {
    if (!team) return;
    native_team *n = (native_team *)team;
    atomic_store(&team->generation.value, KIN_TEAM_CLOSES);
    kin_futex_wake(&team->generation.value);
    atomic_store(&team->width.value, KIN_TEAM_THREADS);
    kin_futex_wake(&team->width.value);
    for (int i = 0; i < n->n_helpers; i++) pthread_join(n->helpers[i].thread, NULL);
    free(team->steps);
    free(team->results);
    free(team->members);
    free(n);
}
