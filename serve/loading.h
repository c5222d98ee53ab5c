// What a server does before it can answer: what, how far it is, and how long that will take yet.
//
// Owner: the caller. Thread: one at a time.
#pragma once

#include <jansson.h>

#include "base/clock.h"

typedef struct kin_loading {
    char what[200];      // "": nothing was said
    double percent;      // -1: not known
    double first;        // the percent that this piece of work began with
    kin_time first_at;   // when that was said
    double seconds_left; // -1: not known
} kin_loading;

void kin_loading_init(kin_loading *loading);

// Where the percentage falls, another piece of work has begun.
void kin_loading_set(kin_loading *loading, const char *what, double percent, kin_time now);

// {"what", "percent", "seconds_left"}, the last two where they are known. NULL: out of memory.
json_t *kin_loading_json(const kin_loading *loading);

// For the header Retry-After, 1 to 60.
int kin_loading_retry_after_s(const kin_loading *loading);
