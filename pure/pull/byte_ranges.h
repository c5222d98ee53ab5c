// A set of bytes of a file, as sorted ranges that neither touch nor overlap: what is still missing of a download.
//
// Plain data, owned by its holder. Pure functions, any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KIN_BYTE_RANGES_MAX = 64 };

typedef struct kin_byte_range {
    uint64_t begin, end;
} kin_byte_range;

typedef struct kin_byte_ranges {
    kin_byte_range at[KIN_BYTE_RANGES_MAX];
    int n;
} kin_byte_ranges;

uint64_t kin_byte_ranges_sum(const kin_byte_ranges *set);

// Adds bytes [begin, end), none of which is in the set. Returns false if the set is full, or has one of them.
bool kin_byte_ranges_add(kin_byte_ranges *set, uint64_t begin, uint64_t end);

// Removes the first bytes of the set, at most `most` and in one piece. An empty range: the set is empty.
kin_byte_range kin_byte_ranges_pop(kin_byte_ranges *set, uint64_t most);

// "0-4096 8192-9000"; "none" for an empty set. print returns false if it does not fit; parse returns false for anything that is
// not the text of a set of bytes below `size`.
bool kin_byte_ranges_print(const kin_byte_ranges *set, char *to, size_t n);
bool kin_byte_ranges_parse(kin_byte_ranges *set, const char *text, uint64_t size);
