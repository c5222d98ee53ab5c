// Internals of kin_cluster, shared by cluster.c (membership and devices), cluster_plan.c (planning), cluster_prefetch.c
// (prefetching for plans that are not active), cluster_pages.c (KV pages), cluster_status.c (reports to status clients),
// cluster_steps.c (lost steps), all in the loop's thread, and cluster_requests.c (the computing thread).
#pragma once

#include <uv.h>

#include "base/clock.h"
#include "cluster/assignment.h"
#include "cluster/cluster.h"
#include "cluster/connections.h"
#include "cluster/measurements.h"
#include "cluster/pairwise_tests.h"
#include "cluster/planning.h"
#include "cluster/probe_schedule.h"
#include "cluster/ring_member.h"
#include "net/discovery.h"
#include "observe/status_subscribers.h"
#include "pipeline/local_stage.h"
#include "pipeline/loopback.h"
#include "pipeline/lost_step.h"
#include "pipeline/relay.h"
#include "pipeline/remote_ring.h"
#include "pure/proto/membership.h"
#include "sys/completion.h"

enum { KIN_CLUSTER_SEQUENCES = 1 << 16 }; // most in a step

// A poll of all devices' STATUS, for a request of the computing thread: it ends when all have answered, or at `until`.
typedef struct kin_cluster_poll {
    kin_completion completion;
    uint32_t generation; // of the current poll
    kin_time until;      // 0: none
} kin_cluster_poll;

// Actions of the membership, in the order of its steps. Actions may cause events, and so further steps, whose actions are queued
// behind.
typedef struct kin_cluster_action {
    enum { KIN_CLUSTER_ENTERS, KIN_CLUSTER_ACTS } kind; // enters: the epoch of the step, before its actions
    kin_membership_action of_membership;
} kin_cluster_action;

typedef struct kin_cluster_actions {
    kin_cluster_action *at; // [cap], of which [next, n) are pending
    int next, n, cap;
    bool is_draining;
} kin_cluster_actions;

// Planning (cluster_plan.c).
typedef struct kin_cluster_planning {
    kin_measurements *measurements;
    kin_pairwise_tests *tests;
    kin_probe_schedule probes;
    kin_planning *thread;
    kin_planner_question *about; // scratch: the question that is made; its facts are also used for measurements
    kin_planning_answer *answer;
    kin_planning_reasons *reasons;                 // the latest reasons why devices have no layers
    uint32_t question;                             // the number of the latest question
    kin_proto_id left_out[KIN_MEMBERSHIP_DEVICES]; // [n_left_out] devices that were logged as left out
    int n_left_out;
    bool had_plan;            // from then on fewer devices than expected are enough
    kin_err no_plan;          // why the last question had no answer although all expected devices were there; empty: it had one
    kin_time give_up_at;      // when to report that; 0: not scheduled
    kin_cluster_poll measure; // for token times
    kin_time measured_at;     // when the last poll ended, or the first request of the ring began
    int n_measured;           // in this ring
    uint32_t measured_epoch;  // of the last request
} kin_cluster_planning;

// Prefetching (cluster_prefetch.c): the head's own part of a better plan, and standby weights for the plans without one of the
// devices.
typedef struct kin_cluster_standby {
    uint32_t own_ticket; // question whose part is packed, or was
    uint32_t epoch;      // 0: none; the epoch and number of devices that standby is for
    int n_devices;
    kin_time since; // when both were seen first
    bool is_asked, is_known, rate_limited;
    uint32_t ticket;
    kin_time busy_at;                 // the last time a request ran
    kin_planning_standby *plans;      // the planner's answer
    bool has[KIN_MEMBERSHIP_DEVICES]; // by device index of the membership: it has everything, or cannot get it
    kin_assignment *scratch;
} kin_cluster_standby;

// KV pages of sequences, on the devices' disks and on the head's.
typedef struct kin_cluster_pages {
    kin_proto_id keepers[KIN_MEMBERSHIP_DEVICES]; // devices that offered to store pages
    int n_keepers;
    uint64_t bytes; // for which copies were requested
} kin_cluster_pages;

// A query for the status from this process. Any thread sets it if none is pending, the loop's thread takes it.
typedef struct kin_cluster_status_query {
    atomic_bool is_pending;
    kin_status_report_fn receive;
    void *user;
} kin_cluster_status_query;

// Reports to status clients (cluster_status.c).
typedef struct kin_cluster_status {
    kin_status_subscribers *subscribers;
    kin_status_sample own_sample; // like the devices' samples
    kin_cluster_status_query query;
    kin_time begun, counted_at; // counted_at: when tokens were counted last
    uint64_t counted;
    double tokens_per_s;
    kin_cluster_poll gather; // for the devices' last events
} kin_cluster_status;

// Lost steps (cluster_steps.c).
typedef struct kin_cluster_steps {
    kin_lost_step lost;
    kin_time until; // deadline for the devices' answers; 0: not asked
} kin_cluster_steps;

// A state snapshot of the epoch, for the computing thread.
typedef struct kin_cluster_snapshot {
    uint64_t version; // incremented at each change
    uint32_t epoch;   // 0: none
    bool up;
    kin_local_work own;
    int n_members, n_stages; // n_stages: a group is one stage
    kin_border_set borders;
    bool is_exact;                        // no device has layers on a GPU, or uses ggml's kernels
    char broken[KIN_MEMBERSHIP_SENTENCE]; // why the last request was ended
    char doing[KIN_MEMBERSHIP_SENTENCE];
    kin_err given_up; // why; empty: not given up
} kin_cluster_snapshot;

// State that only the computing thread uses (cluster_requests.c).
typedef struct kin_cluster_computing {
    kin_cluster_snapshot *seen; // the snapshot for which the shard is open
    kin_local_stage *local_stage;
    kin_loopback *loopback;
    kin_remote_ring remote;
    kin_head *head;
    uint32_t epoch;
    bool in_request;
    void (*meanwhile)(void *user); // called while it waits for the ring; NULL: none
    void *meanwhile_user;
} kin_cluster_computing;

struct kin_cluster {
    kin_cluster_options o;
    kin_ring_member ring;
    kin_cluster_computing computing;

    // Used by the loop's thread.
    kin_membership *membership;
    kin_cluster_actions actions;
    kin_connections *connections;
    kin_discovery *discovery;
    kin_chunk_store *chunks;
    kin_relay *relay;
    kin_assignment *plan, *next, *asked; // active; prepared beside it; the planner's latest answer
    kin_cluster_planning planning;
    kin_cluster_standby standby;
    kin_cluster_pages pages;
    kin_cluster_status status;
    kin_cluster_steps steps;
    kin_proto_message *message; // a plan to be sent
    uint32_t entered;           // the epoch whose plan is active here
    uint32_t request_epoch;     // of the request that the membership counts; 0: none
    bool wants_ring;            // the membership wants the head's ring link
    kin_time reconnect_at;      // when it is tried again; 0: not scheduled

    uv_mutex_t mutex; // guards the following
    uv_cond_t changed;
    kin_cluster_snapshot snapshot;
    kin_err wrong; // why the last member's message was invalid, and in which epoch
    uint32_t wrong_epoch;

    kin_completion beginning; // result: whether the request of `wanted_epoch` has begun
    atomic_uint wanted_epoch;
    atomic_bool yields; // a better plan waits for the end of the request
};

// ---- cluster.c

// Runs one step of the membership, and its actions.
void kin_cluster_act(kin_cluster *c, const kin_membership_event *event);

// Fills in the i-th member's part of a plan, without its neighbours.
void kin_cluster_fill_plan(const kin_cluster *c, const kin_assignment *of, int i, kin_proto_plan *plan);

// Returns the device behind that control link; NULL: none yet.
const kin_membership_device *kin_cluster_device_of(const kin_cluster *c, uint32_t link);

// Returns the device with that id; NULL: it is not here, or the head.
const kin_membership_device *kin_cluster_device_with(const kin_cluster *c, const kin_proto_id *id);

// Returns the number of tokens that all rings have generated.
uint64_t kin_cluster_progress_made(const kin_cluster *c);

// The computing thread: reports that the last member of that epoch sent something invalid.
void kin_cluster_report_wrong(kin_cluster *c, uint32_t epoch, const char *reason);

// Both are kin_mailbox_fn, of a kin_cluster.
void kin_cluster_on_begins(void *cluster);
void kin_cluster_on_ends(void *cluster);

// ---- cluster_plan.c; the loop's thread

int kin_cluster_open_planning(kin_cluster *c, kin_err *err);
void kin_cluster_close_planning(kin_cluster *c);

void kin_cluster_handle_profile(kin_cluster *c, uint32_t from, const kin_proto_profile *m);
void kin_cluster_handle_measured(kin_cluster *c, uint32_t from, const kin_proto_measured *m);

// Logs, once for each pair, that neither reaches the other, and why.
void kin_cluster_log_unreachable(kin_cluster *c, const kin_proto_id *from, const kin_proto_id *to, const char *reason);

// Ends the measurements of a device whose control link is gone.
void kin_cluster_forget_probes(kin_cluster *c, uint32_t link);

// Handles a device's DEVICE message. True: the device measures its links first, and the membership gets the message later.
bool kin_cluster_register_device(kin_cluster *c, uint32_t from, const kin_proto_device *device);

// Asks the planner for the plans without each of these devices (indices of the membership); kin_cluster_handle_standby_plans
// takes the answer.
void kin_cluster_ask_standby(kin_cluster *c, uint32_t number, const uint8_t *devices, int n_devices);

// Passes the membership's question to the planner.
void kin_cluster_ask_planner(kin_cluster *c, const kin_membership_action *ask);

// Polls the members' token times, for the planner.
void kin_cluster_on_measure(void *cluster); // kin_mailbox_fn
// Called when a request begins in this epoch.
void kin_cluster_begin_measuring(kin_cluster *cluster, uint32_t epoch, kin_time now);
// Call it ten times a second.
void kin_cluster_planning_tick(kin_cluster *c, kin_time now);

// ---- cluster_prefetch.c; the loop's thread

int kin_cluster_open_prefetch(kin_cluster *c, kin_err *err);
void kin_cluster_close_prefetch(kin_cluster *c);

// See kin_ring_member_options. The head packs its own part of `next`; a ticket is a question.
int kin_cluster_pack(void *cluster, const kin_prepacking_job *job, const atomic_bool *stop, kin_packed **held, kin_err *err);
void kin_cluster_on_packed(void *cluster, uint32_t question);

// Returns the answer to that question: the latest, or the one that is prepared.
kin_assignment **kin_cluster_answer_of(kin_cluster *c, uint32_t question);
// Called after the membership has seen the planner's latest answer: keeps it as `next` if it is prepared from now on.
void kin_cluster_keep_next(kin_cluster *c);

// Handles the membership's PREFETCH action.
void kin_cluster_prefetch(kin_cluster *c, const kin_membership_action *a);
bool kin_cluster_is_quiet(kin_cluster *c, kin_time now);      // no request for a second
void kin_cluster_prefetch_tick(kin_cluster *c, kin_time now); // ten times a second: standby weights
void kin_cluster_handle_standby_plans(kin_cluster *c);        // handles the planner's answer, if there is one
// Handles a device's answer to PREFETCH.
void kin_cluster_handle_prefetched(kin_cluster *c, uint32_t from, const kin_proto_prefetched *m);

// ---- cluster_pages.c; the loop's thread, except init

void kin_cluster_init_pages(kin_cluster *c);
void kin_cluster_open_pages(kin_cluster *c);
void kin_cluster_settle_pages(kin_cluster *c);        // the computing thread
void kin_cluster_register_page_peers(kin_cluster *c); // called when a plan becomes active
// Registers the other devices' addresses with that device.
void kin_cluster_register_peer(kin_cluster *c, uint32_t link);
void kin_cluster_forget_replica(kin_cluster *c, const kin_proto_id *id); // a restarted device may not store pages
// Handles a device's KEPT.
void kin_cluster_handle_kept(kin_cluster *c, uint32_t from, const kin_proto_message *said);

// ---- cluster_requests.c

// Starts a poll of the devices by calling `begin` in the loop's thread, and waits until it ends; called by the computing thread.
void kin_cluster_wait_for_poll(kin_cluster *c, kin_cluster_poll *poll, kin_mailbox_fn begin);

void kin_cluster_close_requests(kin_cluster *c);

// ---- cluster_steps.c; the loop's thread

// Call it ten times a second.
void kin_cluster_steps_tick(kin_cluster *c, kin_time now);

// ---- cluster_status.c; the loop's thread

// Asks the devices; waits for at most half a second.
void kin_cluster_poll_begin(kin_cluster *c, kin_cluster_poll *poll);
// Returns true once, when the poll is over.
bool kin_cluster_poll_ends(kin_cluster *c, kin_cluster_poll *poll, kin_time now);

int kin_cluster_open_status(kin_cluster *c, kin_err *err);

// Call it ten times a second.
void kin_cluster_status_tick(kin_cluster *c, kin_time now);

// Gives the members rows in the timeline, in the order of the ring.
void kin_cluster_name_rows(kin_cluster *c);

// Handles a device's EVENTS.
void kin_cluster_handle_events(kin_cluster *c, uint32_t from, const kin_proto_events *m);

void kin_cluster_on_gather(void *cluster); // kin_mailbox_fn
void kin_cluster_accept_status_link(kin_cluster *c, kin_link *link);
