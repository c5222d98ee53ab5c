// A watchdog: detects a computing thread that hangs, in a dead disk or a driver, while other threads of its process run.
//
// The thread gives signs of life by a counter: between two operations of a graph, and while it waits for other members, which
// have their own watchdogs. It hangs if there was no sign for longer than the limit, and for KIN_WATCHDOG_TIMES as long as any
// earlier silence: a time that is long for one machine is normal for another. Time in which the watchdog was not called does not
// count: the process was stopped, or the machine slept.
//
// Plain data; zeros are the initial state, except for `least_ns`. Owner and thread: the caller.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

enum { KIN_WATCHDOG_TIMES = 10 };

typedef struct kin_watchdog {
    uint64_t least_ns; // the limit
    unsigned n_signs;  // at the last call
    kin_time checked_at;
    uint64_t silent_ns, longest_ns; // since the last sign; the longest of the silences that ended
} kin_watchdog;

// Call it several times a second. is_busy: the thread has work to do. True: it hangs.
bool kin_watchdog_check(kin_watchdog *watchdog, kin_time now, bool is_busy, unsigned n_signs);
