// The reads that the I/O threads of a stream have yet to begin: a double-ended queue of chunks.
//
// Owner: one kin_stream (stream.c), whose mutex guards it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { KIN_STREAM_QUEUE = 4096 }; // chunks

typedef struct kin_stream_ticket kin_stream_ticket; // of stream.h

// A request for an I/O thread.
typedef struct kin_stream_chunk {
    kin_stream_ticket *ticket;
    int i_file;
    uint64_t offset, bytes;
    uint64_t n_needed; // the part of `bytes` that belongs to the block: the file may end inside the last page
    uint8_t *to;       // NULL: fetch the pages of the mapping at `map`
    const uint8_t *map;
    const void *block;  // of stream.c, whose pages are fetched; NULL: none
    bool maybe_evicted; // check first whether the pages are in memory
    bool skip;
} kin_stream_chunk;

typedef struct kin_stream_queue {
    kin_stream_chunk chunks[KIN_STREAM_QUEUE]; // cyclic
    size_t first, next;
} kin_stream_queue;

void kin_stream_queue_init(kin_stream_queue *queue);

static inline size_t kin_stream_queue_n(const kin_stream_queue *queue) {
    return queue->next - queue->first;
}
static inline size_t kin_stream_queue_n_free(const kin_stream_queue *queue) {
    return KIN_STREAM_QUEUE - kin_stream_queue_n(queue);
}

// Returns chunk i of the n that are queued, in their order.
static inline kin_stream_chunk *kin_stream_queue_at(kin_stream_queue *queue, size_t i) {
    return &queue->chunks[(queue->first + i) % KIN_STREAM_QUEUE];
}

// Call push_* only if there is room, and pop only if there is a chunk.
void kin_stream_queue_push_last(kin_stream_queue *queue, const kin_stream_chunk *chunk);
void kin_stream_queue_push_first(kin_stream_queue *queue, const kin_stream_chunk *chunk);
kin_stream_chunk kin_stream_queue_pop(kin_stream_queue *queue);

// Removes a ticket's chunks. to: they become its first ones, in their order, as far as there is room; NULL: they are dropped.
// Returns their number.
int kin_stream_queue_remove(kin_stream_queue *queue, const kin_stream_ticket *ticket, kin_stream_queue *to);
