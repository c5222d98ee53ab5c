// A member: the states of a device that takes part in a ring, from finding the head to being ready, again and again.
//
// The counterpart of the membership (pure/proto/membership.h), and also a step function: events and the time go in, actions come
// out. It opens no links and loads nothing; the driver does that, and reports. Links detect by themselves that the other side is
// silent.
//
//     SEARCHING ─► CONNECTING ─► JOINED ─► PREPARING ─► READY           REFUSED: asks again, slowly; or GIVEN_UP
//         ▲            │           │ ▲         │          │
//         └── back-off ┴── lost ───┴─┼─────────┴──────────┤
//                                    └──── epoch over ────┘
//
// The prepared shard does not belong to an epoch: it stays when links end, and a plan with the same work uses it at once. A
// preparation continues when its epoch ends, because the next plan usually wants the same.
//
// A plan is accepted only if kin_member_epoch is its epoch after the step. The actions of that step refer to the new plan, so the
// driver must already have it when it carries them out.
//
// The head, and devices that forward links to it (gateways), answer the same searches. The head is preferred: gateways are
// considered from the third search on, and only if the head does not answer within hold_ns. After a failed connection gateways
// are preferred, so that a head whose TCP port is blocked is reached through one.
//
// Owner: the device's driver. Thread: its loop's. Actions are valid until the next step.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "pure/proto/refusal.h"

enum {
    KIN_MEMBER_ACTIONS = 16,
    KIN_MEMBER_ADDRESS = 256, // bytes, including the NUL
    KIN_MEMBER_REASON = 1001, // bytes of a reason: KIN_PROTO_MAX_REASON and the NUL
    KIN_MEMBER_SENTENCE = 1536,
};

typedef struct kin_member kin_member;

typedef struct kin_member_options {
    char address[KIN_MEMBER_ADDRESS]; // of the head; "": search for it
    uint16_t port;
    uint64_t seed;         // for the jitter: different on every device
    uint64_t wait_min_ns;  // wait before the next try (250 ms), doubling each time
    uint64_t wait_max_ns;  // up to this (5 s); the actual wait is between half of it and all of it
    uint64_t connect_ns;   // from CONNECT to the head's answer (4 s: longer than the link's own limit)
    uint64_t steady_ns;    // after this time with a head, or once it was ready, waits start from the shortest again (5 s)
    uint64_t refused_ns;   // wait before asking a head again that refused (30 s)
    uint64_t duplicate_ns; // the same after a refusal for a duplicate identity: if the other process is dead, the head knows by
                           // then (2.5 s)
    uint64_t progress_ns;  // least time between two progress reports (250 ms)
    uint64_t back_ns;      // time for the previous member to connect, before this member opens that link (700 ms)
    uint64_t hold_ns;      // wait for a preferred answer to a search (300 ms)
    uint64_t relay_ns;     // time for a hop to open from either end, before it goes through the head (2 s)
} kin_member_options;

kin_member_options kin_member_options_default(void);

// NULL: out of memory.
kin_member *kin_member_new(const kin_member_options *options, kin_time now);
void kin_member_free(kin_member *member);

// ---- events

typedef enum kin_member_event_kind {
    KIN_MEMBER_TICK,     // time passes; at least ten times a second
    KIN_MEMBER_FOUND,    // name, address, port, is_gateway: a head, or a device that forwards links to it, answered a search
    KIN_MEMBER_ACCEPTED, // name: the head sent ACCEPT
    KIN_MEMBER_REFUSED,  // reason: the head sent REFUSE
    KIN_MEMBER_LOST,     // reason: the control link ended, or could not be opened
    KIN_MEMBER_PLAN,     // epoch, work, next_by_head, previous_by_head: PLAN arrived
    KIN_MEMBER_END,      // epoch: the epoch is over
    KIN_MEMBER_LEFT_OUT, // reason: the last plan has no layers for this device
    KIN_MEMBER_PROGRESS, // ticket
    KIN_MEMBER_PREPARED, // ticket
    KIN_MEMBER_PREPARE_FAILED,  // ticket, stage, reason: also after PREPARED, when weights of later windows fail to arrive
    KIN_MEMBER_COMPUTE_FAILED,  // epoch, stage, reason: a step could not be computed
    KIN_MEMBER_NEXT_OPENED,     // epoch: the ring link to the next member
    KIN_MEMBER_NEXT_CLOSED,     // epoch, reason: it ended, or could not be opened
    KIN_MEMBER_PREVIOUS_OPENED, // epoch: the ring link from the previous member, opened by either end
    KIN_MEMBER_PREVIOUS_CLOSED, // epoch, reason: it ended, or this end could not open it
} kin_member_event_kind;

typedef struct kin_member_event { // only the fields listed for the kind are read; pointers are valid for the call
    kin_member_event_kind kind;
    uint32_t epoch;
    uint32_t ticket;
    uint16_t port;
    const char *name, *address, *stage, *reason;
    uint64_t work; // hash of the part of a plan that determines the preparation (kin_proto_plan_work)
    bool is_gateway;
    bool next_by_head, previous_by_head; // this hop is known to go through the head
} kin_member_event;

// ---- actions

typedef enum kin_member_action_kind {
    KIN_MEMBER_SEARCH,        // ask the network for heads
    KIN_MEMBER_CONNECT,       // address, port: connect to the head, send OPEN
    KIN_MEMBER_DROP,          // text: close the control link, or stop connecting
    KIN_MEMBER_SEND_FACTS,    // send DEVICE
    KIN_MEMBER_PREPARE,       // ticket, epoch: prepare for the plan of this epoch; what was prepared before is no longer needed
    KIN_MEMBER_CANCEL,        // ticket: this preparation is no longer needed; its further reports are ignored
    KIN_MEMBER_REUSE,         // epoch: before the first step of this epoch, clear the KV cache of the prepared shard
    KIN_MEMBER_SEND_PROGRESS, // epoch: send the latest progress
    KIN_MEMBER_SEND_READY,    // epoch
    KIN_MEMBER_SEND_FAILED,   // epoch, stage, text
    KIN_MEMBER_CONNECT_NEXT,  // epoch, by_head: connect to the next member of this epoch's plan, or to the head in its place
    KIN_MEMBER_CONNECT_PREVIOUS, // epoch, by_head: the same to the previous member, which did not connect
    KIN_MEMBER_CLOSE_RING,       // epoch: close the ring links, or stop connecting
    KIN_MEMBER_SEND_RING,        // epoch, is_open, text: send NEXT with the state of the ring link
    KIN_MEMBER_GIVE_UP,          // text: no head will ever accept this device; end the program
    KIN_MEMBER_LOG,              // level, text
    KIN_MEMBER_STATUS,           // the state has changed
} kin_member_action_kind;

typedef struct kin_member_action {
    kin_member_action_kind kind;
    uint32_t epoch;
    uint32_t ticket;
    uint16_t port;
    bool is_open, by_head;
    kin_log_level level;
    char address[KIN_MEMBER_ADDRESS];
    char stage[64];
    char text[KIN_MEMBER_SENTENCE];
} kin_member_action;

typedef struct kin_member_actions {
    int n;
    kin_member_action at[KIN_MEMBER_ACTIONS];
} kin_member_actions;

// `now` never decreases. Events about epochs that are over and about cancelled tickets change nothing.
const kin_member_actions *kin_member_step(kin_member *member, kin_time now, const kin_member_event *event);

// ---- inspection

typedef enum kin_member_state {
    KIN_MEMBER_SEARCHING,
    KIN_MEMBER_CONNECTING,
    KIN_MEMBER_JOINED,    // known to the head; there is no plan
    KIN_MEMBER_PREPARING, // has a plan, is not ready for it
    KIN_MEMBER_READY,
    KIN_MEMBER_IS_REFUSED, // waits before it asks again
    KIN_MEMBER_GIVEN_UP,
} kin_member_state;

kin_member_state kin_member_state_now(const kin_member *member);
uint32_t kin_member_epoch(const kin_member *member); // 0: no epoch in force

// Writes one sentence for people. Returns buf.
const char *kin_member_doing(const kin_member *member, char *buf, size_t n);

// True if ring frames of this epoch are accepted. All others are dropped.
bool kin_member_accepts(const kin_member *member, uint32_t epoch);
