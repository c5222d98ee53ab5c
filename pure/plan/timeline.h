// The timeline, played: every block of every device computed in turn, every streamed unit read when the disk is free and the ring
// has room for it. Slower than the closed form of latency.h (some hundred microseconds), and closer where windows have few units
// or several disks are near their limit. For showing a plan; solvers use the closed form, and tests hold it against this.
//
// As in the engine: a layer is an attention block (one unit) and a feed-forward block (gate, up, down), the output is tiles of 16
// MiB; units stay or leave memory in the order of kin_residency_order; a block is computed when its units are there, and gives
// their room back afterwards. Layers count as equal here. Experts are not streamed: what they wait for is the closed form's.
#pragma once

#include "pure/plan/plan.h"

// Seconds of a token, once tokens take the same. Fails where kin_latency_pass does, and for want of memory.
int kin_timeline_play(const kin_facts *facts, const kin_plan *plan, double *tpot_s, kin_err *err);
