// What the machine's memory has to spare, read from the OS each time; and which pages it is made of.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct kin_memory {
    uint64_t total;     // bytes of RAM that this process could ever use: the machine's, or its cgroup's limit if that is less
    uint64_t available; // bytes that could be taken now without pushing anybody out: free, and what the OS would give back
    uint64_t own;       // bytes that this process holds and the OS cannot take back (anonymous memory and rings)
    uint64_t rings;     // of these, in rings (sys/ring.h), each page counted once; 0 where the OS does not tell
} kin_memory;

// Never fails: what cannot be read counts as unlimited, and the machine's own figures bound it.
kin_memory kin_memory_read(void);

// Peak resident memory of this process in bytes, since it began or since the reset.
uint64_t kin_memory_peak(void);

// The peak is what is resident now. False: the OS cannot do that, and the peak stays.
bool kin_memory_reset_peak(void);

// Times that this process waited for a page of a file to be read, since it began.
uint64_t kin_memory_faults(void);

// Whether the pages that [begin, begin + n) of a mapping touches are in memory. Where the OS does not tell: true.
bool kin_memory_holds(const void *begin, uint64_t n);

// The pages of a mapping that [begin, begin + n) touches are wanted soon: the OS begins to read them.
void kin_memory_announce(const void *begin, uint64_t n);

// Reads them, in large pieces, and returns when they are there. 0, or an errno: touching them would be a bus error.
int kin_memory_fetch(const void *begin, uint64_t n);

// Whether touching a page of a mapping may read others around it too, as it does at first.
void kin_memory_read_around(const void *begin, uint64_t n, bool wanted);

// Asks for huge pages where there are any, before they are touched: a wish, without an answer.
void kin_memory_wish_huge(void *begin, uint64_t n);
