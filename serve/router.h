// The models of a server: which of them a request is for, and when one is loaded, or gives its place to another one.
//
//   request ─► libuv's pool: the body's `model` ─► its model is loaded: begin
//                                                  else it waits ─► load, or first unload the least recently used ─► begin
//
// A stream of server-sent events that waits is kept alive by comments, as one that is written; its header is out then, and a
// refusal is an event.
//
// At most n_max models are in memory (serve/model_host.h). One that has to make room takes no further requests, so that it is
// idle soon; they wait until it is loaded again. A server with one model has a router of one, which nothing waits for.
//
// Owner: the server. Thread: the loop's, for every function and callback.
#pragma once

#include "serve/call.h"
#include "serve/embed.h"
#include "serve/model_host.h"

typedef enum kin_model_state { KIN_MODEL_UNLOADED, KIN_MODEL_LOADING, KIN_MODEL_LOADED, KIN_MODEL_UNLOADING } kin_model_state;

typedef struct kin_router_waiter kin_router_waiter;

// One model. While it is loaded, its worlds have a service.
typedef struct kin_served_model {
    const kin_model_file *file; // NULL: of a server with one model
    kin_call_world world;
    kin_embed_world embed;
    int n_errands; // open
    kin_model_state state;
    bool leaves;                               // makes room: it takes no further requests
    bool is_unwanted;                          // unloaded as soon as it is idle
    uint64_t used;                             // when the last request came, in requests
    kin_time busy_at;                          // when it was seen in use last
    bool has_changed;                          // its files have, and are not whole yet: it takes no requests,
    kin_err changed;                           // because
    kin_router_waiter *waiting, **waiting_end; // oldest first
} kin_served_model;

typedef struct kin_router_options {
    uv_loop_t *loop;
    kin_call_world world;  // of each model, but for what belongs to the model
    kin_embed_world embed; // likewise
    int n_max;             // models in memory
    int sleep_idle_s;      // a model that nothing used for so long is unloaded; <= 0: never
    bool takes_any_name;   // the only model takes requests that name another one
    int max_waiting;       // requests that wait for a model; one more is refused
    // The request's model is there.
    void (*begin)(void *user, kin_served_model *model, const void *route, kin_http_exchange *x);
    void *user;
} kin_router_options;

typedef struct kin_router {
    kin_router_options o;
    kin_model_host *host;     // NULL: one model, which stays
    kin_served_model *models; // [n_room]
    int n, n_room;
    int n_waiting;   // requests
    bool is_ordered; // the host has an order
    uint64_t n_requests;
    kin_scheduler_stats past; // sums of models that were unloaded
} kin_router;

// One model, loaded. Returns KIN_FAIL without memory.
int kin_router_open_one(kin_router *router, const kin_router_options *options, kin_service *service,
                        const kin_preparer *preparer);
int kin_router_open(kin_router *router, const kin_router_options *options, kin_model_host *host);
// A further file of a server with several models, which is copied; nothing if its path or its name is there already, or if
// there is no room.
void kin_router_add(kin_router *router, const kin_model_file *file);
void kin_router_fini(kin_router *router); // when the loop has ended

// Begins the request with its model, sooner or later, or refuses it. The name is in the body's `model` (Ollama's show: or
// `name`), or the parameter `model` of the path. format: of refusals. needs: the model must be loaded. streams: the answer is a
// stream of that format if the body asks for one.
void kin_router_take(kin_router *router, kin_http_exchange *x, const void *route, const kin_api_format *format, bool needs,
                     bool streams);

// Whether a GET for that name (at NULL: none) waits until its model is loaded.
bool kin_router_would_load(kin_router *router, kin_str name);

// By name, or by name and ":latest". NULL: there is none.
kin_served_model *kin_router_find(kin_router *router, kin_str name);

// Whether its files have changed and are not loaded anew yet; why: the sentence.
bool kin_router_has_changed(const kin_served_model *model, kin_err *why);
bool kin_router_is_idle(const kin_served_model *model); // nothing uses it
// After anything has ended or has been asked for: loads and unloads what is to be.
void kin_router_plan(kin_router *router);
void kin_router_tick(kin_router *router, kin_time now); // some times a second

// Of all models together, also of those that were unloaded.
void kin_router_sum(const kin_router *router, struct kin_call_counters *counters, kin_service_status *status);
