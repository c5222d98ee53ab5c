// The memory budget for weights: it shrinks immediately and grows after a delay.
//
// Each sample of the machine's memory gives the current room for weights. If that is less than the budget, other programs need
// memory, and the budget shrinks at once. If it is more, the budget grows after this has lasted, to the least room seen in that
// time; small gains are ignored.
//
// Pure: time and memory are arguments.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct kin_budget {
    uint64_t bytes;       // in force
    uint64_t room_min;    // least room seen since `since_ms`
    uint64_t since_ms;    // when room became sufficient to grow; 0: it is not
    uint64_t most_useful; // more than this is useless
} kin_budget;

enum {
    KIN_BUDGET_GROW_AFTER_MS = 2000,
    KIN_BUDGET_GROW_STEP = 16 << 20, // bytes, the smallest gain worth a change
};

// One sample of a process's memory. All in bytes.
typedef struct kin_budget_memory {
    uint64_t total;       // of the machine, or the process's limit
    uint64_t available;   // can be taken without evicting memory of other programs
    uint64_t own;         // held by the process, and not reclaimable by the OS
    uint64_t own_weights; // the weights in `own`: in the ring, and in private memory
    uint64_t resident;    // resident memory of the process, including mapped files
    uint64_t cap;         // limit on everything; 0: none
    uint64_t fixed;       // planned for everything except weights
} kin_budget_memory;

enum {
    KIN_BUDGET_PROGRAM = 4 << 20, // pages of the program and its libraries that are always in use
    // Memory kept free, so that processes do not evict each other's pages: total / SHARE, at least LEAST.
    KIN_BUDGET_RESERVE_SHARE = 50,
    KIN_BUDGET_RESERVE_LEAST = 8 << 20,
    // Memory that the kernel uses in addition, 1 MB to 3 MB measured in cgroups of 200 to 700 MB: 8 bytes of page tables and
    // about as much of its index of file pages for every 4 KiB that are still to come; also stacks and sockets that do not exist
    // yet.
    KIN_BUDGET_KERNEL_SHARE = 256,
    KIN_BUDGET_KERNEL_START = 2 << 20,
};

// Returns the memory that a process may use in total, for weights and everything else, when it starts.
uint64_t kin_budget_start(const kin_budget_memory *memory);

// Returns how much of that may be weights while it runs. The rest takes what was planned, or what it really uses if that is more.
uint64_t kin_budget_room(const kin_budget_memory *memory);

// Processes one sample: `room` bytes at `now_ms` (> 0, never decreasing). Returns the budget in force from now on.
uint64_t kin_budget_step(kin_budget *budget, uint64_t now_ms, uint64_t room);
