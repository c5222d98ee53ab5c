// Pages of a mapping: whether they are in memory, reading them ahead, and dropping them. A range means all pages that it
// touches.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Bytes of a page here: 4 KiB, or 16 or 64 (Raspberry Pi 5, Apple's processors). What is mapped at an address of one's own must
// begin at a multiple of it, in memory and in the file.
uint64_t kin_page_bytes(void);

// For tests: pages are `n` bytes, a multiple of what they are; 0: as they are. Before other threads run.
void kin_page_bytes_fake(uint64_t n);

// Times that this process waited for a page of a file to be read, since it began.
uint64_t kin_pages_faults(void);

// Whether they are all in memory. Where the OS does not tell: true.
bool kin_pages_held(const void *begin, uint64_t n);

// Asks the OS to begin reading them.
void kin_pages_announce(const void *begin, uint64_t n);

// Reads them, in large pieces, and returns when they are there. 0, or an errno: touching them would be a bus error.
// huge: they may have been wished for as huge ones.
int kin_pages_fetch(const void *begin, uint64_t n, bool huge);

// The whole pages inside the range leave this process's memory: those of a file are read again when they are touched.
void kin_pages_drop(void *begin, uint64_t n);

// Whether touching one of them may read others around it too, as it does at first. If not, no huge pages are wished for any more.
void kin_pages_read_around(const void *begin, uint64_t n, bool wanted);

enum { KIN_HUGE_PAGE = 2 << 20 }; // bytes, on x86-64 and on arm64 with small pages

// Asks for huge pages inside the range, before it is touched. True: the OS has such; it may use none all the same, as for a file
// on most file systems.
bool kin_pages_wish_huge(void *begin, uint64_t n);
