// The governor: a thread that checks the machine's memory ten times a second and adjusts the budget for weights, so that other
// programs get what they need within a second and the resident set grows again when they finish.
//
// The budget is the memory this process could have if it held none yet: available memory plus what the process holds itself (file
// pages count as available, since the OS reclaims them when another program needs memory), minus a reserve, capped by the user's
// --memory, minus everything that is not weights (KV cache, buffers): the planned size, or the measured size if that is larger.
//
// Owner: one shard. Threads: its own; state may be read from any.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct kin_governor kin_governor;

typedef struct kin_governor_options {
    uint64_t memory;      // the user's cap on everything; 0: none
    uint64_t fixed;       // bytes planned for everything but weights
    uint64_t budget;      // initial budget for weights
    uint64_t most_useful; // a larger budget has no effect
    // Applies a new budget, and returns the bytes of weights in memory that the OS cannot reclaim, without rings; called from the
    // governor's thread.
    void (*set)(void *user, uint64_t budget);
    uint64_t (*anonymous)(void *user);
    void *user;
} kin_governor_options;

int kin_governor_start(kin_governor **out, const kin_governor_options *options, kin_err *err);
void kin_governor_stop(kin_governor *governor);

uint64_t kin_governor_budget(const kin_governor *governor); // the current budget

// Returns the most memory this process may use now, limited by the machine and the user's cap (0: no cap): about what a governor
// will find when all of it is in use.
uint64_t kin_governor_room(uint64_t memory);

// Returns what this process holds now that the OS cannot reclaim, including kernel memory on its behalf, with or without the
// rings that weights are streamed through.
uint64_t kin_governor_held(bool with_rings);
