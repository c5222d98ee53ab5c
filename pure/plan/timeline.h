// The timeline, simulated: every block of every device is computed in turn, and every streamed weight block is read when the disk
// is free and the ring has room for it. Slower than the closed form of latency.h (some hundred microseconds), and more accurate
// if windows have few weight blocks or several disks are near their limit. It is used to show a plan, and to choose between a few
// (playoff.c); solvers use the closed form, which tests compare with this. prompt.h simulates prompts.
//
// Each member of a group has its own disk and ring; after attention and after the last block of a layer, all members wait for the
// last one.
//
// Blocks and weight blocks are those of simulate.h; the output is divided into tiles. Weight blocks leave memory in the order of
// kin_residency_order. The wait for experts is that of the closed form.
#pragma once

#include "pure/plan/latency.h"

// Predicts TPOT and TTFT with the closed forms of latency.h and prompt.h. Fails if one of those fails.
int kin_timeline_closed(const kin_facts *facts, const kin_plan *plan, kin_prediction *out, kin_err *err);

// The same with simulated times, as shown to people and compared with runs. If the simulated token waits longer or less than in
// the closed form, the difference is in exposed_s and disk_bound_s; the devices' values are those of the closed form.
int kin_timeline_predict(const kin_facts *facts, const kin_plan *plan, kin_prediction *out, kin_err *err);

// Simulates tokens until all take the same time, and returns that time in seconds. Fails if kin_latency_pass fails or if out of
// memory.
int kin_timeline_play(const kin_facts *facts, const kin_plan *plan, double *tpot_s, kin_err *err);

// The same for a step with the next token of each of n_sequences sequences, each after n_cached tokens.
int kin_timeline_play_sequences(const kin_facts *facts, const kin_plan *plan, int n_sequences, int n_cached, double *period_s,
                                kin_err *err);
