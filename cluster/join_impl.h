// Internals of joining, shared by join.c (links, the membership and its actions: the loop's thread), join_messages.c (messages to
// the head), join_measure.c (link measurements), join_prepare.c (from a plan to a model file), join_prefetch.c (weights for later
// plans), join_pages.c (KV pages) and join_compute.c (the computing thread).
#pragma once

#include <pthread.h>

#include "cluster/join.h"
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

typedef struct kin_join_actions {
    kin_join_action *at; // [cap], of which [next, n) are pending
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

// The model that is fetched (join_prepare.c), and the head it comes from.
typedef struct kin_join_fetching {
    kin_fetch *fetch;
    kin_chunk_store *chunks; // filled by the fetch
    kin_proto_hash model;
    kin_proto_id from;
    char address[KIN_MEMBER_ADDRESS];
    uint16_t port;
    kin_layer_set here; // layers of that model on this device
    bool owes_have;     // the last HAVE could not be sent: a tick sends it
} kin_join_fetching;

// The last preparation for a plan (join_prepare.c).
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

// Weights for later plans (join_prefetch.c).
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

// State that only the computing thread uses (join_compute.c).
typedef struct kin_join_computing {
    kin_engine_instance *instance;
    kin_lazy_load_view view; // through which the instance waits for weights
    kin_arrival arrival;
    kin_time progress_at;
    const char *progress_what;
} kin_join_computing;

typedef struct kin_join {
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
} kin_join;

// ---- join.c

// Runs one step of the membership, and its actions, which may cause events. Does nothing once the computing thread hangs.
void kin_join_act(kin_join *j, const kin_member_event *event);

// Fills in addresses at which this device can reach the endpoint. If the endpoint names none, fills in the address at which this
// device reached the head; loopback addresses only on the head's machine.
void kin_join_fill_endpoint(const kin_join *j, kin_proto_endpoint *to);

// ---- join_messages.c; the loop's thread

void kin_join_report_status(kin_join *j);                                    // to the user, if it has changed
void kin_join_send(kin_join *j, uint32_t epoch, const kin_proto_message *m); // to the head, if there is one
void kin_join_send_facts(kin_join *j);
void kin_join_send_events(kin_join *j);
void kin_join_send_status(kin_join *j);
void kin_join_send_failed(kin_join *j, const kin_member_action *a);
void kin_join_send_next(kin_join *j, const kin_member_action *a);
void kin_join_send_progress(kin_join *j, uint32_t epoch);
void kin_join_send_ready(kin_join *j, uint32_t epoch);

// ---- join_measure.c; the loop's thread

int kin_join_open_probes(kin_join *j, kin_err *err);
void kin_join_handle_measure(kin_join *j, const kin_proto_measure *wanted);

// ---- join_prepare.c; the loop's thread

void kin_join_handle_plan(kin_join *j, uint32_t epoch, const kin_proto_plan *plan);
// Closes the store if its files are not in the cache any more, so that they are fetched again.
void kin_join_check_store(kin_join *j);
void kin_join_handle_have(kin_join *j, const kin_proto_have *have);
void kin_join_send_have(kin_join *j); // offers its parts of the model, for a head that does not know them
void kin_join_prepare(kin_join *j, uint32_t ticket);
void kin_join_reuse(kin_join *j, uint32_t epoch);

// Fetches what these windows of `plan`'s model need, with the plan's share of their layers; the callbacks go to join_prepare.c or
// join_prefetch.c.
void kin_join_fetch(kin_join *j, const kin_proto_plan *plan, const kin_windows *windows, bool ahead);
bool kin_join_knows_own_file(const kin_join *j); // true if the file is the one that was hashed
bool kin_join_has_own_file(const kin_join *j, const kin_proto_plan *plan);

// Called when the instance of the preparation `ticket` is open.
void kin_join_handle_instance(kin_join *j, uint32_t ticket, const kin_proto_ready *ready);

// ---- join_prefetch.c; the loop's thread

int kin_join_open_prefetch(kin_join *j, kin_err *err);
void kin_join_close_prefetch(kin_join *j); // after the loop and the computing thread have ended

// See kin_ring_member_options.
int kin_join_pack(void *join, const kin_prepacking_job *job, const atomic_bool *stop, kin_packed **held, kin_err *err);
void kin_join_on_packed(void *join, uint32_t ticket);

void kin_join_handle_prefetch(kin_join *j, const kin_proto_prefetch *order);
void kin_join_end_prefetch(kin_join *j); // for another head, or for a plan, which has priority
// Begins the prefetch when there is nothing more important to fetch, and reports its progress. Call it ten times a second.
void kin_join_prefetch_tick(kin_join *j);

// True if that share of all layers of these windows is on this device.
bool kin_join_has_layers(const kin_join *j, const kin_proto_plan *plan, const kin_windows *windows, const kin_share *share);
void kin_join_note_layers(kin_join *j, const kin_windows *windows, const kin_share *share);

// Callbacks of a fetch that works for a prefetch.
void kin_join_prefetch_progress(kin_join *j, const kin_proto_progress *progress);
void kin_join_prefetch_fetched(kin_join *j);
void kin_join_prefetch_failed(kin_join *j, const char *reason);

// ---- join_pages.c; the loop's thread, except init and fini

void kin_join_init_pages(kin_join *j);
void kin_join_open_pages(kin_join *j);
void kin_join_on_page_written(void *join, const kin_page_name *name, size_t n); // the store's thread
bool kin_join_is_busy(void *join);                                              // a step was computed within a second
void kin_join_register_page_peers(kin_join *j); // at a plan: registers the head, which then registers others
void kin_join_handle_kept(kin_join *j, const kin_proto_kept *kept);
void kin_join_fini_pages(kin_join *j);

// ---- join_compute.c

// Any thread: returns the options with which instances over that file are opened.
kin_engine_instance_options kin_join_instance_options(kin_join *j, const char *path);
void kin_join_copy_path(kin_join *j, char path[KIN_JOIN_PATH]);

// Closes the instance; with a sliding window logs its memory. Call from the computing thread, or after all threads have stopped.
void kin_join_close_instance(kin_join *join);

// Runs the computing thread. Returns as kin_join_run does.
int kin_join_compute(kin_join *j, kin_err *err);
