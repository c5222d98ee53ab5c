// Inside of joining, for join.c (links, the membership and what it wants: the loop's thread), join_messages.c (messages to the
// head), join_measure.c (links to be measured), join_prepare.c (from a plan to a model's file), join_prefetch.c (what later plans
// will need), join_pages.c (pages of texts) and join_compute.c (the computing thread).
#pragma once

#include <pthread.h>

#include "cluster/join.h"
#include "cluster/probe_queue.h"
#include "fetch/chunk_server.h"
#include "fetch/fetch.h"
#include "fetch/lazy_load.h"
#include "fetch/page_fetch.h"
#include "net/dial.h"
#include "net/discovery.h"
#include "net/endpoint.h"
#include "net/gateway.h"
#include "pipeline/engine_instance.h"
#include "pipeline/group_links.h"
#include "pipeline/metrics.h"
#include "pipeline/neighbours.h"
#include "pipeline/prepacking.h"
#include "pipeline/watchdog.h"
#include "pure/proto/member.h"

// What the membership wants, in the order of its steps. Actions may cause events, and so steps: their actions wait at the end.
typedef struct kin_join_action {
    bool enters; // the epoch of a step, before its actions
    kin_member_action of_member;
} kin_join_action;

typedef struct kin_join_actions {
    kin_join_action *at; // [cap], of which [next, n) wait
    int next, n, cap;
    bool is_draining;
} kin_join_actions;

enum { KIN_JOIN_PATH = 1024 };

// Layers of a model that are here: as a whole, and slices of one share.
typedef struct kin_layer_set {
    bool has[KIN_PROTO_MAX_LAYERS];
    kin_share share;
    bool has_share[KIN_PROTO_MAX_LAYERS];
} kin_layer_set;

enum { KIN_JOIN_PAGES_MAX = 4 * KIN_PROTO_MAX_KEPT };

// Of texts, on this disk and on others'.
typedef struct kin_join_pages {
    kin_kv_peers peers;
    kin_page_fetch *fetch;                     // NULL: none are kept
    pthread_mutex_t mutex;                     // over the following
    kin_page_name written[KIN_JOIN_PAGES_MAX]; // that the head does not know yet
    int n_written;
    size_t bytes;                 // of each one's file
    _Atomic kin_time computed_at; // when the last step was computed
} kin_join_pages;

typedef struct kin_join {
    kin_join_options o;
    kin_message_pool *pool;
    kin_message_queue *in;
    kin_endpoint *endpoint;
    kin_neighbours *neighbours;
    kin_exchange *exchange; // of the group that this device belongs to
    kin_metrics *metrics;
    kin_lazy_load *lazy_load; // of the preparation that runs

    // The loop's thread.
    kin_member *member;
    kin_join_actions actions;
    kin_discovery *discovery;
    kin_gateway *gateway;     // for devices that reach this one and not the head; NULL: none
    kin_discovery *announces; // what lets them find it
    bool is_by_gateway;       // this one reaches its head so
    kin_group_links *group_links;
    bool is_next_open; // the link to the next member, but not all of the group's
    uint32_t entered;  // the epoch that both are of
    kin_chunk_server *server;
    kin_fetch *fetch;
    kin_chunk_store *chunks;    // what the fetch fills
    kin_dial *dial;             // of the control link; NULL: it is answered, or none is tried
    kin_link *control;          // accepted; NULL: none
    bool was_accepted;          // by any head
    bool is_head_backpressured; // something found no more room on that link
    kin_probe_queue *probes;    // what it measures for the head of that link
    char head_address[KIN_MEMBER_ADDRESS];
    uint16_t head_port;
    kin_proto_id head_id;
    kin_proto_message *message;      // the one that just came
    kin_member_windows windows;      // of the plan that is prepared
    kin_share share;                 // of their layers
    kin_proto_plan *plan, *arriving; // of the epoch in force; the one that just came
    uint8_t *work;                   // [kin_frame_cap(KIN_FRAME_PLAN)] what of a plan is to be prepared
    kin_proto_hash fetching;         // and from which head
    kin_proto_id fetching_from;
    char fetching_address[KIN_MEMBER_ADDRESS];
    uint16_t fetching_port;
    kin_layer_set here;                 // of that model
    kin_proto_prefetch *order;          // what is to be fetched ahead; ticket 0: nothing
    bool is_order_begun, fetches_ahead; // it is under way; the fetch works for it, not for a plan
    kin_time told_at;                   // when the head was told of it last
    kin_proto_progress ahead;           // how far it is
    kin_prepacking *prepacking;
    kin_prepacking_job *job;
    kin_join_pages pages;
    int n_embd;                                      // of the model that the instance has open; 0: none yet
    uint32_t ticket;                                 // of the last preparation, and what there is of it already
    bool is_fetched, is_instance_open, begins_early; // early: with its first window, while others come
    kin_proto_ready ready;
    kin_proto_progress progress;
    char doing[KIN_MEMBER_SENTENCE];
    kin_watchdog watchdog; // of the computing thread
    bool hangs;            // it does: the head was left for good
    uint64_t net_in;       // bytes of the ring's links, at the last tick
    kin_time steps_at;     // when many of them came; 0: never

    // The computing thread.
    kin_engine_instance *instance;
    kin_lazy_load_view view; // what the instance waits with
    kin_arrival arrival;
    kin_time progress_at;
    const char *progress_what;

    atomic_bool is_publishing; // the computing thread has been asked to publish its metrics
    atomic_bool is_fetching;   // what is in flight is told, not what is packed meanwhile
    atomic_bool is_computing;  // a step, or pages
    atomic_uint n_signs;       // of life, of the computing thread and of those that pack for it

    pthread_mutex_t mutex; // over the following
    kin_proto_progress computing_progress;
    char model_path[KIN_JOIN_PATH]; // to open the next instance by
    bool given_up, has_other_key;   // the latter: and why
    kin_err why;
    kin_err group_error; // why a sum failed, and in which epoch
    uint32_t group_error_epoch;
} kin_join;

// ---- join.c

// One step of the membership, and what follows from it. Actions may cause events. Nothing, once the computing thread hangs.
void kin_join_act(kin_join *j, const kin_member_event *event);

// Where this device reaches it. No addresses: the head, where this device reached it; loopback only on the head's machine.
void kin_join_fill_endpoint(const kin_join *j, kin_proto_endpoint *to);

// ---- join_messages.c; the loop's thread

void kin_join_tell_status(kin_join *j);                                      // to the person, if it has changed
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
void kin_join_take_measure(kin_join *j, const kin_proto_measure *wanted);

// ---- join_prepare.c; the loop's thread

void kin_join_take_plan(kin_join *j, uint32_t epoch, const kin_proto_plan *plan);
// Lets go of what was fetched where its files are not in the cache any more, so that it is fetched again.
void kin_join_check_store(kin_join *j);
void kin_join_take_have(kin_join *j, const kin_proto_have *have);
void kin_join_send_have(kin_join *j); // what it can give to others, for a head that does not know
void kin_join_prepare(kin_join *j, uint32_t ticket);
void kin_join_reuse(kin_join *j, uint32_t epoch);

// Fetches what these windows of `plan`'s model need, and its share of their layers; callbacks follow, for join_prepare.c or
// join_prefetch.c.
void kin_join_fetch(kin_join *j, const kin_proto_plan *plan, const kin_windows *windows, bool ahead);
bool kin_join_knows_own_file(const kin_join *j); // whether it is what was hashed
bool kin_join_has_own_file(const kin_join *j, const kin_proto_plan *plan);

// The instance of the preparation `ticket` is open.
void kin_join_take_instance(kin_join *j, uint32_t ticket, const kin_proto_ready *ready);

// ---- join_prefetch.c; the loop's thread

int kin_join_open_prefetch(kin_join *j, kin_err *err);
void kin_join_close_prefetch(kin_join *j); // when the loop and the computing thread have ended

void kin_join_take_prefetch(kin_join *j, const kin_proto_prefetch *order);
void kin_join_end_prefetch(kin_join *j); // another head, or a plan, which is more important
// Begins it when there is nothing more important to fetch; tells the head how far it is. Ten times a second.
void kin_join_prefetch_tick(kin_join *j);

// Whether that share of all layers of these windows is here.
bool kin_join_has_layers(const kin_join *j, const kin_proto_plan *plan, const kin_windows *windows, const kin_share *share);
void kin_join_note_layers(kin_join *j, const kin_windows *windows, const kin_share *share);

// Of a fetch that works for it.
void kin_join_prefetch_progress(kin_join *j, const kin_proto_progress *progress);
void kin_join_prefetch_fetched(kin_join *j);
void kin_join_prefetch_failed(kin_join *j, const char *reason);

// ---- join_pages.c; the loop's thread, but for init and fini

void kin_join_init_pages(kin_join *j);
void kin_join_open_pages(kin_join *j);
void kin_join_meet_pages(kin_join *j); // a plan: the head is told of, and will tell of others
void kin_join_take_kept(kin_join *j, const kin_proto_kept *kept);
void kin_join_end_pages(kin_join *j);
void kin_join_fini_pages(kin_join *j);

// ---- join_compute.c

// Any thread: how instances over that file are opened.
kin_engine_instance_options kin_join_instance_options(kin_join *j, const char *path);
void kin_join_copy_path(kin_join *j, char path[KIN_JOIN_PATH]);

// Closes it, and with a sliding window says what it took. The computing thread, or nobody else runs.
void kin_join_close_instance(kin_join *join);

// The computing thread's life. Returns as kin_join_run does.
int kin_join_compute(kin_join *j, kin_err *err);
