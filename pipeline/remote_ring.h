// The transport to a ring of other members: steps leave as frames for the first of them, and come back as frames of the last.
// Frames leave through a function and arrive in a queue. What comes back is checked: steps in the order of sending, with rows
// that they can have, of finite numbers.
//
// Owner and thread: the head's. The queue is filled by another thread, which interrupts it when the ring breaks.
#pragma once

#include <stdatomic.h>

#include "pipeline/ring_transport.h"
#include "pipeline/steps.h"

typedef struct kin_remote_ring_options {
    kin_steps steps;
    uint32_t epoch;
    kin_message_pool *pool; // borrowed, as the queue
    kin_message_queue *in;  // what the last member sent; only frames of this epoch
    // Takes a frame to the first member; the buffer is its from then on.
    void (*out)(void *user, kin_message_buffer *buffer);
    atomic_bool *stop; // NULL, or: the user stops it; who sets it interrupts the queue, too
    // After the queue was interrupted: why, as a sentence.
    void (*broken)(void *user, kin_err *err);
    // What the last member sent cannot be. NULL: not asked.
    void (*wrong)(void *user, const char *reason);
    void *user;
} kin_remote_ring_options;

enum { KIN_REMOTE_RING_SENT = 4 * KIN_STEPS_IN_FLIGHT }; // frames that are with the others, those that were given up included

typedef struct kin_remote_ring {
    kin_remote_ring_options o;
    kin_hop sent[KIN_REMOTE_RING_SENT]; // in the order in which they come back
    int n_out[KIN_REMOTE_RING_SENT];    // rows that are wanted of each; -1: a request for pages
    int first, n;
} kin_remote_ring;

void kin_remote_ring_init(kin_remote_ring *ring, const kin_remote_ring_options *options);

// Valid as long as the ring.
kin_ring_transport kin_remote_ring_transport(kin_remote_ring *ring);
