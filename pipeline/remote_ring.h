// The transport to a ring of other members: steps leave as frames to the first one, and come back as frames from the last one. A
// function sends frames, and a queue receives them. What comes back is checked: the order of sending, a possible number of rows,
// finite values.
//
// Owner and thread: the head's. Another thread fills the queue, and interrupts it when the ring breaks.
#pragma once

#include <stdatomic.h>

#include "pipeline/ring_transport.h"
#include "pipeline/steps.h"

typedef struct kin_remote_ring_options {
    kin_steps steps;
    uint32_t epoch;
    kin_message_pool *pool; // borrowed, like the queue
    kin_message_queue *in;  // frames of the last member; only those of this epoch are used
    // Sends a frame to the first member, and takes over the buffer.
    void (*out)(void *user, kin_message_buffer *buffer);
    atomic_bool *stop; // NULL, or set when the user stops the request; the setter also interrupts the queue
    // Called after the queue was interrupted: sets the reason as a sentence.
    void (*broken)(void *user, kin_err *err);
    // Called when the last member sent something invalid. NULL: not reported.
    void (*wrong)(void *user, const char *reason);
    void *user;
} kin_remote_ring_options;

enum { KIN_REMOTE_RING_SENT = 4 * KIN_STEPS_IN_FLIGHT }; // frames in flight, dropped ones included

typedef struct kin_remote_ring {
    kin_remote_ring_options o;
    kin_hop sent[KIN_REMOTE_RING_SENT]; // in the order in which they come back
    int n_out[KIN_REMOTE_RING_SENT];    // wanted rows of each; -1: a request for pages
    int first, n;
} kin_remote_ring;

void kin_remote_ring_init(kin_remote_ring *ring, const kin_remote_ring_options *options);

// Valid as long as the ring.
kin_ring_transport kin_remote_ring_transport(kin_remote_ring *ring);
