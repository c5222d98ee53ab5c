// A ring transport: how the head sends steps to the other members of the ring and gets them back. Two of them:
// pipeline/loopback.h for a head on its own, pipeline/remote_ring.h over the network.
//
// A step that leaves the head comes back at the end of the round, in the order of sending.
//
// Owner: who made it. Thread: the head's, for all functions.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/kv.h"

// A step in flight through one round.
typedef struct kin_hop {
    uint64_t step;
    int round;
    int n_rows; // of its activations
    bool more;  // another chunk of the same prompt follows
    int n_good; // only for a request for pages, where n_rows is 0: so many of its first ones all members so far have
} kin_hop;

typedef struct kin_ring_transport {
    void *user;
    // x // f32 [n_rows, n_embd], borrowed for the call. batch: the step's, with every round.
    int (*send)(void *user, const kin_hop *hop, const kin_batch *batch, const float *x, kin_err *err);
    // Waits for the next one that comes back: x // f32 [n_rows, n_embd], room for a step's n_batch rows. hop->step 0: none has,
    // but the one who waits is to look at what else there is to do.
    int (*receive)(void *user, kin_hop *hop, float *x, kin_err *err);
    // Whether receive would not wait.
    bool (*is_here)(void *user);
    // The steps in flight are given up: what comes back of them need not be kept.
    void (*drop)(void *user);
} kin_ring_transport;
