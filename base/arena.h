// An arena: many small allocations that are all freed at once, with a limit on their sum.
//
// Owner: whoever made it; one thread at a time.
#pragma once

#include <stddef.h>

typedef struct kin_arena kin_arena;

// NULL without memory. The arena takes at most max_bytes from the system, its own bookkeeping included.
kin_arena *kin_arena_new(size_t max_bytes);
void kin_arena_free(kin_arena *arena); // NULL is fine

// n zeroed bytes, aligned for any type, alive until the arena is freed. NULL at the limit or without memory.
void *kin_arena_alloc(kin_arena *arena, size_t n);

size_t kin_arena_bytes(const kin_arena *arena); // taken from the system so far
