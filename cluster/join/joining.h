// The state of a device that joins, and how its modules report events to the membership. They stand one above the other:
//
//   messages  messages to the head, and to the user
//   measure   link measurements
//   pages     KV pages
//   fetch     fetching parts of the model
//   prefetch  weights for later plans
//   prepare   from a plan to a device that is ready for it
//   compute   the computing thread
//   join      links, actions of the membership, opening and closing (cluster/join.c)
//
// Owner: kin_join_run. Thread: the loop's, except where it says otherwise.
#pragma once

#include <pthread.h>

#include "cluster/device_options.h"
#include "cluster/probe_queue.h"
#include "cluster/ring_member.h"
#include "fetch/fetch.h"
#include "fetch/lazy_load.h"
#include "net/dial.h"
#include "net/discovery.h"
#include "net/gateway.h"
#include "pipeline/engine_instance.h"
#include "pipeline/metrics.h"
#include "pipeline/watchdog.h"
#include "pure/proto/member.h"

// Actions of the membership, in the order of its steps. Actions may cause events, and so further steps, whose actions are queued
// behind.
typedef struct kin_join_action {
    bool enters; // enters the epoch of a step, before its actions
    kin_member_action of_member;
} kin_join_action;

typedef struct kin_join kin_join;

typedef struct kin_join_actions {
    void (*run)(kin_join *join, const kin_join_action *action); // carries an action out
    kin_join_action *at;                                        // [cap], of which [next, n) are pending
    int next, n, cap;
    bool is_draining;
} kin_join_actions;

enum { KIN_JOIN_PATH = 1024 };

// Layers of a model that are on this device: whole ones, and slices of one share.
typedef struct kin_layer_set {
    bool has[KIN_PROTO_MAX_LAYERS];
    kin_share share;
    bool has_share[KIN_PROTO_MAX_LAYERS];
} kin_layer_set;

enum { KIN_JOIN_PAGES_MAX = 4 * KIN_PROTO_MAX_KEPT };

// KV pages of sequences, on this disk and on others'.
typedef struct kin_join_pages {
    pthread_mutex_t mutex;                     // guards the following
    kin_page_name written[KIN_JOIN_PAGES_MAX]; // not reported to the head yet
    int n_written;
    size_t bytes;                 // size of each file
    _Atomic kin_time computed_at; // when the last step was computed
} kin_join_pages;

// The head, and the links to it (join.c).
typedef struct kin_join_head {
    kin_discovery *search;
    kin_dial *dial;          // for the control link; NULL: no attempt is running
    kin_link *link;          // the control link, accepted; NULL: none
    bool was_accepted;       // by any head
    bool is_backpressured;   // a message found no room on that link
    bool is_by_gateway;      // this device reaches it through a gateway
    kin_probe_queue *probes; // measures links for it
    char address[KIN_MEMBER_ADDRESS];
    uint16_t port;
    kin_proto_id id;
} kin_join_head;

// Where a fetch reports its progress: to the present plan, or to a later one.
typedef struct kin_join_fetch_sink {
    void (*progress)(kin_join *join, const kin_fetch_progress *progress);
    void (*headers)(kin_join *join); // the files can be opened as a model; NULL: not wanted
    void (*done)(kin_join *join);
    void (*failed)(kin_join *join, const char *reason);
} kin_join_fetch_sink;

// The model that is fetched (fetch.c), and the head it comes from.
typedef struct kin_join_fetching {
    const kin_join_fetch_sink *for_plan, *for_later;
    kin_fetch *fetch;
    kin_chunk_store *chunks; // filled by the fetch
    kin_proto_hash model;
    kin_proto_id from;
    char address[KIN_MEMBER_ADDRESS];
    uint16_t port;
    kin_layer_set here; // layers of that model on this device
    bool owes_have;     // the last HAVE could not be sent: a tick sends it
} kin_join_fetching;

// The last preparation for a plan (prepare.c).
typedef struct kin_join_preparing {
    uint32_t ticket;
    kin_member_windows windows; // of the plan
    kin_share share;            // of their layers
    kin_lazy_load *lazy_load;
    bool is_fetched, is_instance_open, begins_early; // early: ready with the first window, while others are fetched
    kin_proto_ready ready;
    kin_proto_progress progress;
    int n_embd; // numbers of a token between two layers of the instance's model; 0: none open yet
} kin_join_preparing;

// Weights for later plans (prefetch.c).
typedef struct kin_join_ahead {
    kin_proto_prefetch *order; // what to prefetch; ticket 0: nothing
    bool is_begun, fetches;    // the order has begun; the fetch works for it, not for a plan
    kin_time reported_at;      // when its progress was last reported
    kin_proto_progress progress;
} kin_join_ahead;

// Watches the computing thread and the ring's links (join.c).
typedef struct kin_join_watch {
    kin_watchdog dog;
    bool hangs;        // the computing thread hangs: the device has left for good
    uint64_t net_in;   // bytes of the ring's links, at the last tick
    kin_time steps_at; // when many bytes came last; 0: never
} kin_join_watch;

// State that only the computing thread uses (compute.c).
typedef struct kin_join_computing {
    kin_engine_instance *instance;
    kin_lazy_load_view view; // through which the instance waits for weights
    kin_arrival arrival;
    kin_time progress_at;
    const char *progress_what;
} kin_join_computing;

struct kin_join {
    kin_join_options o;
    kin_ring_member ring;
    kin_metrics *metrics;
    kin_join_computing computing;

    // Used by the loop's thread.
    kin_member *member;
    kin_join_actions actions;
    kin_join_head head;
    kin_gateway *gateway;            // for devices that reach this one but not the head; NULL: none
    kin_discovery *announces;        // lets them find it
    kin_proto_plan *plan, *arriving; // of the active epoch; the incoming one
    kin_proto_message *message;      // the incoming one
    kin_join_fetching fetching;
    kin_join_preparing preparing;
    kin_join_ahead ahead;
    kin_join_pages pages;
    kin_join_watch watch;
    char doing[KIN_MEMBER_SENTENCE];

    atomic_bool is_publishing; // the computing thread was asked to publish its metrics
    atomic_bool is_fetching;   // fetch progress is reported, not concurrent packing
    atomic_bool is_computing;  // a step, or pages
    atomic_uint n_signs;       // signs of life, of the computing thread and of those that pack for it

    pthread_mutex_t mutex; // guards the following
    kin_proto_progress computing_progress;
    char model_path[KIN_JOIN_PATH]; // for the next instance
    bool given_up, has_other_key;   // has_other_key: the head has another key; that is `why`
    kin_err why;
};

// Runs one step of the membership, and its actions, which may cause events. Does nothing once the computing thread hangs.
void kin_join_act(kin_join *j, const kin_member_event *event);

// Fills in addresses at which this device can reach the endpoint. If the endpoint names none, fills in the address at which this
// device reached the head; loopback addresses only on the head's machine.
void kin_join_fill_endpoint(const kin_join *j, kin_proto_endpoint *to);

bool kin_join_knows_own_file(const kin_join *j); // true if the file is the one that was hashed

// Any thread: returns the options with which instances over that file are opened.
kin_engine_instance_options kin_join_instance_options(kin_join *j, const char *path);
