#include "fetch/lazy_load.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "sys/cond.h"

enum { LOOK_NS = 200000000 }; // interval at which a wait checks `stop`

struct kin_lazy_load {
    const atomic_bool *stop;
    pthread_mutex_t mutex; // protects the fields below; the store's own mutex is taken inside it
    pthread_cond_t changed;
    uint32_t ticket;
    kin_store *store; // NULL: nothing is arriving
    bool is_whole;
    char reason[sizeof((kin_err *)0)->text];
};

int kin_lazy_load_open(kin_lazy_load **out, const atomic_bool *stop, kin_err *err) {
    kin_lazy_load *f = *out = calloc(1, sizeof *f);
    if (!f) return kin_err_set(err, "out of memory");
    f->stop = stop;
    pthread_mutex_init(&f->mutex, NULL);
    kin_cond_init(&f->changed);
    return 0;
}

void kin_lazy_load_close(kin_lazy_load *f) {
    if (!f) return;
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->mutex);
    free(f);
}

void kin_lazy_load_begin(kin_lazy_load *f, uint32_t ticket, kin_store *store) {
    pthread_mutex_lock(&f->mutex);
    f->ticket = ticket;
    f->store = store;
    f->is_whole = false;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

void kin_lazy_load_arrived(kin_lazy_load *f) {
    pthread_mutex_lock(&f->mutex);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

void kin_lazy_load_is_whole(kin_lazy_load *f) {
    pthread_mutex_lock(&f->mutex);
    f->is_whole = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

void kin_lazy_load_end(kin_lazy_load *f, const char *reason) {
    pthread_mutex_lock(&f->mutex);
    f->store = NULL;
    snprintf(f->reason, sizeof f->reason, "%s", reason);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

// Returns 0 if the chunks are present, KIN_ABSENT if not yet. Call with the mutex held.
static int find_chunks(const kin_lazy_load_view *v, int i_file, uint64_t offset, uint64_t bytes, kin_err *err) {
    const kin_lazy_load *f = v->lazy_load;
    uint32_t begin, end;
    if (atomic_load(f->stop)) return kin_err_set(err, "stopped");
    if (v->is_left) return kin_err_set(err, "the wait for weights was cancelled");
    if (v->ticket != f->ticket) return kin_err_set(err, "a new plan has replaced it");
    if (!f->store) return kin_err_set(err, "%s", f->reason);
    if (kin_store_chunks_of_range(f->store, i_file, offset, bytes, &begin, &end, err) != 0) return KIN_FAIL;
    if (kin_store_has_all(f->store, begin, end)) return 0;
    return f->is_whole ? kin_err_set(err, "these weights are not part of the plan's windows") : KIN_ABSENT;
}

static void wait_for_change(kin_lazy_load *f) {
    kin_cond_wait_for(&f->changed, &f->mutex, LOOK_NS);
}

static int wait_for(void *user, int i_file, uint64_t offset, uint64_t bytes, kin_err *err) {
    kin_lazy_load_view *v = user;
    int rc;
    pthread_mutex_lock(&v->lazy_load->mutex);
    while ((rc = find_chunks(v, i_file, offset, bytes, err)) == KIN_ABSENT) wait_for_change(v->lazy_load);
    pthread_mutex_unlock(&v->lazy_load->mutex);
    return rc;
}

static void leave(void *user) {
    kin_lazy_load_view *v = user;
    pthread_mutex_lock(&v->lazy_load->mutex);
    v->is_left = true;
    pthread_cond_broadcast(&v->lazy_load->changed);
    pthread_mutex_unlock(&v->lazy_load->mutex);
}

kin_arrival kin_lazy_load_arrival(kin_lazy_load_view *view) {
    return (kin_arrival){wait_for, leave, view};
}
