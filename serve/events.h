// Events for the web page: what the server and its machines do, about once a second while somebody listens.
//
//   GET /kin/events     text/event-stream
//     state    {version, model, is_up, doing, percent, seconds_left, n_ctx, n_parallel, uptime_s, has_others, running, waiting,
//               kv_blocks, kv_blocks_free, prompt_tokens, cached_tokens, generated_tokens, requests, failed, cancelled,
//               preempted, texts: [{n_prompt, n_done, n_cached, n_generated}], head: {address, port, hidden}: how devices reach
//               it, cluster: as of `kin status --json`}
//     plan     when it has changed: as of `kin plan --json`, with the ring's links
//
// Of several models the counts are those of all; `model` and `cluster` are of the one that was used last.
//
// While nobody listens nothing is made, and nothing asked unless somebody looks by kin_events_cluster.
//
// Owner: the server. Thread: the loop's.
#pragma once

#include "serve/loading.h"
#include "serve/router.h"

enum { KIN_EVENTS_MAX = 16 }; // who listens at once; one more is 503

typedef struct kin_events kin_events;

typedef struct kin_events_options {
    const kin_router *router; // borrowed; without models until they are known
    const char *alias;        // of the model while it is being loaded
    int n_parallel;
    int64_t begun_s;
    // Whether texts can be computed; if not, what is waited for.
    bool (*look)(void *user, kin_loading *loading);
    void *user;
} kin_events_options;

int kin_events_open(kin_events **out, uv_loop_t *loop, const kin_events_options *options, kin_err *err);
bool kin_events_is_looking(const kin_events *events); // libuv's pool uses the planner of the model
void kin_events_stop(kin_events *events);             // ends the streams; no further ones. Before the loop ends
void kin_events_close(kin_events *events);            // after it, and after the session's cluster. NULL is allowed

// The last state of the cluster (observe/status_json.h); the caller's. NULL: none yet. From now on it is asked for once a second,
// for a minute.
json_t *kin_events_cluster(kin_events *events);

void kin_events_add(kin_events *events, kin_http_exchange *x); // answers it
void kin_events_tick(kin_events *events, kin_time now);        // some times a second
