// Internals of kin_membership, shared by membership.c (devices), membership_epoch.c (epochs: plans, ring links, requests),
// membership_next.c (the plan being prepared) and membership_words.c (log lines and sentences).
#pragma once

#include "base/err.h"
#include "pure/proto/membership.h"

struct kin_membership {
    kin_membership_options options;
    kin_time now;
    kin_membership_device devices[KIN_MEMBERSHIP_DEVICES];
    kin_time rest_until[KIN_MEMBERSHIP_DEVICES]; // for devices that failed

    // The last plan. Its members remain the expected ones after its epoch has ended.
    bool has_plan;
    int n_members;
    uint8_t members[KIN_MEMBERSHIP_DEVICES]; // indices of devices, in ring order
    uint64_t works[KIN_MEMBERSHIP_DEVICES];  // hash of each member's work

    uint32_t epoch;
    bool in_force;      // the epoch has begun and has not ended
    bool is_up, was_up; // was_up: at any time before
    bool own_ring_open;
    kin_time own_ring_since;
    char own_ring_error[KIN_MEMBERSHIP_REASON];
    int n_requests; // in this epoch
    bool yields;    // the next plan has everything and waits for the running requests to end; no request begins until then
    kin_time last_request_at;
    uint32_t planned_by; // the question whose answer was the last plan

    // A better plan, whose members fetch what it needs while the epoch in force goes on.
    struct {
        uint32_t question; // 0: there is no such plan
        int n_members;
        uint8_t members[KIN_MEMBERSHIP_DEVICES];
        uint64_t works[KIN_MEMBERSHIP_DEVICES];
        bool has[KIN_MEMBERSHIP_DEVICES], own_has, rate_limited;
        bool is_soon;      // made without the slow devices
        kin_time begun_at; // when its members were told
        kin_time moved_at; // when a member's progress last changed
    } next;
    uint32_t late;          // bits of slow devices, which the next question leaves out because a better plan would wait for them
    uint32_t asked_now;     // the same for the last question; 0: it was about all devices
    uint32_t asked_soon;    // bits of the devices in the last question without slow ones; 0: none
    bool is_renumbered;     // after such a question the planner no longer knows the plan that is being prepared
    kin_time no_next_until; // until then the ring stays as it is, because a member could not prefetch; 0: it may change
    int n_next_failures;    // in a row

    // A ring link broke and the epoch is over; the lost device may become known in a moment. "": no such break, or it was
    // reported.
    char broken[KIN_MEMBERSHIP_SENTENCE];
    kin_time broken_at;
    bool broke_requests;
    char
        last_break[KIN_MEMBERSHIP_SENTENCE]; // why the last epoch ended, until the next one is up; "": not because of a ring link
    uint8_t broken_from, broken_to;          // indices of the devices at its ends, KIN_MEMBERSHIP_DEVICES for the head

    // Number of breaks of each hop, by its ends, since its ring last made progress.
    uint8_t n_breaks[KIN_MEMBERSHIP_DEVICES + 1][KIN_MEMBERSHIP_DEVICES + 1];
    uint64_t progress; // progress at that time
    // The same for accusations against the previous member, by accuser.
    uint8_t n_accusations[KIN_MEMBERSHIP_DEVICES];

    // A device that joins or leaves outdates the planner's last answer.
    uint32_t change, change_asked, change_answered;
    uint32_t question;
    bool asking, is_short;
    char short_reason[KIN_MEMBERSHIP_REASON];
    kin_time joined_at; // when a device last joined; initially the start
    kin_time ended_at;  // when the last epoch ended

    bool changed;                   // the inspected state changed in this step
    kin_membership_actions actions; // of the current step
};

// ---- membership_words.c: the caller fills in the fields of the kind

kin_membership_action *kin_membership_act(kin_membership *r, kin_membership_action_kind kind);
void kin_membership_log(kin_membership *r, kin_log_level level, const char *fmt, ...) KIN_PRINTF(3, 4);
// Writes "device 'tower' (stage 2 of 3)", or without the stage if it has none.
const char *kin_membership_whom(const kin_membership *r, int i, char buf[KIN_MEMBERSHIP_SENTENCE]);

// Reports each event in one line: if it ends running requests, they get the sentence, otherwise the log does. `sentence`: what
// happened to device i. Call before the epoch ends because of it.
void kin_membership_log_once(kin_membership *r, int i, kin_log_level level, const char *sentence);

// ---- membership_epoch.c

// True if the device is connected, its facts are known, and it is not left out for a while.
bool kin_membership_is_available(const kin_membership *r, int i);
int kin_membership_n_available(const kin_membership *r);
bool kin_membership_is_member(const kin_membership *r, int i);

// Ends the epoch because of `reason`; requests fail with it. Does nothing if no epoch is in force.
void kin_membership_end_epoch(kin_membership *r, const char *reason);
// Leaves the device out for a while, longer each time; ends an epoch that it is part of with `sentence`.
void kin_membership_leave_out(kin_membership *r, int i, const char *sentence);
uint64_t kin_membership_rest_ns(const kin_membership *r, int n_failures); // time to leave out a device after n_failures
void kin_membership_set_state(kin_membership *r, int i, kin_device_state state);

// ---- membership_next.c: the plan that is prepared beside the epoch in force

// The planner's answer is better than the plan in force: prepares it, unless that has begun already.
void kin_membership_prepare_next(kin_membership *r, const kin_membership_event *event, const uint8_t *members,
                                 const uint64_t *works);
void kin_membership_drop_next(kin_membership *r);
void kin_membership_end_soon(kin_membership *r);              // no better plan without the slow devices: plans with all again
void kin_membership_drop_next_with(kin_membership *r, int i); // if device i is part of it
void kin_membership_handle_prefetched(kin_membership *r, const kin_membership_event *event);
void kin_membership_check_next(kin_membership *r); // switches, speeds up or gives up when it is time

// ---- membership_epoch.c

kin_time kin_membership_later(kin_time from, uint64_t ns);
void kin_membership_begin_epoch(kin_membership *r, uint32_t question, int n, const uint8_t *members, const uint64_t *works);
void kin_membership_handle_plan(kin_membership *r, const kin_membership_event *event);
void kin_membership_handle_no_plan(kin_membership *r, const kin_membership_event *event);
void kin_membership_handle_ring(kin_membership *r, const kin_membership_event *event);
void kin_membership_handle_wrong(kin_membership *r, const kin_membership_event *event);
void kin_membership_handle_loss(kin_membership *r, const kin_membership_event *event); // of a step
void kin_membership_blame_sender(kin_membership *r, int i, const char *reason);        // device i received invalid data
void kin_membership_note_progress(kin_membership *r, uint64_t progress);
void kin_membership_handle_request(kin_membership *r, const kin_membership_event *event);
void kin_membership_check_ready(kin_membership *r); // brings the ring up when it is ready
void kin_membership_check_break(kin_membership *r); // reports a broken link when it is time
void kin_membership_check_ring(kin_membership *r);  // leaves out an end of a link that was closed for too long
void kin_membership_check_due(kin_membership *r);   // asks the planner when it is time
