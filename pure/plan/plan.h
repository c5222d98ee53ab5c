// A plan: how many layers each device computes in each round, how many of them on its GPU, and the order of the ring. The one
// type for this: schedulers and rules make it, the planner predicts it, and cluster/assignment.h lays it out for the members.
//
// Device 0 is the head. The numbers of the others are those of the facts, or of the question, that the plan was made from.
//
// A token goes n_rounds times round the ring. A device's layers are spread over the rounds as evenly as possible: if they do not
// divide, the first rounds have one layer more, so later rounds are shorter. A device that computes at all has at least one layer
// in every round. Plans by rule say instead how many layers a device has in each full round; the last round then has what is
// left.
//
// A ring begins at the head, which has the embedding, and ends there, because the head also has the output layer. So the head
// computes last in each round: a hop from stop 0 to stop 1, the window of stop 1, ..., a hop back, the window of stop 0. Layers
// are handed out in this order, round by round.
//
// A ring may have relays: stops that only forward, between two neighbours without a link. A device that computes can also be a
// relay at another stop of the same ring.
//
// A group is one stop, and one device of the facts with these groups (group.h): its last.
#pragma once

#include <stdbool.h>

#include "pure/plan/facts.h"
#include "pure/plan/group.h"
#include "pure/plan/window.h"

enum { KIN_PLAN_MAX_STOPS = 4 * KIN_FACTS_MAX_DEVICES };

typedef struct kin_layer_share {
    int n_layer;     // over all rounds; 0: left out, or a relay
    int n_layer_gpu; // how many of these are on the GPU
    int n_cpu_moe;   // how many of those are divided: the CPU has their experts (window.h)
} kin_layer_share;

typedef struct kin_plan {
    int n_rounds;
    int n_stops; // per round; the head comes first. 1: a token crosses no network
    struct {
        int device;
        bool relay;
    } stops[KIN_PLAN_MAX_STOPS];
    kin_layer_share shares[KIN_FACTS_MAX_DEVICES];  // by device, over all rounds
    kin_layer_share windows[KIN_FACTS_MAX_DEVICES]; // by device, in each round but the last; 0: the share is spread evenly
    uint64_t memory[KIN_FACTS_MAX_DEVICES];         // by device: limit in bytes; 0: what it can spare
    kin_grouping groups;
    double tpot_s;  // from the closed form of latency.h
    double bound_s; // lower bound of TPOT in the closed form, as far as the solver could prove: <= tpot_s; 0: nothing proven
} kin_plan;

// Returns the number of items of round `round` when `n` items are spread over n_rounds rounds.
static inline int kin_plan_of_round(int n, int n_rounds, int round) {
    return n / n_rounds + (round < n % n_rounds);
}

// Returns the stop that computes as the i-th of a round (i from 0): 1, 2, ..., and last the head's, 0.
static inline int kin_plan_turn(const kin_plan *plan, int i) {
    return (i + 1) % plan->n_stops;
}

// Returns a device's layers of one round.
kin_layer_share kin_plan_share_of_round(const kin_plan *plan, int device, int round);

// Returns the window of a share's layers, all in one round, that begins at this layer.
kin_window kin_plan_window_at(int layer_begin, const kin_layer_share *share);

// Lists all windows of a device, one per round. The list is empty if the device does not compute.
void kin_plan_windows(const kin_plan *plan, int device, kin_windows *out);

// Completes a plan whose stops and windows are set: as many rounds as are needed for all layers. The last one may be uneven: what
// is left is shared in proportion to the windows (largest remainders, earlier stops first), and a device may get nothing. Stops
// without layers become relays. Fails if there are no layers at all, or too many rounds.
int kin_plan_fill_rounds(kin_plan *plan, int n_layer, kin_err *err);

// Returns the group that this device stands for, as the last one in it; NULL: none.
const kin_group *kin_plan_group_of(const kin_plan *plan, int device);
// True if the device is in the ring, as a member of a group too.
bool kin_plan_has(const kin_plan *plan, int device);

// Renumbers the devices // [n]: number i becomes to[i]; -1: it is gone. False: it is in the ring.
bool kin_plan_renumber(const kin_plan *plan, const int *to, int n, kin_plan *out);
// True if both plans give the same work to the same numbers.
bool kin_plan_is_same(const kin_plan *a, const kin_plan *b);

// Returns the set of devices that compute.
kin_device_set kin_plan_workers(const kin_plan *plan, int n_device);

// Checks that the plan can run as it stands: the layers add up, every worker is in the ring exactly once, and neighbours have
// links.
int kin_plan_check(const kin_plan *plan, const kin_facts *facts, kin_err *err);

// True if the candidate wins by the margin of the thesis: candidate < 0.95 current. Without it, noise would move layers.
bool kin_plan_is_worth_changing(double tpot_now_s, double tpot_candidate_s);
