#include "engine/governor.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "pure/plan/budget.h"
#include "sys/cond.h"
#include "sys/memory.h"

enum { LOOK_EVERY_MS = 100 };

struct kin_governor {
    kin_governor_options o;
    kin_budget budget;
    atomic_ullong in_force;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool stopping;
};

static kin_budget_memory read_memory(uint64_t cap) {
    const kin_memory mem = kin_memory_read();
    return (kin_budget_memory){
        .total = mem.total,
        .available = mem.available,
        .own = mem.own,
        .own_weights = mem.rings,
        .resident = mem.resident,
        .cap = cap,
    };
}

uint64_t kin_governor_room(uint64_t cap) {
    const kin_budget_memory memory = read_memory(cap);
    return kin_budget_start(&memory);
}

uint64_t kin_governor_held(bool with_rings) {
    kin_memory memory = kin_memory_read();
    return memory.own + memory.kernel - (with_rings ? 0 : memory.rings);
}

static void adjust_budget(kin_governor *g) {
    kin_budget_memory memory = read_memory(g->o.memory);
    memory.own_weights += g->o.anonymous(g->o.user);
    memory.fixed = g->o.fixed;
    uint64_t room = kin_budget_room(&memory), before = g->budget.bytes;
    uint64_t budget = kin_budget_step(&g->budget, kin_clock_now() / 1000000 + 1, room);
    if (budget == before) return;
    char a[32], b[32];
    kin_log(KIN_LOG_DEBUG, "memory for weights: %s -> %s", kin_size_format(before, a, sizeof a),
            kin_size_format(budget, b, sizeof b));
    atomic_store(&g->in_force, budget);
    g->o.set(g->o.user, budget);
}

// Waits until LOOK_EVERY_MS have passed or the governor is stopped.
static void wait_a_while(kin_governor *g) {
    kin_cond_wait_for(&g->wake, &g->mutex, LOOK_EVERY_MS * UINT64_C(1000000));
}

static void *govern(void *arg) {
    kin_governor *g = arg;
    pthread_mutex_lock(&g->mutex);
    while (!g->stopping) {
        pthread_mutex_unlock(&g->mutex);
        adjust_budget(g);
        pthread_mutex_lock(&g->mutex);
        if (!g->stopping) wait_a_while(g);
    }
    pthread_mutex_unlock(&g->mutex);
    return NULL;
}

int kin_governor_start(kin_governor **out, const kin_governor_options *o, kin_err *err) {
    *out = NULL;
    kin_governor *g = calloc(1, sizeof *g);
    if (!g) return kin_err_set(err, "out of memory");
    g->o = *o;
    g->budget = (kin_budget){.bytes = o->budget, .most_useful = o->most_useful};
    if (g->budget.bytes > o->most_useful) g->budget.bytes = o->most_useful;
    atomic_store(&g->in_force, g->budget.bytes);
    pthread_mutex_init(&g->mutex, NULL);
    kin_cond_init(&g->wake);
    if (pthread_create(&g->thread, NULL, govern, g) != 0) {
        pthread_mutex_destroy(&g->mutex);
        pthread_cond_destroy(&g->wake);
        free(g);
        return kin_err_set(err, "cannot start the memory governor's thread");
    }
    *out = g;
    return 0;
}

void kin_governor_stop(kin_governor *g) {
    if (!g) return;
    pthread_mutex_lock(&g->mutex);
    g->stopping = true;
    pthread_cond_signal(&g->wake);
    pthread_mutex_unlock(&g->mutex);
    pthread_join(g->thread, NULL);
    pthread_mutex_destroy(&g->mutex);
    pthread_cond_destroy(&g->wake);
    free(g);
}

uint64_t kin_governor_budget(const kin_governor *g) {
    return atomic_load(&((kin_governor *)g)->in_force);
}
