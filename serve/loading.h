// Progress of a server that is not ready yet: its current work, the percentage, and the remaining time.
//
// Owner: the caller. Thread: one at a time.
#pragma once

#include <jansson.h>

#include "base/clock.h"

typedef struct kin_loading {
    char what[200];      // description of the work; "": not set
    double percent;      // -1: not known
    double first;        // percentage at which this work began
    kin_time first_at;   // time of that percentage
    double seconds_left; // -1: not known
} kin_loading;

void kin_loading_init(kin_loading *loading);

// A falling percentage means that other work has begun.
void kin_loading_set(kin_loading *loading, const char *what, double percent, kin_time now);

// Returns {"what", "percent", "seconds_left"}, the last two if known. NULL: out of memory.
json_t *kin_loading_json(const kin_loading *loading);

// Returns the value of the header Retry-After, 1 to 60.
int kin_loading_retry_after_s(const kin_loading *loading);
