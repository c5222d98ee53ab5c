// How the memory budget for weights follows the machine: it shrinks at once and grows with patience.
//
// Every look at the machine gives the room for weights at that moment. If it is less than the budget, other programs need
// memory: the budget shrinks at once. If it is more, wait until that has lasted, then grow to the least room of that time;
// small gains are ignored.
//
// Pure: time and memory are arguments.
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

// The memory of a process, at one look. All in bytes.
typedef struct kin_budget_memory {
    uint64_t total;       // of the machine, or the limit that the process is under
    uint64_t available;   // could be taken without evicting memory of other programs
    uint64_t own;         // what the process holds and the OS cannot take back
    uint64_t own_weights; // of that, weights: in the ring, and those in memory of our own
    uint64_t resident;    // of the process, with mapped files
    uint64_t cap;         // on everything, 0: none
    uint64_t fixed;       // planned for everything but weights
} kin_budget_memory;

enum {
    KIN_BUDGET_PROGRAM = 4 << 20, // pages of the program and its libraries that are always in use
    // Kept free, so that processes do not evict each other's pages: a share of the total, at least so much.
    KIN_BUDGET_RESERVE_SHARE = 50,
    KIN_BUDGET_RESERVE_LEAST = 8 << 20,
    // What the kernel takes beside what a process gets, in cgroups of 200 to 700 MB 1 MB to 3 MB: 8 bytes of page tables and
    // about as much of its index of file pages for every 4 KiB that are still to come; and stacks and sockets, before they are
    // there.
    KIN_BUDGET_KERNEL_SHARE = 256,
    KIN_BUDGET_KERNEL_START = 2 << 20,
};

// What a process may have in all, weights and the rest, when it begins.
uint64_t kin_budget_start(const kin_budget_memory *memory);

// What of it may be weights, while it runs. What the rest takes is what was planned, or more if it turns out to be.
uint64_t kin_budget_room(const kin_budget_memory *memory);

// One look: `room` bytes at `now_ms` (> 0, never decreasing). Returns the budget in force from now on.
uint64_t kin_budget_step(kin_budget *budget, uint64_t now_ms, uint64_t room);
