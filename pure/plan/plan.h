// A plan: which device computes how many layers in each round, how many of them on its GPU, and in which order the ring goes.
//
// A token goes n_rounds times round the ring. A device's layers are spread over the rounds as evenly as whole layers can be;
// where they do not divide, the first rounds have one more, so the last rounds are shorter. A device that computes at all has at
// least one layer in every round.
//
// A ring begins at the head, which has the embedding, and ends there, because it has the output layer too. So in each round the
// head computes last: a hop from stop 0 to stop 1, the window of stop 1, ..., a hop back, the window of stop 0. Layers are handed
// out in this order, round by round.
//
// A ring may have relays: stops that only forward, where two neighbours have no link. A device that computes can be a relay at
// another stop of the same ring.
#pragma once

#include <stdbool.h>

#include "pure/plan/facts.h"
#include "pure/plan/window.h"

enum { KIN_PLAN_MAX_STOPS = 4 * KIN_FACTS_MAX_DEVICES };

typedef struct kin_layer_share {
    int n_layer;     // over all rounds, 0: left out, or a relay
    int n_layer_gpu; // of these on the GPU
} kin_layer_share;

typedef struct kin_plan {
    int n_rounds;
    int n_stops; // of one round; the head comes first. 1: no network in the path of a token
    struct {
        int device;
        bool relay;
    } stops[KIN_PLAN_MAX_STOPS];
    kin_layer_share shares[KIN_FACTS_MAX_DEVICES]; // by device
    double tpot_s;                                 // by the closed form of latency.h
    double bound_s; // no plan has less in the closed form, as far as the solver could prove: <= tpot_s; 0: it proves nothing
} kin_plan;

// How many of `n` things fall into a round.
static inline int kin_plan_of_round(int n, int n_rounds, int round) {
    return n / n_rounds + (round < n % n_rounds);
}

// The stop that computes as the i-th in a round: 1, 2, ..., and the head's, 0.
static inline int kin_plan_turn(const kin_plan *plan, int i) {
    return (i + 1) % plan->n_stops;
}

// The window of the device at `stop` in `round`; empty (layer_begin == layer_end) at relays.
kin_window kin_plan_window(const kin_plan *plan, int round, int stop);

// All windows of a device, one for each round; none where it does not compute.
void kin_plan_windows(const kin_plan *plan, int device, kin_windows *out);

// The devices that compute.
kin_device_set kin_plan_workers(const kin_plan *plan, int n_device);

// The plan can be run as it stands: layers add up, every worker is in the ring exactly once, and neighbours can talk.
int kin_plan_check(const kin_plan *plan, const kin_facts *facts, kin_err *err);

// A new plan must win by a margin, or noise would move layers about: the thesis's criterion, candidate < 0.95 current.
bool kin_plan_is_worth_changing(double tpot_now_s, double tpot_candidate_s);
