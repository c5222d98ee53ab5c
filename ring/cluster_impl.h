// Inside of kin_cluster, for cluster.c (the roster and the devices), cluster_plan.c (planning), cluster_sight.c (what others may
// see of it), all three in the loop's thread, and cluster_work.c (requests: the computing thread).
#pragma once

#include <uv.h>

#include "base/clock.h"
#include "pure/proto/roster.h"
#include "ring/alone.h"
#include "ring/audience.h"
#include "ring/cluster.h"
#include "ring/crew.h"
#include "ring/discovery.h"
#include "ring/ledger.h"
#include "ring/meetings.h"
#include "ring/own.h"
#include "ring/planned.h"
#include "ring/planning.h"
#include "ring/relay.h"
#include "ring/share.h"
#include "ring/station.h"
#include "ring/wire.h"

enum {
    KIN_CLUSTER_LOOK_MS = 100,
    KIN_CLUSTER_SEQUENCES = 1 << 16, // most of a step
};

// Rounds of questions to all devices that the computing thread waits for: a round that was begun earlier does not end its wait.
typedef struct kin_cluster_rounds {
    uint32_t wanted, done; // numbers of the last ones
} kin_cluster_rounds;

// What the computing thread must know of the epoch.
typedef struct kin_cluster_news {
    uint32_t epoch;   // 0: none
    uint32_t request; // the epoch that the last request began in
    bool up;
    kin_member_windows own;
    uint64_t own_memory;
    int n_rounds, n_members;
    char broken[KIN_ROSTER_SENTENCE]; // why the last request was ended
    char doing[KIN_ROSTER_SENTENCE];
    kin_err given_up; // why; empty: not
} kin_cluster_news;

struct kin_cluster {
    kin_cluster_options o;
    kin_parcels *pool;
    kin_parcel_queue *in;
    kin_station *station;

    // The loop's thread.
    kin_roster *roster;
    kin_discovery *discovery;
    kin_share *share;
    kin_stock *stock;
    kin_crew *crew;
    kin_audience *audience;
    kin_ledger *ledger;
    kin_meetings *meetings;
    kin_relay *relay;
    kin_facts *facts; // for a question
    kin_planning *planning;
    kin_planning_answer *answer;
    uint32_t question;          // the planner's last one
    kin_crew_sample own_sample; // as the devices'
    kin_time begun, counted_at; // the last look at the tokens
    uint64_t counted;
    double tokens_per_s;
    kin_planned *plan, *asked;  // in force; the last answer of the planner
    kin_proto_message *message; // a plan that is being sent
    int n_ticks_to_reconnect, n_ticks_to_gather, n_ticks_to_measure;
    uint32_t gather_round, measure_round; // under way
    uint64_t n_requests;
    uint32_t request_epoch;  // of the request that the roster counts; 0: none
    uint32_t measured_epoch; // of the last request
    bool wants_ring;         // the roster wants the head's own ring link
    bool had_plan;           // from then on it goes on with fewer devices than were expected
    kin_err no_plan;         // why the last question had no answer although all expected devices were there; empty: it had
    int n_ticks_to_give_up;

    uv_mutex_t mutex; // over the following
    uv_cond_t changed;
    kin_cluster_news news;
    kin_cluster_rounds gathering; // of the devices' last events
    kin_cluster_rounds measuring; // of what their tokens took
    bool is_beginning;            // the computing thread waits to hear whether its request has begun
    bool has_begun;

    // The computing thread.
    kin_cluster_news *seen; // a copy of the news that the shard is opened for
    kin_own *own;
    kin_alone *alone;
    kin_wire wire;
    kin_head *head;
    uint32_t epoch;
    bool in_request;
};

// ---- cluster.c

// One step of the roster, and what it asks for.
void kin_cluster_act(kin_cluster *c, const kin_roster_event *event);

// Who has that control link; NULL: nobody yet.
const kin_roster_device *kin_cluster_device_of(const kin_cluster *c, uint32_t link);

// kin_post_fn, of a kin_cluster.
void kin_cluster_on_begins(void *cluster);
void kin_cluster_on_ends(void *cluster);

// ---- cluster_plan.c; the loop's thread

int kin_cluster_open_planning(kin_cluster *c, kin_err *err);
void kin_cluster_close_planning(kin_cluster *c);

void kin_cluster_take_profile(kin_cluster *c, uint32_t from, const kin_proto_profile *m);
void kin_cluster_take_link(kin_cluster *c, uint32_t from, const kin_proto_measured *m);

// Once for each two: neither reaches the other, and why.
void kin_cluster_say_apart(kin_cluster *c, const kin_proto_id *from, const kin_proto_id *to, const char *reason);

// A device said what it has. True: it measures its links first, and the roster hears of it later.
bool kin_cluster_meets(kin_cluster *c, uint32_t from, const kin_proto_device *device);

// The roster's question, for the planner.
void kin_cluster_ask_planner(kin_cluster *c, const kin_roster_action *ask);

// Asks the members what their tokens took, for the planner.
void kin_cluster_on_measure(void *cluster); // kin_post_fn
// Ten times a second.
void kin_cluster_look_at_plan(kin_cluster *c);

// ---- cluster_work.c

// The computing thread asks for a round, and waits for its end.
void kin_cluster_wait_for_round(kin_cluster *c, kin_cluster_rounds *rounds, kin_post_fn begin);
// The loop's thread: which round it is to begin, and which one is over.
uint32_t kin_cluster_round_wanted(kin_cluster *c, const kin_cluster_rounds *rounds);
void kin_cluster_round_is_over(kin_cluster *c, kin_cluster_rounds *rounds, uint32_t round);

void kin_cluster_close_work(kin_cluster *c);

// ---- cluster_sight.c; the loop's thread

int kin_cluster_open_sight(kin_cluster *c, kin_err *err);

// Ten times a second.
void kin_cluster_look(kin_cluster *c);

// The members have rows in the timeline, in the order of the ring.
void kin_cluster_name_rows(kin_cluster *c);

// A device's EVENTS.
void kin_cluster_take_events(kin_cluster *c, uint32_t from, const kin_proto_events *m);

void kin_cluster_on_gather(void *cluster); // kin_post_fn
void kin_cluster_on_observe(void *user, kin_link *link, const kin_proto_open *open);
