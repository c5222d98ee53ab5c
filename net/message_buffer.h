// Message buffers: frames in flight between the network's thread and the computing thread of a process, and the bounded queue
// that they wait in. Memory is kept for the next ones: after the first tokens nothing is allocated.
//
// Owner of a buffer: the thread that holds it; it goes from the pool to a thread, to a queue, to the other thread, to the pool.
// Thread: any for all functions but open and close.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "pure/proto/frame.h"

typedef struct kin_message_buffer {
    struct kin_message_buffer *next; // for its owner
    kin_frame frame;
    uint8_t *payload; // [frame.length]
    size_t cap;
    kin_time sent_at; // when it was given to the endpoint
} kin_message_buffer;

typedef struct kin_message_pool kin_message_pool;

// A pool of n buffers, all of them empty at first.
int kin_message_pool_open(kin_message_pool **out, int n, kin_err *err);
// Every buffer must be back.
void kin_message_pool_close(kin_message_pool *pool);

// One with room for `n` bytes of payload. NULL: all are in use, or out of memory.
kin_message_buffer *kin_message_pool_take(kin_message_pool *pool, size_t n);
void kin_message_pool_give(kin_message_pool *pool, kin_message_buffer *buffer); // NULL is allowed

// A queue of them, first in, first out, as long as the pool is large.
typedef struct kin_message_queue kin_message_queue;

int kin_message_queue_open(kin_message_queue **out, kin_err *err);
void kin_message_queue_close(kin_message_queue *queue); // empty

void kin_message_queue_put(kin_message_queue *queue, kin_message_buffer *buffer);

// Whether kin_message_queue_take would not wait.
bool kin_message_queue_is_ready(kin_message_queue *queue);

// Whether a thread waits for a message, and there is none: it has done its work with all that it took.
bool kin_message_queue_is_waited_for(kin_message_queue *queue);

// Whether one of those in it is what is looked for, which is asked from the first one on. The queue is locked meanwhile.
bool kin_message_queue_has(kin_message_queue *queue, bool (*is_it)(void *user, const kin_message_buffer *buffer), void *user);

// Gives all that are in it back to the pool, interrupted or not.
void kin_message_queue_drain(kin_message_queue *queue, kin_message_pool *pool);

// Wakes the threads that wait; every take returns NULL until it is set to false again.
void kin_message_queue_interrupt(kin_message_queue *queue, bool interrupted);

bool kin_message_queue_is_interrupted(kin_message_queue *queue);

// The thread that waits, or else the next one that would have to, gets NULL.
void kin_message_queue_wake(kin_message_queue *queue);

// Waits for one, at most wait_ms (negative: for ever). NULL: none came, or interrupted, or woken.
kin_message_buffer *kin_message_queue_take(kin_message_queue *queue, int wait_ms);
