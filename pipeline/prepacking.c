#include "pipeline/prepacking.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "sys/background.h"

struct kin_prepacking {
    kin_prepacking_options o;
    pthread_t thread;
    bool is_started;
    atomic_bool stop; // cancels the current job

    pthread_mutex_t mutex; // guards the following
    pthread_cond_t changed;
    bool is_closing, has_job, is_packing;
    kin_prepacking_job job; // the pending one

    // Used by the thread only.
    kin_prepacking_job job_now;
    kin_packed *held;
};

static void pack(kin_prepacking *p) {
    kin_packed *held = NULL;
    kin_err err;
    int rc = p->o.pack(p->o.user, &p->job_now, &p->stop, &held, &err);
    if (rc == 0) { // what is known of the last job's blocks is known of this one's, too
        kin_packed_close(p->held);
        p->held = held;
    }
    if (atomic_load(&p->stop)) return;
    if (rc != 0) kin_log(KIN_LOG_DEBUG, "prepacking: %s", err.text);
    p->o.done(p->o.user, p->job_now.ticket);
}

static void *work(void *arg) {
    kin_prepacking *p = arg;
    kin_background_thread();
    pthread_mutex_lock(&p->mutex);
    while (!p->is_closing) {
        if (!p->has_job) {
            pthread_cond_wait(&p->changed, &p->mutex);
            continue;
        }
        p->job_now = p->job;
        p->has_job = false;
        p->is_packing = true;
        atomic_store(&p->stop, false);
        pthread_mutex_unlock(&p->mutex);
        pack(p);
        pthread_mutex_lock(&p->mutex);
        p->is_packing = false;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

int kin_prepacking_open(kin_prepacking **out, const kin_prepacking_options *o, kin_err *err) {
    kin_prepacking *p = *out = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "out of memory");
    p->o = *o;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->is_started = pthread_create(&p->thread, NULL, work, p) == 0;
    if (p->is_started) return 0;
    kin_prepacking_close(p);
    *out = NULL;
    return kin_err_set(err, "cannot start the prepacking thread");
}

void kin_prepacking_stop(kin_prepacking *p) {
    if (!p) return;
    pthread_mutex_lock(&p->mutex);
    p->is_closing = true;
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    if (p->is_started) pthread_join(p->thread, NULL);
    p->is_started = false;
}

void kin_prepacking_close(kin_prepacking *p) {
    if (!p) return;
    kin_prepacking_stop(p);
    kin_packed_close(p->held);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

void kin_prepacking_begin(kin_prepacking *p, const kin_prepacking_job *job) {
    pthread_mutex_lock(&p->mutex);
    p->job = *job;
    p->has_job = true;
    atomic_store(&p->stop, true); // cancels the current job
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

static void cancel(kin_prepacking *p) {
    p->has_job = false;
    atomic_store(&p->stop, true);
}

void kin_prepacking_cancel(kin_prepacking *p) {
    pthread_mutex_lock(&p->mutex);
    cancel(p);
    pthread_mutex_unlock(&p->mutex);
}

void kin_prepacking_pause(kin_prepacking *p) {
    pthread_mutex_lock(&p->mutex);
    cancel(p);
    while (p->is_packing) pthread_cond_wait(&p->changed, &p->mutex);
    pthread_mutex_unlock(&p->mutex);
}
