// The devices of a head, the events about them, and the actions that follow (pure/proto/membership.h). Plain data.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/log.h"
#include "pure/proto/id.h"
#include "pure/proto/refusal.h"

enum {
    KIN_MEMBERSHIP_DEVICES = 32,    // most at a time
    KIN_MEMBERSHIP_ACTIONS = 192,   // more than any step produces: 5 per device and a few more
    KIN_MEMBERSHIP_NAME = 64,       // bytes of a name, including the NUL
    KIN_MEMBERSHIP_REASON = 1001,   // bytes of a reason: KIN_PROTO_MAX_REASON and the NUL
    KIN_MEMBERSHIP_SENTENCE = 1536, // bytes of a reason and of the device's name
    KIN_MEMBERSHIP_QUIET_S = 30,    // that a device is gone is not reported again for this long: a loose cable is one message
};

#define KIN_MEMBERSHIP_FOREVER UINT64_MAX
#define KIN_MEMBERSHIP_OWN UINT32_MAX // in place of a link: the head's own link to the first member

typedef struct kin_membership kin_membership;

typedef struct kin_membership_options {
    kin_proto_id id;                // id of the head
    char name[KIN_MEMBERSHIP_NAME]; // name of the head
    uint32_t features;              // bits that a device must have
    kin_proto_hash model;           // content hash of the model; zeros: not known yet, see KIN_MEMBERSHIP_MODEL
    uint32_t epoch_first;           // newer than all epochs of an earlier run of this head (pure/proto/epoch.h)
    int n_expected;                 // devices that are expected to join; 0: not known
    bool dry_run;                   // dry run: devices get no work, so it is not announced that the head serves alone
    uint64_t plan_wait_ns;     // quiet time after a device joined, before the first plan: devices fetch in the meantime (250 ms)
    uint64_t join_wait_ns;     // the same before the first plan may be used, and before the plan in force is reconsidered (1 s)
    uint64_t lost_wait_ns;     // wait for a lost member to come back, before planning without it (0.3 s)
    uint64_t facts_wait_ns;    // from ACCEPT to DEVICE (3 s)
    uint64_t break_wait_ns;    // from a broken ring link to reporting it: usually a device is lost, and that is reported instead
                               // (200 ms, < spacing_ns)
    uint64_t spacing_ns;       // least time from the end of an epoch to the next (250 ms): one break, one new plan
    uint64_t ring_wait_ns;     // for a ring link to open, before one of its ends is left out (8 s)
    uint64_t prefetch_wait_ns; // limit without progress of a prefetching device; then that plan is dropped (90 s: a fetch gives
                               // up after 60 s)
    uint64_t soon_ns;          // if a device needs longer than this for a better plan, one without it comes first (60 s);
    uint64_t late_ns;          // decided this long after it began to fetch (10 s)
    uint64_t gentle_ns;        // time after the last request until devices may prefetch at full speed (1 s)
    uint64_t rest_min_ns;      // a device that failed is left out for this long (2 s), doubling each time
    uint64_t rest_max_ns;      // up to this (60 s)
} kin_membership_options;

// ---- events

typedef struct kin_membership_hello {
    kin_proto_id id;
    uint64_t run; // run of its process
    const char *name;
    uint32_t features;
} kin_membership_hello;

typedef struct kin_membership_stage {
    kin_proto_id id;
    uint64_t work; // hash of the member's work (kin_proto_plan_work), which the membership only compares
} kin_membership_stage;

typedef enum kin_membership_event_kind {
    KIN_MEMBERSHIP_TICK,     // time passes; at least ten times a second
    KIN_MEMBERSHIP_MODEL,    // model: the head has hashed its file
    KIN_MEMBERSHIP_JOINS,    // link, hello: OPEN arrived on a new control link
    KIN_MEMBERSHIP_FACTS,    // link, facts
    KIN_MEMBERSHIP_PROGRESS, // link, epoch, progress
    KIN_MEMBERSHIP_READY,    // link, epoch
    KIN_MEMBERSHIP_FAILED,   // link, epoch, stage, reason, progress_made. Stage "receiving": the previous member sent it invalid
                             // data
    KIN_MEMBERSHIP_RING_OPENED, // link, epoch: this member's link to the next one; KIN_MEMBERSHIP_OWN: the head's link to the
                                // first
    KIN_MEMBERSHIP_RING_CLOSED, // link, epoch, reason, progress_made
    KIN_MEMBERSHIP_WRONG,       // epoch, reason, progress_made: the last member sent invalid data to the head
    KIN_MEMBERSHIP_LOSES,       // epoch, loser, is_hop, reason, progress_made: a step did not come back
    KIN_MEMBERSHIP_LOST,        // link, reason: the control link ended
    KIN_MEMBERSHIP_LEFT,        // link, reason: the device announced that it stops; the next plan does not wait for it
    KIN_MEMBERSHIP_PREFETCHED,  // link or KIN_MEMBERSHIP_OWN, question, is_here, progress, reason: NULL, or why it failed
    KIN_MEMBERSHIP_PLANNED,     // question, stages
    KIN_MEMBERSHIP_NO_PLAN,     // question, reason: the model does not fit on the available devices
    KIN_MEMBERSHIP_DRIFT,       // the planner would now answer differently: it is asked again
    KIN_MEMBERSHIP_BEGINS,      // a request begins
    KIN_MEMBERSHIP_ENDS,        // epoch in which the request began
    KIN_MEMBERSHIP_ABORTED,     // epoch: the user cancelled the request
} kin_membership_event_kind;

typedef struct kin_membership_event { // only the fields listed for the kind are read; pointers are valid for the call
    kin_membership_event_kind kind;
    uint32_t link; // any number that no other control link has now
    uint32_t epoch;
    uint32_t question;
    uint64_t progress_made; // grows as rings compute; a hop that keeps breaking without growth loses one of its ends
    bool is_here;           // everything that was to be prefetched
    int loser;              // the member that holds the lost step, by its index in ring order
    bool is_hop;            // the step was lost on the hop from the previous member to `loser`; n_members is then the head
    const kin_membership_hello *hello;
    const kin_proto_device *facts;
    const kin_proto_progress *progress;
    const kin_membership_stage *stages; // [n_stages] of the plan, in ring order, without the head
    int n_stages;
    const kin_proto_hash *model;
    const char *stage, *reason; // as sent by the device
} kin_membership_event;

// ---- actions

typedef enum kin_membership_action_kind {
    KIN_MEMBERSHIP_ACCEPT,     // link: send ACCEPT
    KIN_MEMBERSHIP_REFUSE,     // link, text: send REFUSE and close; the membership no longer knows the link
    KIN_MEMBERSHIP_DROP,       // link, text: close; the membership no longer knows the link
    KIN_MEMBERSHIP_ASK,        // question, devices: ask the planner; answers to older questions are ignored
    KIN_MEMBERSHIP_PREFETCH,   // link, device, question, rate_limited: send PREFETCH with that question's plan; link
                               // KIN_MEMBERSHIP_OWN: the head's own part
    KIN_MEMBERSHIP_SEND_PLAN,  // link, device, epoch
    KIN_MEMBERSHIP_SEND_END,   // link, device, epoch, text: send END; the device closes its ring link, keeps its shard and waits
    KIN_MEMBERSHIP_OPEN_RING,  // device, epoch: connect to the first member, repeatedly until the epoch ends
    KIN_MEMBERSHIP_CLOSE_RING, // epoch: close that link
    KIN_MEMBERSHIP_UP,         // epoch: requests may begin
    KIN_MEMBERSHIP_FAIL,       // epoch, text: end all running requests with this sentence
    KIN_MEMBERSHIP_LOG,        // level, text
    KIN_MEMBERSHIP_STATUS,     // the results of the inspection functions have changed
} kin_membership_action_kind;

typedef struct kin_membership_action {
    kin_membership_action_kind kind;
    uint32_t link;
    uint32_t epoch;
    uint32_t question;
    int device; // index for kin_membership_device_at
    bool rate_limited;
    int n_devices;
    uint8_t devices[KIN_MEMBERSHIP_DEVICES]; // indices of the available devices
    kin_log_level level;
    char text[KIN_MEMBERSHIP_SENTENCE];
} kin_membership_action;

typedef struct kin_membership_actions {
    int n;
    kin_membership_action at[KIN_MEMBERSHIP_ACTIONS];
} kin_membership_actions;

// ---- devices

typedef enum kin_device_state {
    KIN_DEVICE_NONE,      // an empty place
    KIN_DEVICE_GREETED,   // accepted; its facts are not known yet
    KIN_DEVICE_JOINED,    // joined, without work
    KIN_DEVICE_PREPARING, // has a plan, is not ready for it
    KIN_DEVICE_READY,
    KIN_DEVICE_FAILED, // connected, but left out for a while: it failed, or a ring link to it did not open
    KIN_DEVICE_LOST,
    KIN_DEVICE_LEFT,
} kin_device_state;

typedef struct kin_membership_device {
    kin_device_state state;
    kin_proto_id id;
    uint64_t run;
    uint32_t features;              // KIN_PROTO_INEXACT, KIN_PROTO_NO_SLICES
    char name[KIN_MEMBERSHIP_NAME]; // unique, and different from the head's
    uint32_t link;
    kin_proto_device facts;
    kin_proto_progress progress, prefetch;  // prefetch: for a pending better plan; total 0: none
    bool ring_open;                         // its link to the next member is open
    kin_time ring_since;                    // when the epoch began, or when that link broke
    char ring_error[KIN_MEMBERSHIP_REASON]; // why it is not open; "": not known
    int stage;                              // 1-based place in the ring of this epoch; 0: none
    kin_time since;                         // in this state
    int n_failures;                         // since the last successful request
    char last_error[KIN_MEMBERSHIP_REASON];
    kin_time loss_logged_at; // when it was last reported that it is gone; 0: never
    bool loss_is_unlogged;   // it is gone again, soon after that
} kin_membership_device;

typedef enum kin_membership_state {
    KIN_MEMBERSHIP_GATHERING, // waiting for a device to join or to come back, or for the planner
    KIN_MEMBERSHIP_SHORT,     // the planner found that the model does not fit on the available devices
    KIN_MEMBERSHIP_PREPARING, // an epoch has begun
    KIN_MEMBERSHIP_SERVING,   // the ring is up
} kin_membership_state;
