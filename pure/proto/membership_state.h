// The state of a membership, its actions and log lines, and predicates. Shared by its modules, lowest first:
//
//   membership_view    inspection, sentences for people
//   membership_end     ends of epochs, of better plans, of a device's part
//   membership_begin   an epoch begins; its ring comes up
//   membership_next    the plan that is prepared beside the epoch in force
//   membership_epoch   the planner, ring links, faults, requests
//   membership         devices, and the step
//
// Owner and thread: the membership's.
#pragma once

#include "base/err.h"
#include "pure/proto/device_events.h"

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

// Adds an action to the current step; the caller fills in the fields of its kind.
kin_membership_action *kin_membership_act(kin_membership *r, kin_membership_action_kind kind);
void kin_membership_log(kin_membership *r, kin_log_level level, const char *fmt, ...) KIN_PRINTF(3, 4);
// Writes "device 'tower' (stage 2 of 3)", or without the stage if it has none.
const char *kin_membership_whom(const kin_membership *r, int i, char buf[KIN_MEMBERSHIP_SENTENCE]);

// True if the device is connected, its facts are known, and it is not left out for a while.
bool kin_membership_is_available(const kin_membership *r, int i);
// Returns the number of available devices.
int kin_membership_n_available(const kin_membership *r);
// True if the device is a member of the last plan.
bool kin_membership_is_member(const kin_membership *r, int i);
// Changes the state of device i, from now on; forgets its progress.
void kin_membership_set_state(kin_membership *r, int i, kin_device_state state);
// Returns the time ns later; the end of time if that overflows.
kin_time kin_membership_later(kin_time from, uint64_t ns);
