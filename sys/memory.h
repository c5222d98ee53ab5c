// What the machine's memory has to spare, read from the OS each time.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct kin_memory {
    uint64_t total;     // bytes of RAM that this process could ever use: the machine's, or its cgroup's limit if that is less
    uint64_t available; // bytes that could be taken now without evicting others: free, and what the OS would give back
    uint64_t own;       // bytes that this process holds and the OS cannot take back (anonymous memory and rings)
    uint64_t resident;  // bytes of this process that are in memory, mapped files included
    uint64_t kernel;    // beside them, what the OS has for this process: page tables, its threads' stacks; 0: it does not tell
    uint64_t rings;     // of own, in rings (sys/ring.h), each page counted once; 0 where the OS does not tell
} kin_memory;

// Never fails: what cannot be read counts as unlimited, and the machine's own figures bound it.
kin_memory kin_memory_read(void);

// The same with control groups below another root (sys/cgroup.h). For tests.
kin_memory kin_memory_read_below(const char *root);

// What was freed goes back to the OS, as far as the C library can tell which.
void kin_memory_trim(void);

// Peak resident memory of this process in bytes, since it began or since the reset.
uint64_t kin_memory_peak(void);

// The peak is what is resident now. False: the OS cannot do that, and the peak stays.
bool kin_memory_reset_peak(void);
