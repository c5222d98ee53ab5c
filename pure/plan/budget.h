// How the memory budget for weights follows the machine: down at once, up with patience.
//
// Every look at the machine gives the room there is for weights now. Less than the budget: others need memory, give it.
// More: wait until that has lasted, then take no more than was there all the time; small gains are not worth moving for.
//
// Pure: time is an argument.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct kin_budget {
    uint64_t bytes;       // in force
    uint64_t room_min;    // least room seen since `since_ms`
    uint64_t since_ms;    // when room began to be enough to grow, 0: it is not
    uint64_t most_useful; // more than this is of no use
} kin_budget;

enum {
    KIN_BUDGET_GROW_AFTER_MS = 2000,
    KIN_BUDGET_GROW_STEP = 16 << 20, // bytes, the least gain worth moving for
};

// One look: `room` bytes at `now_ms` (> 0, never decreasing). Returns the budget in force from now on.
uint64_t kin_budget_step(kin_budget *budget, uint64_t now_ms, uint64_t room);
