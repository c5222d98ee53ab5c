// Rounds: from "so many layers per round for each member" to the layers of every window.
//
// The layers of a model go round the ring in order: each member takes its window, k times, until none are left. Where they do not
// divide, the last round is uneven: what is left is shared in proportion to the windows (largest remainders, the earlier member
// first), and a member may get nothing in it.
//
// Or each member has so many layers in all, spread over k rounds as evenly as whole layers can be: where they do not divide,
// the first rounds have one more (as in kin_plan_windows).
//
// Pure: no I/O, no clock, no threads.
#pragma once

#include "base/err.h"
#include "pure/plan/window.h"

enum { KIN_ROUNDS_MAX_MEMBERS = 33 }; // 32 devices and the head

typedef struct kin_round_share { // of one member
    int n_layers;                // in each full round, or in all; 0: a relay
    int n_gpu_layers;            // of these, at most
} kin_round_share;

typedef struct kin_member_windows {
    kin_windows windows;
    int rounds[KIN_MAX_WINDOWS]; // the round of each window
} kin_member_windows;

// shares // [n_members] in the order of the ring -> out // [n_members]. Returns k, or KIN_FAIL with a sentence (no layers at all,
// more rounds than there can be).
int kin_rounds_lay_out(const kin_round_share *shares, int n_members, int n_layer, kin_member_windows *out, kin_err *err);

// The same from shares of all n_rounds rounds, which together are the model's layers. A member has at least one layer in each
// round, or none at all.
int kin_rounds_spread(const kin_round_share *shares, int n_members, int n_rounds, int n_layer, kin_member_windows *out,
                      kin_err *err);
