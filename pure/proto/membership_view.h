// Inspection of a membership (pure/proto/membership.h), and what is said about it. Reads only. Thread: its owner's.
#pragma once

#include "pure/proto/device_events.h"

// Returns device i in [0, KIN_MEMBERSHIP_DEVICES); NULL if that place is empty.
const kin_membership_device *kin_membership_device_at(const kin_membership *membership, int i);

kin_membership_state kin_membership_state_now(const kin_membership *membership);
uint32_t kin_membership_epoch(const kin_membership *membership); // the last epoch, even if it is over
int kin_membership_n_requests(const kin_membership *membership);
bool kin_membership_yields(const kin_membership *membership); // a better plan waits until the running requests end

// The question whose answer is the last epoch's plan; and the one whose plan is being prepared beside it, 0: none.
uint32_t kin_membership_planned_by(const kin_membership *membership);
uint32_t kin_membership_prepares(const kin_membership *membership);

// Writes one sentence for people: "device 'tower' is gone (no answer for 1.5 s), waiting for it to come back". Returns buf.
const char *kin_membership_doing(const kin_membership *membership, char *buf, size_t n);

// True if the reason for the end of a link shows that it was connected, and then too slow: another port would not help.
bool kin_membership_was_reached(const char *reason);

// True if ring frames of this epoch are accepted. All others are dropped.
bool kin_membership_accepts(const kin_membership *membership, uint32_t epoch);

// Writes why two devices' traffic is relayed, and what helps: a better link if they reach each other too slowly, an open port if
// not at all. The ports are those on which they listen; reason may be "". Returns buf.
enum { KIN_MEMBERSHIP_APART_MAX = 1024 };
const char *kin_membership_apart(char *buf, size_t n, const char *a, unsigned port_a, const char *b, unsigned port_b,
                                 const char *reason);
