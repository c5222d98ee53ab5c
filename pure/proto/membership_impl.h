// Inside of kin_membership, for membership.c (the devices), membership_epoch.c (epochs: plans, ring links, requests),
// membership_next.c (the plan that is prepared meanwhile) and membership_words.c (log lines and sentences).
#pragma once

#include "base/err.h"
#include "pure/proto/membership.h"

struct kin_membership {
    kin_membership_options options;
    kin_time now;
    kin_membership_device devices[KIN_MEMBERSHIP_DEVICES];
    kin_time rest_until[KIN_MEMBERSHIP_DEVICES]; // of those that failed

    // The last plan. Its members stay the expected ones after its epoch has ended.
    bool has_plan;
    int n_members;
    uint8_t members[KIN_MEMBERSHIP_DEVICES];  // indices of devices, in the order of the ring
    uint64_t windows[KIN_MEMBERSHIP_DEVICES]; // hash of what each has to do

    uint32_t epoch;
    bool in_force;      // the epoch has begun and not ended
    bool is_up, was_up; // was: ever
    bool own_ring_open;
    kin_time own_ring_since;
    char own_ring_error[KIN_MEMBERSHIP_REASON];
    int n_requests; // of this epoch
    bool yields;    // all is here that the next plan needs, and it waits for the end of the requests; none begins until then
    kin_time last_request_at;
    uint32_t planned_by; // the question whose answer was the last plan

    // A better plan, whose members fetch what it needs while the epoch in force goes on.
    struct {
        uint32_t question; // 0: there is none
        int n_members;
        uint8_t members[KIN_MEMBERSHIP_DEVICES];
        uint64_t windows[KIN_MEMBERSHIP_DEVICES];
        bool has[KIN_MEMBERSHIP_DEVICES], own_has, gently;
        bool is_soon;      // without those that are late
        kin_time begun_at; // when they were told
        kin_time moved_at; // when the progress of one of them was another one than before
    } next;
    uint32_t late;          // bits of devices that the next question leaves out, because a better plan would wait for them
    uint32_t asked_now;     // the same, of the last question; 0: it was about all
    uint32_t asked_soon;    // bits of the devices that the last question without late ones was about; 0: none
    bool is_renumbered;     // since such a question the planner knows nothing of the plan that is prepared
    kin_time no_next_until; // a member of the ring could not prefetch: until then the ring stays as it is; 0: it may change
    int n_next_failures;    // in a row

    // A ring link broke and the epoch is over; which device is lost may be known in a moment. "": no such break, or it was
    // reported.
    char broken[KIN_MEMBERSHIP_SENTENCE];
    kin_time broken_at;
    bool broke_requests;
    char last_break[KIN_MEMBERSHIP_SENTENCE]; // why the last epoch ended, while no other one is up; "": not by a ring link
    uint8_t broken_from, broken_to;           // the ends: indices of devices, KIN_MEMBERSHIP_DEVICES for the head

    // How often each hop broke, by its ends, since the ring last got anywhere.
    uint8_t n_breaks[KIN_MEMBERSHIP_DEVICES + 1][KIN_MEMBERSHIP_DEVICES + 1];
    uint64_t progress; // then
    // The same of what members said of the one before them, by who said it.
    uint8_t n_accusations[KIN_MEMBERSHIP_DEVICES];

    // A device that joins or leaves makes the planner's last answer outdated.
    uint32_t change, change_asked, change_answered;
    uint32_t question;
    bool asking, is_short;
    char short_reason[KIN_MEMBERSHIP_REASON];
    kin_time joined_at; // the last time that a device joined; at first the start
    kin_time ended_at;  // the end of the last epoch

    bool changed;                   // what can be inspected, in this step
    kin_membership_actions actions; // of the current step
};

// ---- membership_words.c: the caller fills what the kind needs

kin_membership_action *kin_membership_act(kin_membership *r, kin_membership_action_kind kind);
void kin_membership_log(kin_membership *r, kin_log_level level, const char *fmt, ...) KIN_PRINTF(3, 4);
// "device 'tower' (stage 2 of 3)", or without the stage where it has none.
const char *kin_membership_whom(const kin_membership *r, int i, char buf[KIN_MEMBERSHIP_SENTENCE]);

// Each event gives one line: if it ends running requests, they report the sentence, else the log does. `sentence`: what
// happened to device i, before the epoch ends for it.
void kin_membership_say_once(kin_membership *r, int i, kin_log_level level, const char *sentence);

// ---- membership_epoch.c

// Connected, with known facts, and not left out for a while.
bool kin_membership_is_available(const kin_membership *r, int i);
int kin_membership_n_available(const kin_membership *r);
bool kin_membership_is_member(const kin_membership *r, int i);

// The epoch is over because of `reason`; requests fail with it. Nothing happens when none is in force.
void kin_membership_end_epoch(kin_membership *r, const char *reason);
// The device is left out for a while, longer each time; an epoch that it is part of is over because of `sentence`.
void kin_membership_leave_out(kin_membership *r, int i, const char *sentence);
uint64_t kin_membership_rest_ns(const kin_membership *r, int n_failures); // how long that is, with so many before
void kin_membership_set_state(kin_membership *r, int i, kin_device_state state);

// ---- membership_next.c: the plan that is prepared beside the epoch in force

// The planner's answer is better than the plan in force: it is prepared from now on, or was already.
void kin_membership_prepare_next(kin_membership *r, const kin_membership_event *event, const uint8_t *members,
                                 const uint64_t *windows);
void kin_membership_drop_next(kin_membership *r);
void kin_membership_end_soon(
    kin_membership *r); // there is nothing better without those that are late: all are planned with again
void kin_membership_drop_next_with(kin_membership *r, int i); // if device i is part of it
void kin_membership_take_prefetched(kin_membership *r, const kin_membership_event *event);
void kin_membership_look_at_next(kin_membership *r); // is it time to switch, to hurry, to give it up?

// ---- membership_epoch.c

kin_time kin_membership_later(kin_time from, uint64_t ns);
void kin_membership_begin_epoch(kin_membership *r, uint32_t question, int n, const uint8_t *members, const uint64_t *windows);
void kin_membership_take_plan(kin_membership *r, const kin_membership_event *event);
void kin_membership_take_no_plan(kin_membership *r, const kin_membership_event *event);
void kin_membership_take_ring(kin_membership *r, const kin_membership_event *event);
void kin_membership_take_wrong(kin_membership *r, const kin_membership_event *event);
void kin_membership_take_loss(kin_membership *r, const kin_membership_event *event); // of a step
void kin_membership_blame_sender(kin_membership *r, int i, const char *reason);      // device i got what cannot be
void kin_membership_note_progress(kin_membership *r, uint64_t progress);
void kin_membership_take_request(kin_membership *r, const kin_membership_event *event);
void kin_membership_look_ready(kin_membership *r);    // is the ring up now?
void kin_membership_look_at_break(kin_membership *r); // is it time to say that a link broke?
void kin_membership_look_at_ring(kin_membership *r);  // has one of its links been closed for too long?
void kin_membership_look_due(kin_membership *r);      // is it time to ask the planner?
