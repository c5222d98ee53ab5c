#include "app/chat_server.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "app/app.h"
#include "app/model_reload.h"

enum { DEFAULT_CTX = 16384, KEY_BYTES = 16, MAX_WAITING = 8 };

struct kin_chat_server {
    const kin_session_options *o;
    char key[2 * KEY_BYTES + 1], url[64], alias[256];
    kin_server *server;
    kin_loaded_model model;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex; // protects the two fields below
    bool has_failed;
    kin_err err;
};

static int draw_key(kin_chat_server *s, kin_err *err) {
    unsigned char bytes[KEY_BYTES];
    if (uv_random(NULL, NULL, bytes, sizeof bytes, 0, NULL) != 0)
        return kin_err_set(err, "cannot get random numbers from the operating system");
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(s->key + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

static void name_model(kin_chat_server *s) {
    const char *name = s->o->model ? s->o->model : "demo", *slash = strrchr(name, '/');
    snprintf(s->alias, sizeof s->alias, "%s", slash ? slash + 1 : name);
}

static int open_server(kin_chat_server *s, kin_err *err) {
    kin_server_options o = {.http = kin_http_options_default(),
                            .access = {.host = "127.0.0.1", .api_keys = s->key, .cors = KIN_CORS_NONE},
                            .alias = s->alias,
                            .n_parallel = 1,
                            .max_waiting = MAX_WAITING,
                            .ping_s = -1,
                            .leaves_signals = true,
                            .defaults = {.sampler = kin_sampler_options_defaults(), .n_predict = -1}};
    o.http.host = o.access.host;
    if (kin_server_open(&s->server, &o, err) != 0) return KIN_FAIL;
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%u", (unsigned)kin_server_port(s->server));
    return 0;
}

// ---- the thread that computes

static int load_and_serve(kin_chat_server *s, bool is_first, kin_err *err) {
    kin_loaded_model_options lo = {.session = *s->o,
                                   .n_ctx = DEFAULT_CTX,
                                   .service = {.n_parallel = 1,
                                               .max_waiting = MAX_WAITING,
                                               .keeps = true,
                                               .stop = &kin_app_stop,
                                               .wake = kin_server_wake,
                                               .wake_user = s->server}};
    if (!is_first) lo.session.fleet.n_devices = 0; // the ring was up: it is made of the devices that are here
    if (kin_loaded_model_open(&s->model, &lo, err) != 0) return KIN_FAIL;
    kin_server_set_model(s->server, s->model.service, &s->model.preparer);
    return kin_service_run(s->model.service, err);
}

static void *compute(void *arg) {
    kin_chat_server *s = arg;
    kin_model_wait wait = kin_reload_wait(s->o, NULL);
    kin_err err;
    int rc = load_and_serve(s, true, &err);
    bool reloads = rc != 0 && kin_reload_is_due(&s->model);
    while (reloads && rc != 0 && !atomic_load(&kin_app_stop)) {
        kin_reload_await(&wait, s->server, &s->model, &err, false);
        rc = atomic_load(&kin_app_stop) ? 0 : load_and_serve(s, false, &err);
    }
    if (rc == 0) return NULL;
    pthread_mutex_lock(&s->mutex);
    s->has_failed = true;
    s->err = err;
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

bool kin_chat_server_has_failed(kin_chat_server *s, kin_err *err) {
    pthread_mutex_lock(&s->mutex);
    bool has_failed = s->has_failed;
    if (has_failed) *err = s->err;
    pthread_mutex_unlock(&s->mutex);
    return has_failed;
}

// ----

static int start(kin_chat_server *s, kin_err *err) {
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before); // the threads inherit it
    int rc = open_server(s, err);
    if (rc == 0 && pthread_create(&s->thread, NULL, compute, s) != 0) rc = kin_err_set(err, "cannot start the compute thread");
    s->has_thread = rc == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int kin_chat_server_open(kin_chat_server **out, const kin_session_options *options, kin_err *err) {
    kin_chat_server *s = *out = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->o = options;
    pthread_mutex_init(&s->mutex, NULL);
    name_model(s);
    if (draw_key(s, err) == 0 && start(s, err) == 0) return 0;
    kin_chat_server_close(s);
    *out = NULL;
    return KIN_FAIL;
}

// The session's threads may use the server until the session is closed.
void kin_chat_server_close(kin_chat_server *s) {
    if (!s) return;
    atomic_store(&kin_app_stop, true);
    if (s->has_thread) pthread_join(s->thread, NULL);
    kin_server_stop(s->server);
    kin_loaded_model_close(&s->model);
    kin_server_close(s->server);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

const char *kin_chat_server_url(const kin_chat_server *s) {
    return s->url;
}

const char *kin_chat_server_key(const kin_chat_server *s) {
    return s->key;
}
