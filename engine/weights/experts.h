// Connects the cache of experts (engine/experts.h) to the weights: where experts are in files, how much memory they get.
// Threads: see data.h.
#pragma once

#include "engine/weights/data.h"

// True if experts that do not fit come from the cache of experts: on the CPU, by kin's kernels.
bool kin_weights_caches_experts(const kin_weights *w);

// Divides a budget between experts and the other weights. Returns the experts' part; 0: they have none of their own.
uint64_t kin_weights_experts_budget(const kin_weights *w, uint64_t budget);

// Opens the cache of experts once they are short, and sometimes saves their counts. Call between two runs. If the cache cannot be
// opened, the OS pages experts.
void kin_weights_begin_experts(kin_weights *w);

// Saves their counts. Call before the streamer is closed.
void kin_weights_end_experts(kin_weights *w);
