// Pages of a mapping: tests whether they are in memory, reads them ahead, and drops them. A range means all pages that it
// touches.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Returns the page size: 4 KiB, or 16 or 64 (Raspberry Pi 5, Apple's processors). A mapping at a fixed address must begin at a
// multiple of it, in memory and in the file.
uint64_t kin_page_bytes(void);

// For tests: pretends a page size of `n` bytes, a multiple of the real one; 0: the real one. Call before other threads run.
void kin_page_bytes_fake(uint64_t n);

// Returns how often this process has waited for a file page to be read (major faults).
uint64_t kin_pages_faults(void);

// True if all of them are in memory, or if the OS does not tell.
bool kin_pages_held(const void *begin, uint64_t n);

// Asks the OS to start reading them.
void kin_pages_announce(const void *begin, uint64_t n);

// Reads them in large pieces and waits. Returns 0, or an errno: touching them would raise a bus error. huge: the range may have
// been passed to kin_pages_advise_huge.
int kin_pages_fetch(const void *begin, uint64_t n, bool huge);

// Removes the whole pages inside the range from this process's memory; file pages are read again when they are touched.
void kin_pages_drop(void *begin, uint64_t n);

// Enables or disables read-around when a page is touched; the initial state is enabled. Disabling also ends the use of huge
// pages.
void kin_pages_read_around(const void *begin, uint64_t n, bool wanted);

enum { KIN_HUGE_PAGE = 2 << 20 }; // bytes, on x86-64 and on arm64 with small pages

// Requests huge pages inside the range; call before it is touched. True if the OS supports them; it may still use none, as for
// files on most file systems.
bool kin_pages_advise_huge(void *begin, uint64_t n);

// Asks the OS to use no huge pages in the range.
void kin_pages_refuse_huge(const void *begin, uint64_t n);
