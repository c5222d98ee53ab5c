// An arena: many small allocations that are all freed at once, with a limit on their sum.
//
// Owner: its creator; one thread at a time.
#pragma once

#include <stddef.h>

typedef struct kin_arena kin_arena;

// Returns NULL if out of memory. The arena takes at most max_bytes from the system, including its own bookkeeping.
kin_arena *kin_arena_new(size_t max_bytes);
void kin_arena_free(kin_arena *arena); // NULL is fine

// Returns n zeroed bytes, aligned for any type and valid until the arena is freed. NULL at the limit or if out of memory.
void *kin_arena_alloc(kin_arena *arena, size_t n);

size_t kin_arena_bytes(const kin_arena *arena); // bytes taken from the system so far
