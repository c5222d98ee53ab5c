// Inside of kin_cluster, for cluster.c (the membership and the devices), cluster_plan.c (planning), cluster_status.c (what
// status clients see), all three in the loop's thread, and cluster_requests.c (the computing thread).
#pragma once

#include <uv.h>

#include "base/clock.h"
#include "cluster/assignment.h"
#include "cluster/cluster.h"
#include "cluster/connections.h"
#include "cluster/measurements.h"
#include "cluster/pairwise_tests.h"
#include "cluster/planning.h"
#include "fetch/chunk_server.h"
#include "net/discovery.h"
#include "net/endpoint.h"
#include "observe/status_subscribers.h"
#include "pipeline/local_stage.h"
#include "pipeline/loopback.h"
#include "pipeline/neighbours.h"
#include "pipeline/relay.h"
#include "pipeline/remote_ring.h"
#include "pure/proto/membership.h"

enum {
    KIN_CLUSTER_LOOK_MS = 100,
    KIN_CLUSTER_SEQUENCES = 1 << 16, // most of a step
};

// Rounds of questions to all devices that the computing thread waits for: a round that was begun earlier does not end its wait.
typedef struct kin_cluster_rounds {
    uint32_t wanted, done; // numbers of the last ones
} kin_cluster_rounds;

// What the computing thread must know of the epoch.
typedef struct kin_cluster_snapshot {
    uint32_t epoch;   // 0: none
    uint32_t request; // the epoch that the last request began in
    bool up;
    kin_member_windows own;
    uint64_t own_memory;
    int n_rounds, n_members;
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
    kin_chunk_server *share;
    kin_chunk_store *stock;
    kin_connections *connections;
    kin_status_subscribers *subscribers;
    kin_measurements *measurements;
    kin_pairwise_tests *tests;
    kin_relay *relay;
    kin_facts *facts; // for a question
    kin_planning *planning;
    kin_planning_answer *answer;
    uint32_t question;            // the planner's last one
    kin_status_sample own_sample; // as the devices'
    kin_time begun, counted_at;   // the last look at the tokens
    uint64_t counted;
    double tokens_per_s;
    kin_assignment *plan, *asked; // in force; the last answer of the planner
    kin_proto_message *message;   // a plan that is being sent
    int n_ticks_to_reconnect, n_ticks_to_gather, n_ticks_to_measure;
    uint32_t gather_round, measure_round; // under way
    uint64_t n_requests;
    uint32_t request_epoch;  // of the request that the membership counts; 0: none
    uint32_t measured_epoch; // of the last request
    bool wants_ring;         // the membership wants the head's own ring link
    bool had_plan;           // from then on it goes on with fewer devices than were expected
    kin_err no_plan;         // why the last question had no answer although all expected devices were there; empty: it had
    int n_ticks_to_give_up;

    uv_mutex_t mutex; // over the following
    uv_cond_t changed;
    kin_cluster_snapshot news;
    kin_cluster_rounds gathering; // of the devices' last events
    kin_cluster_rounds measuring; // of what their tokens took
    bool is_beginning;            // the computing thread waits to hear whether its request has begun
    bool has_begun;

    // The computing thread.
    kin_cluster_snapshot *seen; // a copy of the news that the shard is opened for
    kin_local_stage *own;
    kin_loopback *alone;
    kin_remote_ring wire;
    kin_head *head;
    uint32_t epoch;
    bool in_request;
};

// ---- cluster.c

// One step of the membership, and what it asks for.
void kin_cluster_act(kin_cluster *c, const kin_membership_event *event);

// Who has that control link; NULL: nobody yet.
const kin_membership_device *kin_cluster_device_of(const kin_cluster *c, uint32_t link);

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

// A device said what it has. True: it measures its links first, and the membership hears of it later.
bool kin_cluster_meets(kin_cluster *c, uint32_t from, const kin_proto_device *device);

// The membership's question, for the planner.
void kin_cluster_ask_planner(kin_cluster *c, const kin_membership_action *ask);

// Asks the members what their tokens took, for the planner.
void kin_cluster_on_measure(void *cluster); // kin_mailbox_fn
// Ten times a second.
void kin_cluster_look_at_plan(kin_cluster *c);

// ---- cluster_work.c

// The computing thread asks for a round, and waits for its end.
void kin_cluster_wait_for_round(kin_cluster *c, kin_cluster_rounds *rounds, kin_mailbox_fn begin);
// The loop's thread: which round it is to begin, and which one is over.
uint32_t kin_cluster_round_wanted(kin_cluster *c, const kin_cluster_rounds *rounds);
void kin_cluster_round_is_over(kin_cluster *c, kin_cluster_rounds *rounds, uint32_t round);

void kin_cluster_close_requests(kin_cluster *c);

// ---- cluster_sight.c; the loop's thread

int kin_cluster_open_status(kin_cluster *c, kin_err *err);

// Ten times a second.
void kin_cluster_status_tick(kin_cluster *c);

// The members have rows in the timeline, in the order of the ring.
void kin_cluster_name_rows(kin_cluster *c);

// A device's EVENTS.
void kin_cluster_take_events(kin_cluster *c, uint32_t from, const kin_proto_events *m);

void kin_cluster_on_gather(void *cluster); // kin_mailbox_fn
void kin_cluster_take_status_link(kin_cluster *c, kin_link *link);
