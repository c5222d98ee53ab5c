// Routes requests to the models of a server, and decides when a model is loaded or unloaded to make room for another.
//
//   request ─► libuv's pool: the body's `model` ─► its model is loaded: begin
//                                                  else it waits ─► load, or first unload the least recently used ─► begin
//
// While a request for a stream of server-sent events waits, comments keep the stream alive, as they do later. Its header is sent
// before the first comment, so a later refusal is an event.
//
// At most n_max models are in memory (serve/model_host.h). Further requests for a model that has to make room wait until it is
// loaded again, so that it becomes idle soon. On a server with one model no request waits.
//
// Owner: the server. Thread: the loop's, for every function and callback.
#pragma once

#include "serve/call.h"
#include "serve/embed.h"
#include "serve/model_host.h"

typedef enum kin_model_state { KIN_MODEL_UNLOADED, KIN_MODEL_LOADING, KIN_MODEL_LOADED, KIN_MODEL_UNLOADING } kin_model_state;

typedef struct kin_router_waiter kin_router_waiter;

// One model. Its shared states have a service only while it is loaded.
typedef struct kin_served_model {
    const kin_model_file *file; // NULL: the server has one model
    kin_call_shared shared;
    kin_embed_shared embed;
    int n_utilities; // open utility requests
    kin_model_state state;
    bool leaves;                               // must make room: accepts no further requests
    bool is_unwanted;                          // to be unloaded as soon as it is idle
    uint64_t used;                             // number of the last request, counted over all requests
    kin_time busy_at;                          // when it was last seen in use
    bool is_gone;                              // its file was removed: once unloaded, the model is no longer offered
    bool has_changed;                          // its files have changed and are not complete yet: it accepts no requests,
    kin_err changed;                           // for this reason
    kin_router_waiter *waiting, **waiting_end; // oldest first
} kin_served_model;

typedef struct kin_router_options {
    uv_loop_t *loop;
    kin_call_shared shared; // for each model, without the fields that belong to the model
    kin_embed_shared embed; // likewise
    int n_max;              // models in memory
    int sleep_idle_s;       // a model unused for this long is unloaded; <= 0: never
    bool accepts_any_name;  // if there is only one model, it accepts requests that name another
    int max_waiting;        // requests waiting for a model; one more is refused
    // Begins a request. Its model is loaded if the route needs it.
    void (*begin)(void *user, kin_served_model *model, const void *route, kin_http_exchange *x);
    void *user;
} kin_router_options;

typedef struct kin_router {
    kin_router_options o;
    kin_model_host *host;     // NULL: one model, never unloaded
    kin_served_model *models; // [n_room]
    int n, n_room;
    int n_waiting;   // requests
    bool is_ordered; // the host is executing an order
    uint64_t n_requests;
    kin_scheduler_stats past; // sums over models that were unloaded
} kin_router;

// Opens a router with one model, already loaded. Returns KIN_FAIL if out of memory.
int kin_router_open_one(kin_router *router, const kin_router_options *options, kin_service *service,
                        const kin_preparer *preparer);
int kin_router_open(kin_router *router, const kin_router_options *options, kin_model_host *host);
// Adds a file to a server with several models; the file is copied. Does nothing if its path or name exists already, or if there
// is no room.
void kin_router_add(kin_router *router, const kin_model_file *file);
// Takes the files of the folder of a server with several models as they are now; copies them. New files become models if their
// names are free and there is room. Models whose files are missing are no longer offered once they are unloaded.
void kin_router_set_files(kin_router *router, const kin_model_file *files, int n);
// Looks whether the files of a server with several models are still there: what was removed since the last scan is not listed.
void kin_router_check_files(kin_router *router);
// True if requests may name the model.
bool kin_router_offers(const kin_served_model *model);
void kin_router_fini(kin_router *router); // after the loop has ended

// Begins the request with its model, now or later, or refuses it. The model's name is in the body's `model` (Ollama's show: or
// `name`), or in the path's parameter `model`. format: of refusals. needs: the model must be loaded. streams: the answer is a
// stream of that format if the body asks for one.
void kin_router_route(kin_router *router, kin_http_exchange *x, const void *route, const kin_api_format *format, bool needs,
                      bool streams);

// True if a GET for that name (.at NULL: none) has to wait until its model is loaded.
bool kin_router_would_load(kin_router *router, kin_str name);

// Finds a model by name, or by name and ":latest"; among several also by the name NAME:TAG of a file NAME-TAG.gguf, as kin pull
// stores models of Ollama's registry. NULL: not found.
kin_served_model *kin_router_find(kin_router *router, kin_str name);

// True if its files have changed and were not reloaded yet; why: the reason.
bool kin_router_has_changed(const kin_served_model *model, kin_err *why);
bool kin_router_is_idle(const kin_served_model *model); // true if nothing uses it
// Loads or unloads a model if needed. Call after any request has ended or arrived.
void kin_router_plan(kin_router *router);
void kin_router_tick(kin_router *router, kin_time now); // call several times per second

// Sums over all models, including those that were unloaded.
void kin_router_sum(const kin_router *router, struct kin_call_counters *counters, kin_service_status *status);
