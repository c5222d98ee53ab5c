// How many of a team's threads compute jobs of one kind: as many as help.
//
// More threads are not always faster. Threads of a small job mostly wait for each other, and a thread whose processor belongs to
// another program as well delays the others. So the number follows measurements: now and then some jobs are computed by half as
// many threads, or twice as many, and the faster number stays. The time that this costs is at most about 1/64 of the whole.
//
// Plain data; time is an argument. Owner: the code whose jobs they are.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

typedef struct kin_width_block {
    uint64_t ns; // of n jobs
    int n;
} kin_width_block;

typedef struct kin_width {
    int now;        // the number of threads in use; 0: no job was computed yet
    int other;      // the number that is being tried; 0: none
    bool goes_up;   // the last trial was of more threads
    bool is_first;  // the next job is the first one with its number of threads: it does not count, because helpers wake up
    int n_failures; // trials since the number last changed, at most KIN_WIDTH_FAILURES
    kin_time due;   // when the next trial begins; 0: no job was computed yet
    kin_width_block tried, kept; // jobs of this trial, with the other number and with the number in use
} kin_width;

enum { KIN_WIDTH_FAILURES = 3 };

// Returns the number of threads for the next job, at most `most`.
int kin_width_next(kin_width *w, int most, kin_time now);

// Records that this job took `ns`, until now.
void kin_width_add(kin_width *w, int most, uint64_t ns, kin_time now);
