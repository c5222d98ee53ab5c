// Reads from the OS how much memory is available; nothing is cached.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct kin_memory {
    uint64_t total;     // bytes of RAM that this process could ever use: the machine's, or its cgroup's limit if lower
    uint64_t available; // bytes that could be allocated now without evicting others: free, and what the OS would reclaim
    uint64_t own;       // bytes of this process that the OS cannot reclaim (anonymous memory and rings)
    uint64_t resident;  // bytes of this process that are in memory, mapped files included
    uint64_t kernel;    // bytes that the OS holds for this process in addition: page tables, thread stacks; 0: unknown
    uint64_t rings;     // the part of `own` in rings (sys/ring.h), each page counted once; 0: unknown
} kin_memory;

// Never fails: limits that cannot be read count as unlimited, bounded by the machine's own figures.
kin_memory kin_memory_read(void);

// The same with another root for control groups (sys/cgroup.h). For tests.
kin_memory kin_memory_read_below(const char *root);

// Returns freed memory to the OS, as far as the C library can.
void kin_memory_trim(void);

// Returns the peak resident memory of this process in bytes, since it began or since the last reset.
uint64_t kin_memory_peak(void);

// Resets the peak to the present resident size. Returns false if the OS does not support it; the peak then stays.
bool kin_memory_reset_peak(void);
