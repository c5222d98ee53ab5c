#include "serve/model_host.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "sys/cond.h"

enum { LOOK_NS = 100000000 }; // interval for checking `stop` when there is no work

typedef enum order { NONE, LOAD, UNLOAD } order;

struct kin_model_host {
    kin_model_host_options o;
    kin_model_wait *waits;     // [n_max] for models whose files have changed
    kin_loaded_model **loaded; // [n_max] NULL: not in memory. Written by the computing thread; used by the loop after an answer
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    // Under the mutex.
    bool is_called; // by a service
    bool is_up;
    bool *has_changed; // [n_max] the model was unloaded because its files changed, and they are not complete yet
    order order;
    int ordered;
    kin_model_answer answer;
    bool has_answer;
};

int kin_model_host_open(kin_model_host **out, const kin_model_host_options *o, kin_err *err) {
    kin_model_host *h = *out = calloc(1, sizeof *h);
    if (!h) return kin_err_set(err, "out of memory");
    h->o = *o;
    if (h->o.n_max < h->o.n) h->o.n_max = h->o.n;
    pthread_mutex_init(&h->mutex, NULL);
    kin_cond_init(&h->changed);
    h->loaded = calloc((size_t)h->o.n_max + 1, sizeof *h->loaded);
    h->has_changed = calloc((size_t)h->o.n_max + 1, sizeof *h->has_changed);
    h->waits = calloc((size_t)h->o.n_max + 1, sizeof *h->waits);
    if (h->loaded && h->has_changed && h->waits) return 0;
    kin_model_host_close(h);
    *out = NULL;
    return kin_err_set(err, "out of memory");
}

static void set_changed(kin_model_host *h, int i, bool has_changed) {
    pthread_mutex_lock(&h->mutex);
    h->has_changed[i] = has_changed;
    pthread_mutex_unlock(&h->mutex);
}

static void close_model(kin_model_host *h, int i) {
    kin_err why;
    if (!h->loaded[i]) return;
    if (h->loaded[i]->service && kin_service_has_changed(h->loaded[i]->service, &why)) {
        h->waits[i] = (kin_model_wait){.path = h->o.files[i].path};
        set_changed(h, i, true);
    }
    kin_loaded_model_close(h->loaded[i]);
    free(h->loaded[i]);
    h->loaded[i] = NULL;
}

void kin_model_host_close(kin_model_host *h) {
    if (!h) return;
    for (int i = 0; i < h->o.n_max && h->loaded; i++) close_model(h, i);
    free(h->loaded);
    free(h->has_changed);
    free(h->waits);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->mutex);
    free(h);
}

// ---- the loop's thread

const kin_model_host_options *kin_model_host_get_options(const kin_model_host *h) {
    return &h->o;
}

bool kin_model_host_is_up(kin_model_host *h) {
    pthread_mutex_lock(&h->mutex);
    bool is_up = h->is_up;
    pthread_mutex_unlock(&h->mutex);
    return is_up;
}

bool kin_model_host_is_whole(kin_model_host *h, int model) {
    pthread_mutex_lock(&h->mutex);
    bool is_whole = !h->has_changed[model];
    pthread_mutex_unlock(&h->mutex);
    return is_whole;
}

void kin_model_host_order(kin_model_host *h, int model, bool load) {
    pthread_mutex_lock(&h->mutex);
    kin_assert(h->order == NONE && !h->has_answer);
    h->order = load ? LOAD : UNLOAD;
    h->ordered = model;
    pthread_cond_signal(&h->changed);
    pthread_mutex_unlock(&h->mutex);
}

bool kin_model_host_pop(kin_model_host *h, kin_model_answer *answer) {
    pthread_mutex_lock(&h->mutex);
    bool any = h->has_answer;
    if (any) *answer = h->answer;
    h->has_answer = false;
    pthread_mutex_unlock(&h->mutex);
    return any;
}

// ---- the computing thread

static bool is_stopped(const kin_model_host *h) {
    return h->o.loading.service.stop && atomic_load(h->o.loading.service.stop);
}

static void wake(const kin_model_host *h) {
    h->o.loading.service.wake(h->o.loading.service.wake_user);
}

static void on_called(void *user) {
    kin_model_host *h = user;
    pthread_mutex_lock(&h->mutex);
    h->is_called = true;
    pthread_cond_signal(&h->changed);
    pthread_mutex_unlock(&h->mutex);
}

static void put_answer(kin_model_host *h, int model, const kin_err *why) {
    pthread_mutex_lock(&h->mutex);
    h->answer = (kin_model_answer){.model = model, .loaded = h->loaded[model], .failed = why != NULL};
    if (why) h->answer.why = *why;
    h->has_answer = true;
    h->order = NONE;
    pthread_mutex_unlock(&h->mutex);
    wake(h);
}

static int load(kin_model_host *h, int i, kin_err *err) {
    kin_loaded_model *m = calloc(1, sizeof *m);
    if (!m) return kin_err_set(err, "out of memory");
    kin_loaded_model_options o = h->o.loading;
    o.session.model = h->o.files[i].path;
    o.service.called = on_called;
    o.service.called_user = h;
    if (!h->o.has_first || i != 0) o.chat_template_file = o.chat_template = NULL;
    h->loaded[i] = m;
    if (kin_loaded_model_open(m, &o, err) == 0 && kin_service_begin(m->service, err) == 0) return 0;
    close_model(h, i);
    return KIN_FAIL;
}

int kin_model_host_begin(kin_model_host *h, kin_err *err) {
    if (h->o.has_first && load(h, 0, err) != 0) return KIN_FAIL;
    pthread_mutex_lock(&h->mutex);
    h->is_up = true;
    pthread_mutex_unlock(&h->mutex);
    if (h->o.has_first) put_answer(h, 0, NULL);
    wake(h);
    return 0;
}

static void obey(kin_model_host *h) {
    kin_err why;
    pthread_mutex_lock(&h->mutex);
    order order = h->order;
    int i = h->ordered;
    pthread_mutex_unlock(&h->mutex);
    if (order == NONE) return;
    bool failed = order == LOAD && load(h, i, &why) != 0;
    if (order == UNLOAD) close_model(h, i);
    if (failed) kin_log(KIN_LOG_WARN, "cannot load %s: %s", h->o.files[i].name, why.text);
    put_answer(h, i, failed ? &why : NULL);
}

// Runs one step of each model that has jobs. Returns true if there is more work.
static bool step_models(kin_model_host *h) {
    bool busy = false;
    for (int i = 0; i < h->o.n_max; i++) {
        if (h->loaded[i]) busy |= kin_service_turn(h->loaded[i]->service);
    }
    return busy;
}

static void check_files(kin_model_host *h) {
    for (int i = 0; i < h->o.n_max; i++) {
        if (h->waits[i].path && !h->loaded[i] && kin_model_wait_is_over(&h->waits[i], kin_clock_now())) {
            h->waits[i].path = NULL;
            set_changed(h, i, false);
        }
    }
}

// Waits at most LOOK_NS.
static void wait_for_work(kin_model_host *h) {
    pthread_mutex_lock(&h->mutex);
    if (!h->is_called && h->order == NONE && !is_stopped(h)) kin_cond_wait_for(&h->changed, &h->mutex, LOOK_NS);
    h->is_called = false;
    pthread_mutex_unlock(&h->mutex);
}

void kin_model_host_run(kin_model_host *h) {
    for (bool busy = false; !is_stopped(h); busy = step_models(h)) {
        if (!busy) wait_for_work(h);
        check_files(h);
        obey(h);
    }
    for (int i = 0; i < h->o.n_max; i++) {
        if (h->loaded[i]) kin_service_finish(h->loaded[i]->service, NULL);
    }
}
