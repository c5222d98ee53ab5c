// malloc: consecutive blocks from the linker's __heap_base up. A block has a header of 64 bytes, so that its data is 64-byte
// aligned, as the kernels require. Free neighbours are joined; the first block that fits is used. Blocks are few and large:
// allocations of a plan live until the plan ends.
#include <stdbool.h>
#include <sys/mman.h>

#include "libc.h"

enum { ALIGN = 64, PAGE = 65536 };

typedef struct block {
    size_t size; // including its header, a multiple of ALIGN
    bool used;
} block;

extern unsigned char __heap_base;
static unsigned char *heap_begin, *heap_end; // bounds of the blocks
static unsigned char *first_free;            // there is no free block below it

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

static block *next_of(block *b) {
    return (block *)((unsigned char *)b + b->size);
}

static void open_heap(void) {
    if (heap_begin) return;
    heap_begin = heap_end = first_free = (unsigned char *)round_up((size_t)&__heap_base, ALIGN);
}

// Joins the free blocks that follow the free block b.
static void join(block *b) {
    for (block *next = next_of(b); (unsigned char *)next < heap_end && !next->used; next = next_of(b)) b->size += next->size;
}

static void cut(block *b, size_t size) {
    if (b->size - size < 2 * ALIGN) return;
    block *rest = (block *)((unsigned char *)b + size);
    *rest = (block){.size = b->size - size};
    b->size = size;
}

static block *find_free(size_t size) {
    bool passed = false;
    for (unsigned char *at = first_free; at < heap_end; at += ((block *)at)->size) {
        block *b = (block *)at;
        if (b->used) continue;
        join(b);
        if (!passed) first_free = at;
        passed = true;
        if (b->size >= size) return b;
    }
    return NULL;
}

static block *append(size_t size) {
    size_t begin = (size_t)heap_end, have = __builtin_wasm_memory_size(0) * (size_t)PAGE;
    if (size > SIZE_MAX - begin - PAGE) return NULL;
    // With 65536 pages `have` would be 2^32, which wraps to 0 in 32 bits.
    if (have != 0 && begin + size > have && __builtin_wasm_memory_grow(0, (begin + size - have + PAGE - 1) / PAGE) == SIZE_MAX)
        return NULL;
    block *b = (block *)heap_end;
    heap_end += size;
    *b = (block){.size = size};
    return b;
}

void *malloc(size_t n) {
    open_heap();
    if (n > SIZE_MAX - 4 * ALIGN) return NULL;
    size_t size = round_up(n ? n : 1, ALIGN) + ALIGN;
    block *b = find_free(size);
    if (!b) b = append(size);
    if (!b) return NULL;
    cut(b, size);
    b->used = true;
    return (unsigned char *)b + ALIGN;
}

void free(void *p) {
    if (!p) return;
    unsigned char *at = (unsigned char *)p - ALIGN;
    block *b = (block *)at;
    b->used = false;
    join(b);
    if (at < first_free) first_free = at;
    if (at + b->size == heap_end) {
        heap_end = at;
        if (first_free > heap_end) first_free = heap_end;
    }
}

void *calloc(size_t n, size_t size) {
    if (size && n > SIZE_MAX / size) return NULL;
    void *p = malloc(n * size);
    return p ? memset(p, 0, n * size) : NULL;
}

void *realloc(void *p, size_t n) {
    if (!p) return malloc(n);
    size_t held = ((block *)((unsigned char *)p - ALIGN))->size - ALIGN;
    if (n <= held) return p;
    void *larger = malloc(n);
    if (!larger) return NULL;
    memcpy(larger, p, held);
    free(p);
    return larger;
}

void *aligned_alloc(size_t alignment, size_t n) {
    return alignment <= ALIGN ? malloc(n) : NULL;
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, long long offset) {
    (void)at, (void)protection, (void)flags, (void)fd, (void)offset;
    void *p = calloc(1, n);
    return p ? p : MAP_FAILED;
}

int munmap(void *p, size_t n) {
    (void)n;
    free(p);
    return 0;
}
