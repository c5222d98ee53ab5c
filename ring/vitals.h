// Vitals: what a device knows of its own work, for whoever wants to see it: counters for STATUS, and events for a timeline.
//
// The computing thread tells what it does; a few times a second that is published, and the loop's thread makes messages of it.
//
// Owner: ring/join.c. Thread: as each part says.
#pragma once

#include "ring/events.h"
#include "ring/parcel.h"
#include "ring/seat.h"

typedef struct kin_vitals kin_vitals;

int kin_vitals_open(kin_vitals **out, kin_err *err);
void kin_vitals_close(kin_vitals *vitals); // NULL is allowed

kin_events *kin_vitals_events(kin_vitals *vitals); // off at first

// ---- the computing thread

// It waited from `begun` until now; parcel: what came, NULL: nothing.
void kin_vitals_waited(kin_vitals *vitals, kin_time begun, const kin_parcel *parcel);

// It computes what the parcel wants, and has done so.
void kin_vitals_begin(kin_vitals *vitals, const kin_parcel *parcel, const kin_seat *seat);
void kin_vitals_end(kin_vitals *vitals, kin_seat *seat);

// Another seat from now on: what a token took on the one before counts no more.
void kin_vitals_take_seat(kin_vitals *vitals);

// At least ten times a second. seat: NULL: none.
void kin_vitals_publish(kin_vitals *vitals, kin_seat *seat, bool is_computing);

// ---- any thread

// All of it that is counted here: not what the network and the membership know. is_computing: a step is here.
kin_proto_status kin_vitals_status(kin_vitals *vitals, bool *is_computing);
