// Events: what this machine did when, for a timeline: computing, waiting, reading from the disk, sending.
//
// Several threads add, one takes. Bounded: what finds it full is dropped. While it is off nothing is kept, and adding costs
// nothing.
//
// Owner: a driver (ring/join.c, or a timeline for the head's own). Thread: any for all but open and close. NULL is allowed
// everywhere: a recorder that is always off.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"
#include "engine/busy.h"
#include "pure/proto/message.h"

enum { KIN_EVENTS_MAX = 4096 };

typedef struct kin_events kin_events;

int kin_events_open(kin_events **out, kin_err *err); // off
void kin_events_close(kin_events *events);

// Turned off or on, it forgets what it has.
void kin_events_turn(kin_events *events, bool on);
bool kin_events_are_on(const kin_events *events);

void kin_events_add(kin_events *events, kin_proto_event_kind kind, uint64_t step, int round, kin_time begin, kin_time end);

// Computing, but for the pauses in it, in order: those are waiting, for the disk.
void kin_events_add_compute(kin_events *events, uint64_t step, int round, kin_time begin, kin_time end,
                            const kin_interval *pauses, size_t n_pauses);

// Of the disk.
void kin_events_add_disk(kin_events *events, const kin_interval *intervals, size_t n);

// The oldest ones // [n_max]; returns how many.
int kin_events_take(kin_events *events, kin_proto_event *out, int n_max);
