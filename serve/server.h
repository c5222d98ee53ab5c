// The server: a thread with a loop that listens, routes requests, and answers them; the model is computed elsewhere
// (serve/service.h).
//
//   kin_server_open ─► 503 "loading" ─► kin_server_set_model ─► requests ─► kin_server_drain ─► kin_server_close
//
// Owner: who opened it. Thread: any for all functions.
#pragma once

#include "serve/access.h"
#include "serve/call.h"
#include "serve/http.h"
#include "serve/model_host.h"

typedef struct kin_server kin_server;

typedef struct kin_server_options {
    kin_http_options http;
    kin_access_options access;
    const char *alias;        // the model's name for clients
    const char *const *names; // [n_names] all of them, if the user chose some
    int n_names;
    bool strict_model;          // a request that names another model is refused
    bool metrics, slots;        // /metrics and /slots answer
    const char *slot_save_path; // folder of saved slots; NULL: none
    bool webui;                 // the page for browsers at /
    bool browsers;              // may join the ring, where there is one: the page at /join
    bool only_joins;            // nothing but that page answers: texts are written elsewhere
    bool shows_code;            // ... may show the code that devices join with: who asks has a key, or is on this machine
    int n_parallel;             // texts at once
    int models_max;             // of several models: how many are in memory
    int max_waiting;            // requests that may wait for a model that is not
    int ping_s;                 // -1: never
    const char *tags;           // of its models, "a,b"; NULL: none
    const char *models_dir;     // of several models, where further ones are looked for; NULL: nowhere
    int sleep_idle_s;           // a model that nothing used for so long leaves memory; <= 0: never
    bool takes_any_name;        // of several models, if there is but one: it takes requests that name another
    kin_pooling pooling;        // of embeddings; NONE: what the model's file says
    kin_request_defaults defaults;
    bool leaves_signals;          // SIGINT and SIGTERM are the program's: they do not drain
    void (*draining)(void *user); // once before `drained`, where open requests are waited for; NULL: not told. The loop's thread
    void (*drained)(void *user);  // once, after SIGTERM, SIGINT or kin_server_drain: no request is left. The loop's thread
    void (*hurry)(void *user);    // a second signal. The loop's thread
    void *user;
} kin_server_options;

// Listens, and answers that the model is being loaded.
int kin_server_open(kin_server **out, const kin_server_options *options, kin_err *err);
// Its thread ends, and with it all use of the model; only kin_server_set_doing and close may follow. NULL is allowed.
void kin_server_stop(kin_server *server);
void kin_server_close(kin_server *server); // NULL is allowed
uint16_t kin_server_port(const kin_server *server);

// The model is there, and stays until close. The service's `wake` is kin_server_wake.
void kin_server_set_model(kin_server *server, kin_service *service, const kin_preparer *preparer);
// The model's files have changed: on return nothing uses it any more, and clients get that sentence until kin_server_set_model
// follows. Its texts have ended. The computing thread.
void kin_server_drop_model(kin_server *server, const kin_err *why);
// Several models, in place of one. The host's `wake` is kin_server_wake, too.
void kin_server_set_models(kin_server *server, kin_model_host *host);
// A ring in place of a model (only_joins): it has others, and stays until kin_server_stop.
void kin_server_set_ring(kin_server *server, const kin_session *session);
void kin_server_wake(void *server);

// What is waited for while there is no model, or no ring: shown to clients.
void kin_server_set_doing(kin_server *server, const char *what, double percent);

// No further requests are taken; `drained` follows.
void kin_server_drain(kin_server *server);
