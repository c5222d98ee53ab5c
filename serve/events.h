// Events for the web page: the state of the server and its machines, about once per second while a client listens.
//
//   GET /kin/events     text/event-stream
//     state    {version, model, is_up, doing, percent, seconds_left, n_ctx, n_parallel, uptime_s, has_others, running, waiting,
//               kv_blocks, kv_blocks_free, prompt_tokens, cached_tokens, generated_tokens, requests, failed, cancelled,
//               preempted, texts: [{n_prompt, n_done, n_cached, n_generated}], head: {address, port, hidden}: the address for
//               devices, cluster: as in `kin status --json`}
//     plan     sent when it has changed: as in `kin plan --json`, with the ring's links
//
// With several models the counts are totals over all models; `model` and `cluster` are those of the most recently used one.
//
// Without listeners nothing is produced, and nothing is asked for unless kin_events_cluster was called.
//
// Owner: the server. Thread: the loop's.
#pragma once

#include "serve/loading.h"
#include "serve/router.h"

enum { KIN_EVENTS_MAX = 16 }; // listeners at once; one more gets 503

typedef struct kin_events kin_events;

typedef struct kin_events_options {
    const kin_router *router; // borrowed; has no models until they are known
    const char *alias;        // the model's name while it is loading
    int n_parallel;
    int64_t begun_s;
    // True if requests can be computed; otherwise *loading says what the server waits for.
    bool (*get_loading)(void *user, kin_loading *loading);
    void *user;
} kin_events_options;

int kin_events_open(kin_events **out, uv_loop_t *loop, const kin_events_options *options, kin_err *err);
bool kin_events_is_reading(const kin_events *events); // a thread of libuv's pool uses the model's planner
void kin_events_stop(kin_events *events);             // ends the streams and refuses new ones. Call before the loop ends
void kin_events_close(kin_events *events); // call after the loop has ended and the session's cluster is closed. NULL is allowed

// Returns the last state of the cluster (observe/status_json.h), owned by the caller; NULL: none yet. For the next minute the
// state is refreshed once per second.
json_t *kin_events_cluster(kin_events *events);

void kin_events_add(kin_events *events, kin_http_exchange *x); // answers the exchange
void kin_events_tick(kin_events *events, kin_time now);        // call several times per second
