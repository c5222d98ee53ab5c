// The probe schedule of a head: links that are to be measured wait here until neither end takes part in another measurement. Of
// two at once each gets a part of a shared link's rate, and its round trips wait behind the other's large messages.
//
// A device is the number of its control link; 0 is the head. What is not answered within KIN_PROBE_SCHEDULE_LIMIT_MS holds others
// up no longer: its device may have met one that is busy.
//
// Plain data; zeros are an empty one. Owner: cluster/cluster.c. Thread: the loop's.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

enum {
    KIN_PROBE_SCHEDULE_MAX = 1024, // pairs: all of 33, and as many again from the other end
    KIN_PROBE_SCHEDULE_LIMIT_MS = 4000,
};

typedef struct kin_probe_pair {
    uint32_t from, to; // `from` measures
    bool is_back;      // because `to` has failed to
    kin_time begun;    // 0: it waits
} kin_probe_pair;

typedef struct kin_probe_schedule {
    kin_probe_pair pairs[KIN_PROBE_SCHEDULE_MAX]; // in the order in which they were added
    int n;
} kin_probe_schedule;

// False: there are too many.
bool kin_probe_schedule_add(kin_probe_schedule *schedule, uint32_t from, uint32_t to, bool is_back);

// The next one that may begin, which has begun then. False: none may now.
bool kin_probe_schedule_begin(kin_probe_schedule *schedule, kin_time now, kin_probe_pair *out);

// What that device measured is over.
void kin_probe_schedule_end(kin_probe_schedule *schedule, uint32_t from);

// That device is gone: it measures nothing, and nothing that runs waits for it. Others that are to measure their link to it still
// have their turn, for somebody counts on their answers.
void kin_probe_schedule_lost(kin_probe_schedule *schedule, uint32_t device);
