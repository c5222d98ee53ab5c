// Parcels: frames on their way between the network's thread and the computing thread of a process, and the bounded queue that
// they wait in. Memory is kept for the next ones: after the first tokens nothing is allocated.
//
// Owner of a parcel: whoever has it in hand; it goes from the pool to a thread, to a queue, to the other thread, to the pool.
// Thread: any for all functions but open and close.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "pure/proto/frame.h"

typedef struct kin_parcel {
    struct kin_parcel *next; // for whoever has it
    kin_frame frame;
    uint8_t *payload; // [frame.length]
    size_t cap;
    kin_time sent_at; // when it was given to the station
} kin_parcel;

typedef struct kin_parcels kin_parcels;

// A pool of n parcels, all of them empty at first.
int kin_parcels_open(kin_parcels **out, int n, kin_err *err);
// Every parcel must be back.
void kin_parcels_close(kin_parcels *pool);

// One with room for `n` bytes of payload. NULL: all are on their way, or out of memory.
kin_parcel *kin_parcels_take(kin_parcels *pool, size_t n);
void kin_parcels_give(kin_parcels *pool, kin_parcel *parcel); // NULL is allowed

// A queue of them, first in, first out, as long as the pool is large.
typedef struct kin_parcel_queue kin_parcel_queue;

int kin_parcel_queue_open(kin_parcel_queue **out, kin_err *err);
void kin_parcel_queue_close(kin_parcel_queue *queue); // empty

void kin_parcel_queue_put(kin_parcel_queue *queue, kin_parcel *parcel);

// Wakes who waits, who then gets NULL, as everybody does until it is set to false again.
void kin_parcel_queue_interrupt(kin_parcel_queue *queue, bool interrupted);

bool kin_parcel_queue_is_interrupted(kin_parcel_queue *queue);

// Waits for one, at most wait_ms (negative: for ever). NULL: none came, or interrupted.
kin_parcel *kin_parcel_queue_take(kin_parcel_queue *queue, int wait_ms);
