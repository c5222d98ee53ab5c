// The head's port to a ring of other members: steps become frames for the first of them, and come back as frames from the last.
// How the frames travel is not known here: a function takes them, a queue brings them.
//
// Owner and thread: the head's. The queue is filled by another thread, which interrupts it when the ring breaks.
#pragma once

#include <stdatomic.h>

#include "ring/port.h"
#include "ring/steps.h"

typedef struct kin_wire_options {
    kin_steps steps;
    uint32_t epoch;
    kin_parcels *pool;    // borrowed, as the queue
    kin_parcel_queue *in; // what the last member sent; only frames of this epoch
    // Takes a frame to the first member; the parcel is its from then on.
    void (*out)(void *user, kin_parcel *parcel);
    atomic_bool *stop; // NULL, or: once true, waiting ends with an error
    // After the queue was interrupted: why, as a sentence.
    void (*broken)(void *user, kin_err *err);
    void *user;
} kin_wire_options;

enum { KIN_WIRE_FORGETS = 8 }; // most FORGETs on their way: one more waits until one is back

typedef struct kin_wire {
    kin_wire_options o;
    int n_forgets; // on their way
} kin_wire;

void kin_wire_init(kin_wire *wire, const kin_wire_options *options);

// Valid as long as the wire.
kin_port kin_wire_port(kin_wire *wire);
