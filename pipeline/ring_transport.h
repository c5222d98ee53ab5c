// A ring transport: carries steps from the head to the other members of the ring and back. There are two: pipeline/loopback.h for
// a head alone, pipeline/remote_ring.h over the network.
//
// A step that leaves the head comes back at the end of the round, in the order of sending.
//
// Owner: its creator. Thread: the head's, for all functions.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/kv.h"

// A step in flight through one round.
typedef struct kin_hop {
    uint64_t step;
    int round;
    int n_rows; // rows of activations
    int n_embd; // numbers of each; 0: as many as rows of the model have at most (model/border.h)
    bool more;  // another chunk of the same prompt follows
    int n_good; // requests for pages only, with n_rows 0: number of first pages that all members so far have
} kin_hop;

typedef struct kin_ring_transport {
    void *user;
    // x // f32 [n_rows, hop->n_embd], borrowed for the call. batch: the step's, passed in every round.
    int (*send)(void *user, const kin_hop *hop, const kin_batch *batch, const float *x, kin_err *err);
    // Waits for the next step that comes back: x // f32 [n_rows, hop->n_embd], with room for a step's n_batch widest rows.
    // hop->step 0: none came, but the caller was woken to check for other work.
    int (*receive)(void *user, kin_hop *hop, float *x, kin_err *err);
    // True if receive would not wait.
    bool (*is_here)(void *user);
    // Drops the steps in flight: what comes back of them need not be kept.
    void (*drop)(void *user);
} kin_ring_transport;
