// When something was busy: pieces of work that may overlap, as intervals in which at least one was under way.
//
// Bounded: the last KIN_BUSY_KEPT intervals are kept until they are taken; older ones are gone, only their time still counts.
//
// Plain data; zeros are a new one. Owner: whoever counts (engine/stream.c). Thread: under its lock.
#pragma once

#include <stddef.h>

#include "base/clock.h"

enum { KIN_BUSY_KEPT = 1024 };

typedef struct kin_interval {
    kin_time begin, end;
} kin_interval;

typedef struct kin_busy {
    int n_open; // pieces under way
    kin_time since;
    uint64_t closed_ns;               // of intervals that have ended
    size_t first, next;               // of the kept ones, counted from 0 on
    kin_interval kept[KIN_BUSY_KEPT]; // cyclic
} kin_busy;

// A piece of work begins, or ends. `now` never decreases.
void kin_busy_begin(kin_busy *b, kin_time now);
void kin_busy_end(kin_busy *b, kin_time now);

uint64_t kin_busy_ns(const kin_busy *b, kin_time now); // in all

// Takes the oldest kept intervals out // [n_max]; what is under way ends now and begins anew. Returns how many.
size_t kin_busy_take(kin_busy *b, kin_time now, kin_interval *out, size_t n_max);
