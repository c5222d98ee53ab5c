// A cluster in memory: one head (pure/proto/membership.h), some devices (pure/proto/member.h), and their environment: links,
// processes that start, stop and freeze, a planner, requests. Time is virtual, and random numbers come from a seed.
//
// A link delivers in order, like TCP: blocked messages wait, and an end that receives nothing for 1.5 s closes the link.
// Invariants are asserted here: one plan per epoch; epochs never go back; a device that reports ready holds the right work; every
// failed request has a sentence that names device and stage. The test chooses the faults, and checks what must hold afterwards.
//
// Links of the ring are as in pipeline/neighbours.h and pipeline/relay.h: opened from either end, or through the head. Between
// some nodes no link can ever be made: firewalls.
//
// cluster.c has random numbers, time, links and processes, ring.c the ring's links, head.c and device.c the drivers of
// membership and member.
// Owner: the test, which zeroes it, sets rng, n_nodes, n_needed, calm_at, last_request_at, totals, and starts nodes.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/rng.h"
#include "pure/proto/member.h"
#include "pure/proto/membership.h"

#define KIN_SIM_MS ((kin_time)1000000)

enum {
    KIN_SIM_HEAD = 0,  // number of the head's node
    KIN_SIM_NODES = 9, // the head and eight devices
    KIN_SIM_LINKS = 64,
    KIN_SIM_QUEUE = 4096,
    KIN_SIM_EPOCHS = 4096,
    KIN_SIM_RELAYS = 16,
};

typedef struct kin_sim_totals { // over many simulations
    uint64_t n_steps, n_epochs, n_done, n_failed, n_actions_max, n_back, n_relayed, n_left_out;
    uint64_t n_prefetched, n_switched, n_given_up; // plans: prepared beside an epoch, begun after that, given up
} kin_sim_totals;

// The kinds of messages on a link.
typedef enum kin_sim_word {
    KIN_SIM_HELLO,
    KIN_SIM_ACCEPT,
    KIN_SIM_REFUSE,
    KIN_SIM_FACTS,
    KIN_SIM_PLAN,
    KIN_SIM_PREFETCH,
    KIN_SIM_PREFETCH_ENDS,
    KIN_SIM_END,
    KIN_SIM_READY,
    KIN_SIM_FAILED,
    KIN_SIM_RING,
    KIN_SIM_RING_OK,
    KIN_SIM_STEP,
    KIN_SIM_PING,
    KIN_SIM_RESET
} kin_sim_word;

typedef struct kin_sim_message {
    kin_sim_word word;
    uint32_t epoch, request;
    uint64_t value; // PLAN: hash of the whole plan; RING: 1: opened by its receiver; RING_OK: is_open; STEP: its number; FACTS:
                    // the model; PREFETCH_ENDS: everything is there
    int node;       // PLAN: the next member; HELLO: the sender; RING: the other end of the hop
    int previous;   // PLAN: the previous member
    char text[96];
} kin_sim_message;

// The kinds of events.
typedef enum kin_sim_what {
    KIN_SIM_DELIVER,
    KIN_SIM_TICK,
    KIN_SIM_ANSWER,
    KIN_SIM_PREPARED,
    KIN_SIM_PREFETCHED,
    KIN_SIM_COMPUTED,
    KIN_SIM_FOUND,
    KIN_SIM_FAULT,
    KIN_SIM_RESTART,
    KIN_SIM_CHECK,
    KIN_SIM_WRITTEN
} kin_sim_what;

typedef struct kin_sim_event {
    kin_time at;
    uint64_t order; // order among events of the same time
    kin_sim_what what;
    int node, link, side;
    uint32_t serial; // serial of the link, or life of the node
    uint32_t ticket; // number of a question, a ticket or a request
    kin_sim_message message;
} kin_sim_event;

// An answer of the planner.
typedef struct kin_sim_plan {
    uint32_t question;
    int nodes[KIN_SIM_NODES], n;
    uint64_t hash;
} kin_sim_plan;

// A connection. Side 0 opened it.
typedef struct kin_sim_link {
    uint32_t serial; // 0: a free place
    int node[2];
    bool is_ring, is_up, open[2];
    uint32_t epoch; // of a ring link
    kin_time made_at, heard_at[2], delivered_at[2];
} kin_sim_link;

// A side of a node's place in the ring.
typedef enum kin_sim_side { KIN_SIM_NEXT, KIN_SIM_PREVIOUS, KIN_SIM_N_SIDES } kin_sim_side;

// A firewall between two nodes: none, one that refuses ring links, or one that drops their packets.
typedef enum kin_sim_wall { KIN_SIM_NO_WALL, KIN_SIM_REFUSES, KIN_SIM_DROPS } kin_sim_wall;

typedef struct kin_sim_node {
    bool runs;
    uint32_t life; // number of starts
    kin_time frozen_until;
    int n_ticks;
    bool wrong_version, wrong_model;
    int neighbours[KIN_SIM_N_SIDES];                   // in its current plan
    int ring[KIN_SIM_N_SIDES], dials[KIN_SIM_N_SIDES]; // links in use; links not answered yet; or -1
    // a device
    kin_member *member;
    uint32_t epoch_seen;         // highest epoch in all its lives
    uint64_t plan;               // the plan that it has
    int control;                 // link or -1
    uint32_t ticket;             // ticket of the last preparation
    int wanted, preparing, held; // work: of the plan, of the last preparation, completed; 0: none
    uint32_t order;              // the question to prefetch for; 0: none
    kin_time busy_until;         // it computes steps one after the other
    uint32_t failed_epoch;       // it computes nothing more in this epoch
} kin_sim_node;

// Steps of a test that computes something in them. Without it, the simulation makes requests of eight steps without content.
typedef struct kin_sim_steps {
    void (*compute)(void *user, int node, uint64_t step); // a device has the step, in the ring's epoch
    void (*back)(void *user, uint64_t step);              // the step is back at the head
    void *user;
} kin_sim_steps;

typedef struct kin_sim {
    kin_rng rng;
    kin_time now;
    kin_time calm_at, last_request_at;
    bool tells; // prints its story on stdout
    int n_nodes, n_needed;
    kin_sim_node nodes[KIN_SIM_NODES];
    kin_time cut_until[KIN_SIM_NODES][KIN_SIM_NODES];
    kin_sim_wall walls[KIN_SIM_NODES][KIN_SIM_NODES]; // [from][to]
    kin_sim_link links[KIN_SIM_LINKS];
    uint32_t n_serials;
    kin_sim_event queue[KIN_SIM_QUEUE]; // a binary heap
    int n_queue;
    uint64_t n_orders;
    // the head
    kin_membership *membership;
    uint32_t question;
    int asked[KIN_SIM_NODES], n_asked;
    int planned[KIN_SIM_NODES], n_planned; // the plan in force, as node numbers
    uint64_t plan_variant, plan;
    kin_sim_plan answered, next; // the last answer; the plan that is prepared beside the one in force
    struct {
        int from, to;
        int links[2];         // links of the sender and the receiver; -1: missing
    } relays[KIN_SIM_RELAYS]; // from == to: a free place
    uint32_t request;         // the running request, 0: none
    uint32_t request_epoch, n_requests;
    uint64_t plan_of[KIN_SIM_EPOCHS];
    kin_sim_steps steps; // compute NULL: none
    kin_sim_totals *totals;
    kin_time head_hit_at, hit_at; // for the test: the last fault of the head, and of any node
} kin_sim;

#define KIN_SIM_REPORT(w, ...)                                                                                                   \
    do {                                                                                                                         \
        if ((w)->tells) {                                                                                                        \
            printf("%9.3f  ", (double)(w)->now / 1e9);                                                                           \
            printf(__VA_ARGS__);                                                                                                 \
            printf("\n");                                                                                                        \
        }                                                                                                                        \
    } while (0)

// ---- random numbers and time

uint64_t kin_sim_below(kin_sim *w, uint64_t end);
kin_time kin_sim_between_ms(kin_sim *w, uint64_t low, uint64_t high);
bool kin_sim_is_calm(const kin_sim *w); // there are no more faults

// Queue an event; remove the earliest one.
void kin_sim_push(kin_sim *w, kin_sim_event e);
kin_sim_event kin_sim_pop(kin_sim *w);

// Processes every event except KIN_SIM_FAULT, KIN_SIM_CHECK and KIN_SIM_WRITTEN, which the test handles. Sets the time.
void kin_sim_happen(kin_sim *w, const kin_sim_event *e);

// ---- processes

void kin_sim_start(kin_sim *w, int node);
// quietly: as if unplugged; otherwise the other ends are notified as by an operating system.
void kin_sim_stop(kin_sim *w, int node, bool quietly);
bool kin_sim_is_frozen(const kin_sim *w, int node);
bool kin_sim_lives(const kin_sim *w, int node, uint32_t life); // true if that life of the node still runs
bool kin_sim_reaches(const kin_sim *w, int from, int to);      // true if what `from` sends now reaches `to`
int kin_sim_any_device(kin_sim *w);

// ---- faults, none of which lasts beyond calm_at

kin_time kin_sim_a_while(kin_sim *w);                       // end of a random time, shorter or longer than the limit of silence
void kin_sim_crash(kin_sim *w, int node, uint64_t most_ms); // the node starts again within most_ms
void kin_sim_freeze(kin_sim *w, int node);
void kin_sim_cut(kin_sim *w, int a, int b);

// ---- links

// Sends from this side of the link at index `at`; the simulation decides whether and when it arrives.
void kin_sim_send(kin_sim *w, int at, int side, kin_sim_message m);
// Makes a new link and sends its first message; returns its index in `links`.
int kin_sim_connect(kin_sim *w, int from, int to, kin_sim_message hello);
// Closes one end; the other is notified if it can be reached. at < 0: does nothing.
void kin_sim_shut(kin_sim *w, int at, int side);
int kin_sim_link_at(const kin_sim *w, uint32_t serial); // -1: gone
// Notifies the owner of an end that its link ended by itself.
void kin_sim_report_closed(kin_sim *w, int at, int side, const char *reason);

// ---- the ring's links

void kin_sim_ring_init(kin_sim *w, int node);
void kin_sim_ring_connect(kin_sim *w, int node, kin_sim_side side, bool by_head);
void kin_sim_ring_close(kin_sim *w, int node);
void kin_sim_ring_receive(kin_sim *w, int at, int side, const kin_sim_message *m); // RING, RING_OK, STEP
void kin_sim_ring_closed(kin_sim *w, int at, int side, const char *reason);
void kin_sim_ring_send(kin_sim *w, int node, kin_sim_message m); // to the next member

// ---- the head's driver

void kin_sim_head_step(kin_sim *w, kin_membership_event e);
void kin_sim_head_tick(kin_sim *w);
void kin_sim_head_ring(kin_sim *w, kin_sim_side side, bool is_open, uint32_t epoch, const char *reason);
void kin_sim_head_receive(kin_sim *w, int at, const kin_sim_message *m);
void kin_sim_head_prefetched(kin_sim *w, uint32_t question); // the head's own part
void kin_sim_answer_planner(kin_sim *w, uint32_t question);
void kin_sim_handle_result(kin_sim *w, const kin_sim_message *m);
// Begins a request if the ring is up and none runs; sends its steps; ends it.
void kin_sim_begin_request(kin_sim *w);
void kin_sim_send_step(kin_sim *w, uint64_t step);
void kin_sim_end_request(kin_sim *w, bool is_aborted);

// ---- a device's driver

void kin_sim_device_step(kin_sim *w, int node, kin_member_event e);
void kin_sim_device_ring(kin_sim *w, int node, kin_sim_side side, bool is_open, uint32_t epoch, const char *reason);
void kin_sim_handle_step(kin_sim *w, int node, const kin_sim_message *m);
void kin_sim_device_receive(kin_sim *w, int node, const kin_sim_message *m);
void kin_sim_prepared(kin_sim *w, int node, uint32_t ticket);
void kin_sim_prefetched(kin_sim *w, int node, uint32_t ticket);
void kin_sim_computed(kin_sim *w, int node, const kin_sim_message *m);
