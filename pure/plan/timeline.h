// The timeline, simulated: every block of every device computed in turn, every streamed weight block read when the disk is free
// and the ring has room for it. Slower than the closed form of latency.h (some hundred microseconds), and closer where windows
// have few weight blocks or several disks are near their limit. For showing a plan, and for choosing between some (playoff.c);
// solvers use the closed form, and tests hold it against this. prompt.h simulates prompts.
//
// Each member of a group has its own disk and ring; after attention and after the last block of a layer all wait for the last
// one.
//
// Blocks and weight blocks are those of simulate.h, the output is tiles; weight blocks stay or leave memory in the order of
// kin_residency_order. Waiting for experts is as in the closed form.
#pragma once

#include "pure/plan/latency.h"

// TPOT and TTFT in the closed forms of latency.h and prompt.h. Fails where these do.
int kin_timeline_closed(const kin_facts *facts, const kin_plan *plan, kin_prediction *out, kin_err *err);

// The same with simulated times: what is shown to people and compared with runs. Where the simulated token waits more, or less,
// than in the closed form, the difference is in exposed_s and disk_bound_s; the devices' parts are the closed form's.
int kin_timeline_predict(const kin_facts *facts, const kin_plan *plan, kin_prediction *out, kin_err *err);

// Seconds of a token, once tokens take the same. Fails where kin_latency_pass does, and for want of memory.
int kin_timeline_play(const kin_facts *facts, const kin_plan *plan, double *tpot_s, kin_err *err);

// The same of a step with the next token of each of n_texts, all after n_cached of their own.
int kin_timeline_play_texts(const kin_facts *facts, const kin_plan *plan, int n_texts, int n_cached, double *period_s,
                            kin_err *err);
