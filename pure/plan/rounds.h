// Rounds: computes the layers of every window from each member's layers per round.
//
// The layers of a model go round the ring in order: each member takes its window, k times, until none are left. If they do not
// divide, the last round is uneven: the remaining layers are shared in proportion to the windows (largest remainders, earlier
// members first), and a member may get none.
//
// Alternatively each member has a total number of layers, spread over k rounds as evenly as possible: if they do not divide, the
// first rounds have one more (as in kin_plan_windows).
//
// Pure: no I/O, no clock, no threads.
#pragma once

#include "base/err.h"
#include "pure/plan/window.h"

enum { KIN_ROUNDS_MAX_MEMBERS = 33 }; // 32 devices and the head

typedef struct kin_round_share { // one member's share
    int n_layers;                // in each full round, or in total; 0: a relay
    int n_gpu_layers;            // at most this many of these are on the GPU
} kin_round_share;

typedef struct kin_member_windows {
    kin_windows windows;
    int rounds[KIN_MAX_WINDOWS]; // round of each window
} kin_member_windows;

// Lays out shares // [n_members], in ring order, into out // [n_members]. Returns k, or KIN_FAIL with a sentence (no layers at
// all, too many rounds).
int kin_rounds_lay_out(const kin_round_share *shares, int n_members, int n_layer, kin_member_windows *out, kin_err *err);

// The same from totals over n_rounds rounds, which must add up to the model's layers. A member has at least one layer in each
// round, or none at all.
int kin_rounds_spread(const kin_round_share *shares, int n_members, int n_rounds, int n_layer, kin_member_windows *out,
                      kin_err *err);
