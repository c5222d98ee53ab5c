// Records when something was busy: intervals in which at least one piece of work was in progress. Pieces may overlap.
//
// Bounded: the last KIN_BUSY_KEPT intervals are kept until they are taken. Older ones are dropped, but still count in the total
// time.
//
// Plain data; all zeros is a valid empty record. Owner: the module that counts (engine/stream.c). Thread: under its lock.
#pragma once

#include <stddef.h>

#include "base/clock.h"

enum { KIN_BUSY_KEPT = 1024 };

typedef struct kin_interval {
    kin_time begin, end;
} kin_interval;

typedef struct kin_busy {
    int n_open; // pieces in progress
    kin_time since;
    uint64_t closed_ns;               // of intervals that have ended
    size_t first, next;               // the kept intervals, numbered from 0 on
    kin_interval kept[KIN_BUSY_KEPT]; // a ring buffer
} kin_busy;

// Begins, or ends, a piece of work. `now` never decreases.
void kin_busy_begin(kin_busy *b, kin_time now);
void kin_busy_end(kin_busy *b, kin_time now);

uint64_t kin_busy_ns(const kin_busy *b, kin_time now); // total busy time

// Takes the oldest kept intervals -> out // [n_max]; an interval in progress is closed at `now` and begun again. Returns how many
// were taken.
size_t kin_busy_pop(kin_busy *b, kin_time now, kin_interval *out, size_t n_max);
