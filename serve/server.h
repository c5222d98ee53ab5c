// The server: a thread with an event loop that listens, routes requests and answers them. The model is computed elsewhere
// (serve/service.h).
//
//   kin_server_open ─► 503 "loading" ─► kin_server_set_model ─► requests ─► kin_server_drain ─► kin_server_close
//
// Owner: the caller of open. Thread: any, for all functions.
#pragma once

#include "pull/pull.h"
#include "serve/call.h"
#include "serve/http/access.h"
#include "serve/http/http.h"
#include "serve/model_host.h"

typedef struct kin_server kin_server;

typedef struct kin_server_options {
    kin_http_options http;
    kin_access_options access;
    const char *alias;        // the model's name for clients
    const char *const *names; // [n_names] all of its names, if the user chose some
    int n_names;
    bool strict_model;            // refuse requests that name another model
    bool metrics, slots;          // enable /metrics and /slots
    const char *slot_save_path;   // folder of saved slots; NULL: none
    bool webui;                   // the page for browsers at /
    bool browsers;                // browsers may join the ring, if there is one: the page at /join
    bool only_joins;              // serve nothing but that page: requests are computed elsewhere
    bool shows_code;              // show the code that devices join with, to clients with a key or on this machine
    int n_parallel;               // sequences at once
    int models_max;               // several models: how many are in memory
    int max_waiting;              // requests that may wait for a model that is not in memory
    int ping_s;                   // -1: never
    const char *tags;             // of the server's models, "a,b"; NULL: none
    const char *models_dir;       // several models: folder that is scanned for further ones; NULL: none
    const kin_pull_options *pull; // several models: clients may fetch and remove them in models_dir; NULL: they may not
    int sleep_idle_s;             // a model unused for this long is unloaded; <= 0: never
    bool accepts_any_name;        // several models: if there is only one, it accepts requests that name another
    kin_pooling pooling;          // for embeddings; NONE: as the model's file says
    kin_request_defaults defaults;
    bool leaves_signals; // the program handles SIGINT and SIGTERM: they do not drain
    // All three are called on the loop's thread.
    void (*draining)(void *user); // once before `drained`, if open requests are waited for; NULL: not needed
    void (*drained)(void *user);  // once after SIGTERM, SIGINT or kin_server_drain, when no request is left
    void (*hurry)(void *user);    // on a second signal
    void *user;
} kin_server_options;

// Listens, and answers that the model is loading.
int kin_server_open(kin_server **out, const kin_server_options *options, kin_err *err);
// Ends its thread, and with it all use of the model; only kin_server_set_doing and close may follow. NULL is allowed.
void kin_server_stop(kin_server *server);
void kin_server_close(kin_server *server); // NULL is allowed
uint16_t kin_server_port(const kin_server *server);

// Sets the loaded model, which must stay valid until close or drop_model. The service's `wake` must be kin_server_wake.
void kin_server_set_model(kin_server *server, kin_service *service, const kin_preparer *preparer);
// Withdraws the model, because its files have changed. Blocks until nothing uses it; clients then get that sentence until the
// next kin_server_set_model. Its jobs must have ended. Call on the computing thread.
void kin_server_drop_model(kin_server *server, const kin_err *why);
// Replaces that sentence.
void kin_server_set_missing(kin_server *server, const kin_err *why);
// Sets several models instead of one. The host's `wake` must be kin_server_wake, too.
void kin_server_set_models(kin_server *server, kin_model_host *host);
// Sets a ring instead of a model (only_joins). The session is clustered and must live until kin_server_stop.
void kin_server_set_ring(kin_server *server, const kin_session *session);
void kin_server_wake(void *server);

// Sets the text that clients see while there is no model or no ring.
void kin_server_set_doing(kin_server *server, const char *what, double percent);

// Stops accepting requests; `drained` follows.
void kin_server_drain(kin_server *server);
