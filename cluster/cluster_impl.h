// Inside of kin_cluster, for cluster.c (the membership and the devices), cluster_plan.c (planning), cluster_prefetch.c (what is
// prepared for plans that are not in force), cluster_pages.c (pages of texts), cluster_status.c (what status clients see),
// cluster_steps.c (steps that do not come back), all in the loop's thread, and cluster_requests.c (the computing thread).
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
#include "fetch/chunk_server.h"
#include "fetch/page_fetch.h"
#include "net/discovery.h"
#include "net/endpoint.h"
#include "observe/status_subscribers.h"
#include "pipeline/exchange.h"
#include "pipeline/group_links.h"
#include "pipeline/local_stage.h"
#include "pipeline/loopback.h"
#include "pipeline/lost_step.h"
#include "pipeline/neighbours.h"
#include "pipeline/prepacking.h"
#include "pipeline/relay.h"
#include "pipeline/remote_ring.h"
#include "pure/proto/membership.h"
#include "sys/completion.h"

enum { KIN_CLUSTER_SEQUENCES = 1 << 16 }; // most of a step

// All devices are asked for their STATUS, for a request of the computing thread: it is over when all have answered, or at
// `until`.
typedef struct kin_cluster_poll {
    kin_completion completion;
    uint32_t generation; // that is under way
    kin_time until;      // 0: none is
} kin_cluster_poll;

// What the membership wants, in the order of its steps. Actions may cause events, and so steps: their actions wait at the end.
typedef struct kin_cluster_action {
    enum { KIN_CLUSTER_ENTERS, KIN_CLUSTER_ACTS } kind; // enters: the epoch of the step, before its actions
    kin_membership_action of_membership;
} kin_cluster_action;

typedef struct kin_cluster_actions {
    kin_cluster_action *at; // [cap], of which [next, n) wait
    int next, n, cap;
    bool is_draining;
} kin_cluster_actions;

// What is fetched beforehand for the plans without one of the devices.
typedef struct kin_cluster_spares {
    uint32_t epoch; // that they are for; 0: none
    int n_devices;  // that were there
    kin_time since; // when both were seen first
    bool is_asked, is_known, gently;
    uint32_t ticket;
    kin_time busy_at;                 // a request ran
    kin_planning_spares *plans;       // the planner's answer
    bool has[KIN_MEMBERSHIP_DEVICES]; // it is there, or not to be had; devices as in the membership
} kin_cluster_spares;

// Of texts, on the devices' disks and on the head's.
typedef struct kin_cluster_pages {
    kin_kv_peers peers;
    kin_page_fetch *fetch;                        // NULL: none are kept
    kin_proto_id keepers[KIN_MEMBERSHIP_DEVICES]; // devices that have said that they keep pages
    int n_keepers;
    uint64_t bytes; // of which copies were to be made
} kin_cluster_pages;

// A state snapshot of the epoch for the computing thread.
typedef struct kin_cluster_snapshot {
    uint64_t version; // another one with each change
    uint32_t epoch;   // 0: none
    bool up;
    kin_local_work own;
    int n_members, n_stages; // a group is one stage
    kin_border_set borders;
    bool is_exact;                        // no device has layers on a GPU, or computes with ggml's kernels
    char broken[KIN_MEMBERSHIP_SENTENCE]; // why the last request was ended
    char doing[KIN_MEMBERSHIP_SENTENCE];
    kin_err given_up; // why; empty: not
} kin_cluster_snapshot;

struct kin_cluster {
    kin_cluster_options o;
    kin_message_pool *pool;
    kin_message_queue *in;
    kin_endpoint *endpoint;
    kin_neighbours *neighbours;

    // The loop's thread.
    kin_membership *membership;
    kin_discovery *discovery;
    kin_chunk_server *server;
    kin_chunk_store *chunks;
    kin_connections *connections;
    kin_status_subscribers *subscribers;
    kin_measurements *measurements;
    kin_pairwise_tests *tests;
    kin_probe_schedule probes;
    kin_relay *relay;
    kin_group_links *group_links;
    uint32_t grouped;  // the epoch that they are of
    bool is_next_open; // the link to the next member, but not all of the group's
    kin_facts *facts;  // for a question
    kin_planning *planning;
    kin_planning_answer *answer;
    kin_planning_reasons *reasons; // of why devices have no layers, taken last
    uint32_t question;             // the planner's last one
    kin_status_sample own_sample;  // as the devices'
    kin_time begun, counted_at;    // the last look at the tokens
    uint64_t counted;
    double tokens_per_s;
    kin_assignment *plan, *next, *asked; // in force; prepared beside it; the last answer of the planner
    kin_prepacking *prepacking;          // of the head's own part of the next one
    kin_prepacking_job *own_job;
    uint32_t own_ticket; // of what is packed, or was
    kin_cluster_spares spares;
    kin_cluster_pages pages;
    kin_assignment *spare;      // scratch
    kin_proto_message *message; // a plan that is being sent
    kin_cluster_actions actions;
    uint32_t entered;      // the epoch whose plan is in force here
    kin_time reconnect_at; // when the ring's link is tried again; 0: not
    kin_lost_step lost_step;
    kin_time steps_until;                          // the devices are asked where the steps are, until then; 0: they are not
    kin_cluster_poll gather;                       // of the devices' last events
    kin_cluster_poll measure;                      // of what their tokens took
    kin_time measured_at;                          // when its last one ended, or the first request of the ring began
    int n_measured;                                // in this ring
    kin_proto_id left_out[KIN_MEMBERSHIP_DEVICES]; // [n_left_out]: devices of which the log says that they are
    int n_left_out;
    uint32_t request_epoch;  // of the request that the membership counts; 0: none
    uint32_t measured_epoch; // of the last request
    bool wants_ring;         // the membership wants the head's own ring link
    bool had_plan;           // from then on it goes on with fewer devices than were expected
    kin_err no_plan;         // why the last question had no answer although all expected devices were there; empty: it had
    kin_time give_up_at;     // when it says so; 0: not

    uv_mutex_t mutex; // over the following
    uv_cond_t changed;
    kin_cluster_snapshot snapshot;
    kin_err group_error; // why a sum failed, and in which epoch
    uint32_t group_error_epoch;
    kin_err wrong; // what the last member sent, and in which epoch
    uint32_t wrong_epoch;

    kin_completion beginning; // whether the request of `wanted_epoch` has begun
    atomic_uint wanted_epoch;
    atomic_bool yields; // a better plan waits for the end of the request

    kin_exchange *exchange; // of the group that the head belongs to

    // The computing thread.
    kin_cluster_snapshot *seen; // the snapshot that the shard is opened for
    kin_local_stage *local_stage;
    kin_loopback *loopback;
    kin_remote_ring remote;
    kin_head *head;
    uint32_t epoch;
    bool in_request;
    void (*meanwhile)(void *user); // NULL: nothing is called while the ring is waited for
    void *meanwhile_user;
};

// ---- cluster.c

// One step of the membership, and what it asks for.
void kin_cluster_act(kin_cluster *c, const kin_membership_event *event);

// The i-th member's part of a plan, without its neighbours.
void kin_cluster_fill_plan(const kin_cluster *c, const kin_assignment *of, int i, kin_proto_plan *plan);

// The device behind that control link; NULL: none yet.
const kin_membership_device *kin_cluster_device_of(const kin_cluster *c, uint32_t link);

// Tokens that rings have made.
uint64_t kin_cluster_progress_made(const kin_cluster *c);

// The computing thread: what the last member of that epoch sent cannot be.
void kin_cluster_say_wrong(kin_cluster *c, uint32_t epoch, const char *reason);

// kin_mailbox_fn, of a kin_cluster.
void kin_cluster_on_begins(void *cluster);
void kin_cluster_on_ends(void *cluster);

// ---- cluster_plan.c; the loop's thread

int kin_cluster_open_planning(kin_cluster *c, kin_err *err);
void kin_cluster_close_planning(kin_cluster *c);

void kin_cluster_take_profile(kin_cluster *c, uint32_t from, const kin_proto_profile *m);
void kin_cluster_take_link(kin_cluster *c, uint32_t from, const kin_proto_measured *m);

// Once for each two: neither reaches the other, and why.
void kin_cluster_say_apart(kin_cluster *c, const kin_proto_id *from, const kin_proto_id *to, const char *reason);

// That control link is gone: its device measures nothing.
void kin_cluster_forget_probes(kin_cluster *c, uint32_t link);

// A device said what it has. True: it measures its links first, and the membership hears of it later.
bool kin_cluster_meets(kin_cluster *c, uint32_t from, const kin_proto_device *device);

// The plans without each of these devices (indices of the membership), for the planner; the answer: kin_cluster_take_spares.
void kin_cluster_ask_spares(kin_cluster *c, uint32_t number, const uint8_t *devices, int n_devices);

// The membership's question, for the planner.
void kin_cluster_ask_planner(kin_cluster *c, const kin_membership_action *ask);

// Asks the members what their tokens took, for the planner.
void kin_cluster_on_measure(void *cluster); // kin_mailbox_fn
// A request begins in this epoch.
void kin_cluster_begin_measuring(kin_cluster *cluster, uint32_t epoch, kin_time now);
// Ten times a second.
void kin_cluster_planning_tick(kin_cluster *c, kin_time now);

// ---- cluster_prefetch.c; the loop's thread

int kin_cluster_open_prefetch(kin_cluster *c, kin_err *err);
void kin_cluster_close_prefetch(kin_cluster *c);

// The answer to that question: the last one, or the one that is prepared.
kin_assignment **kin_cluster_answer_of(kin_cluster *c, uint32_t question);
// After the membership has seen the planner's last answer: it may be what is prepared from now on.
void kin_cluster_keep_next(kin_cluster *c);

// The membership's PREFETCH.
void kin_cluster_prefetch(kin_cluster *c, const kin_membership_action *a);
bool kin_cluster_is_quiet(kin_cluster *c, kin_time now);      // no request for a second
void kin_cluster_prefetch_tick(kin_cluster *c, kin_time now); // ten times a second: spares
void kin_cluster_take_spares(kin_cluster *c);                 // the planner's answer may be there
// A device's answer to PREFETCH.
void kin_cluster_take_prefetched(kin_cluster *c, uint32_t from, const kin_proto_prefetched *m);

// ---- cluster_pages.c; the loop's thread, but for init

void kin_cluster_init_pages(kin_cluster *c);
void kin_cluster_open_pages(kin_cluster *c);
void kin_cluster_settle_pages(kin_cluster *c); // the computing thread
void kin_cluster_close_pages(kin_cluster *c);
void kin_cluster_meet_pages(kin_cluster *c); // a plan is in force
// Tells that device where the others are reached.
void kin_cluster_introduce(kin_cluster *c, uint32_t link);
void kin_cluster_forget_keeper(kin_cluster *c, const kin_proto_id *id); // it may keep no pages in this life
// A device's KEPT.
void kin_cluster_take_kept(kin_cluster *c, uint32_t from, const kin_proto_message *said);

// ---- cluster_requests.c

// The computing thread asks for a poll of the devices, which `begin` starts in the loop's thread, and waits for its end.
void kin_cluster_wait_for_poll(kin_cluster *c, kin_cluster_poll *poll, kin_mailbox_fn begin);

void kin_cluster_close_requests(kin_cluster *c);

// ---- cluster_steps.c; the loop's thread

// Ten times a second.
void kin_cluster_steps_tick(kin_cluster *c, kin_time now);

// ---- cluster_status.c; the loop's thread

// Asks the devices; for at most half a second.
void kin_cluster_poll_begin(kin_cluster *c, kin_cluster_poll *poll);
// True, once: it is over by now.
bool kin_cluster_poll_ends(kin_cluster *c, kin_cluster_poll *poll, kin_time now);

int kin_cluster_open_status(kin_cluster *c, kin_err *err);

// Ten times a second.
void kin_cluster_status_tick(kin_cluster *c, kin_time now);

// The members have rows in the timeline, in the order of the ring.
void kin_cluster_name_rows(kin_cluster *c);

// A device's EVENTS.
void kin_cluster_take_events(kin_cluster *c, uint32_t from, const kin_proto_events *m);

void kin_cluster_on_gather(void *cluster); // kin_mailbox_fn
void kin_cluster_take_status_link(kin_cluster *c, kin_link *link);
