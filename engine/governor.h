// The governor: a thread that looks at the machine's memory ten times a second and moves the budget for weights, so that other
// programs get what they need within a second and the resident set grows back when they are done.
//
// What it hands out is the memory that this process could have if it had none yet: what is available plus what it holds itself
// (file pages count as available: they are given back when another program needs them), less a reserve, at most the user's
// --memory, less what all but weights takes (KV cache, buffers): as planned, or what it is found to take if that is more.
//
// Owner: one shard. Threads: its own; state from any.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct kin_governor kin_governor;

typedef struct kin_governor_options {
    uint64_t memory;      // the user's cap on everything, 0: none
    uint64_t fixed;       // of that, bytes planned for all but weights
    uint64_t anonymous;   // weights in memory that the OS cannot take back
    uint64_t budget;      // for weights, in force at the start
    uint64_t most_useful; // a budget beyond this is of no use
    // Puts a new budget in force; called from the governor's thread.
    void (*set)(void *user, uint64_t budget);
    void *user;
} kin_governor_options;

int kin_governor_start(kin_governor **out, const kin_governor_options *options, kin_err *err);
void kin_governor_stop(kin_governor *governor);

uint64_t kin_governor_budget(const kin_governor *governor); // in force now

// Memory that this process may have at most now, by the machine and the user's cap together (0: no cap): about what a governor
// will find when all of it is in use.
uint64_t kin_governor_room(uint64_t memory);

// What this process holds now and the OS cannot take back, also what the OS has for it, with or without the rings that weights
// stream through.
uint64_t kin_governor_held(bool with_rings);
