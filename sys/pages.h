// Pages of a mapping: whether they are in memory, and how they come there. A range means all pages that it touches.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Times that this process waited for a page of a file to be read, since it began.
uint64_t kin_pages_faults(void);

// Whether they are all in memory. Where the OS does not tell: true.
bool kin_pages_held(const void *begin, uint64_t n);

// They are wanted soon: the OS begins to read them.
void kin_pages_announce(const void *begin, uint64_t n);

// Reads them, in large pieces, and returns when they are there. 0, or an errno: touching them would be a bus error.
int kin_pages_fetch(const void *begin, uint64_t n);

// Whether touching one of them may read others around it too, as it does at first.
void kin_pages_read_around(const void *begin, uint64_t n, bool wanted);

// Asks for huge pages inside the range, before it is touched: a wish, without an answer.
void kin_pages_wish_huge(void *begin, uint64_t n);
