// A head's probe schedule: links to be measured wait here until neither end takes part in another measurement. Two at once would
// split the rate of a shared link, and round trips would queue behind large messages.
//
// A device is identified by the number of its control link; 0 is the head. A measurement without an answer within
// KIN_PROBE_SCHEDULE_LIMIT_MS no longer blocks others: the other device may be busy.
//
// Plain data; zeros are an empty one. Owner: cluster/head/link_tests.h. Thread: the loop's.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

enum {
    KIN_PROBE_SCHEDULE_MAX = 1024, // pairs: all of 33 members, and as many again from the other end
    KIN_PROBE_SCHEDULE_LIMIT_MS = 4000,
};

typedef struct kin_probe_pair {
    uint32_t from, to; // `from` measures
    bool is_back;      // because `to` has failed to reach `from`
    kin_time begun;    // 0: pending
} kin_probe_pair;

typedef struct kin_probe_schedule {
    kin_probe_pair pairs[KIN_PROBE_SCHEDULE_MAX]; // in the order in which they were added
    int n;
} kin_probe_schedule;

// False: there are too many.
bool kin_probe_schedule_add(kin_probe_schedule *schedule, uint32_t from, uint32_t to, bool is_back);

// Starts the next measurement whose ends are free, and returns it. False: none may start now.
bool kin_probe_schedule_begin(kin_probe_schedule *schedule, kin_time now, kin_probe_pair *out);

// Ends what that device was measuring.
void kin_probe_schedule_end(kin_probe_schedule *schedule, uint32_t from);

// Removes measurements of a device that is gone, and running ones to it. Pending ones to it still get their turn, since a test
// counts their answers.
void kin_probe_schedule_lost(kin_probe_schedule *schedule, uint32_t device);
