#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

enum { FIRST_CHUNK = 4096, LAST_CHUNK = 256 * 1024 }; // chunk sizes double in between; a larger allocation gets its own chunk

typedef struct chunk {
    struct chunk *next;
    alignas(max_align_t) char at[];
} chunk;

struct kin_arena {
    chunk *chunks;
    char *free; // next free byte of the current chunk
    size_t room;
    size_t chunk_bytes; // size of the next chunk
    size_t bytes, max_bytes;
};

kin_arena *kin_arena_new(size_t max_bytes) {
    kin_arena *arena = calloc(1, sizeof *arena);
    if (!arena) return NULL;
    *arena = (kin_arena){.chunk_bytes = FIRST_CHUNK, .bytes = sizeof *arena, .max_bytes = max_bytes};
    return arena;
}

void kin_arena_free(kin_arena *arena) {
    if (!arena) return;
    for (chunk *c = arena->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(arena);
}

static char *add_chunk(kin_arena *arena, size_t n) {
    size_t size = sizeof(chunk) + n;
    if (arena->bytes >= arena->max_bytes || size > arena->max_bytes - arena->bytes) return NULL;
    chunk *c = calloc(1, size);
    if (!c) return NULL;
    c->next = arena->chunks;
    arena->chunks = c;
    arena->bytes += size;
    return c->at;
}

void *kin_arena_alloc(kin_arena *arena, size_t n) {
    enum { ALIGN = alignof(max_align_t) };
    if (n > SIZE_MAX / 2) return NULL;
    n = (n + (n == 0) + ALIGN - 1) / ALIGN * ALIGN; // at least one unit, also for 0 bytes
    if (n > arena->room) {
        if (n >= arena->chunk_bytes / 2) return add_chunk(arena, n);
        char *at = add_chunk(arena, arena->chunk_bytes);
        if (!at) return NULL;
        arena->free = at;
        arena->room = arena->chunk_bytes;
        if (arena->chunk_bytes < LAST_CHUNK) arena->chunk_bytes *= 2;
    }
    void *at = arena->free;
    arena->free += n;
    arena->room -= n;
    return at;
}

size_t kin_arena_bytes(const kin_arena *arena) {
    return arena->bytes;
}
