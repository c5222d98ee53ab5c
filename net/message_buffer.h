// Message buffers: frames in flight between the network's thread and the computing thread of a process, and the bounded queue in
// which they wait. Memory is reused: after the first tokens nothing is allocated.
//
// Owner of a buffer: the thread that holds it; a buffer moves from the pool to a thread, to a queue, to the other thread, and
// back to the pool. Thread: any for all functions except open and close.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "pure/proto/frame.h"

typedef struct kin_message_buffer {
    struct kin_message_buffer *next; // for the buffer's owner
    kin_frame frame;
    uint8_t *payload; // [frame.length]
    size_t cap;
    kin_time sent_at; // when it was passed to the endpoint
} kin_message_buffer;

// Gives a buffer room for `n` bytes of payload, and keeps what is in it. False: out of memory.
bool kin_message_buffer_grow(kin_message_buffer *buffer, size_t n);

typedef struct kin_message_pool kin_message_pool;

// Opens a pool of n buffers, which are initially empty.
int kin_message_pool_open(kin_message_pool **out, int n, kin_err *err);
// All buffers must have been returned.
void kin_message_pool_close(kin_message_pool *pool);

// Returns a buffer with room for `n` bytes of payload. NULL: all are in use, or out of memory.
kin_message_buffer *kin_message_pool_get(kin_message_pool *pool, size_t n);
void kin_message_pool_give(kin_message_pool *pool, kin_message_buffer *buffer); // NULL is allowed

// A first-in, first-out queue of buffers, bounded by the size of the pool.
typedef struct kin_message_queue kin_message_queue;

int kin_message_queue_open(kin_message_queue **out, kin_err *err);
void kin_message_queue_close(kin_message_queue *queue); // must be empty

void kin_message_queue_put(kin_message_queue *queue, kin_message_buffer *buffer);

// True if kin_message_queue_pop would not block.
bool kin_message_queue_is_ready(kin_message_queue *queue);

// True if a thread waits for a message and the queue is empty: it has processed everything that it took.
bool kin_message_queue_is_waited_for(kin_message_queue *queue);

// True if `is_it` holds for a queued buffer; they are tested in order, with the queue locked.
bool kin_message_queue_has(kin_message_queue *queue, bool (*is_it)(void *user, const kin_message_buffer *buffer), void *user);

// Returns all queued buffers to the pool, interrupted or not.
void kin_message_queue_drain(kin_message_queue *queue, kin_message_pool *pool);

// Wakes waiting threads; every take returns NULL until it is set to false again.
void kin_message_queue_interrupt(kin_message_queue *queue, bool interrupted);

bool kin_message_queue_is_interrupted(kin_message_queue *queue);

// Makes the waiting take, or else the next one that would block, return NULL.
void kin_message_queue_wake(kin_message_queue *queue);

// Waits for a message, at most wait_ms (negative: no limit). Returns NULL on timeout, interrupt or wake.
kin_message_buffer *kin_message_queue_pop(kin_message_queue *queue, int wait_ms);
