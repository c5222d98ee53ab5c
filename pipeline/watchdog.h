// A watchdog: whether a thread that computes hangs, in a dead disk or a driver, while others of its process go on.
//
// The thread gives signs of life, a counter: between two operations of a graph, and while it waits for others, who have watchdogs
// of their own. It hangs if there was none for as long as the limit, and for KIN_WATCHDOG_TIMES as long as any silence that
// ended: what is long for one machine is usual for another. Time in which nobody looked is not counted: the process was stopped,
// or the machine slept.
//
// Plain data, but for `least_ns` zeros are a new one. Owner and thread: who looks.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

enum { KIN_WATCHDOG_TIMES = 10 };

typedef struct kin_watchdog {
    uint64_t least_ns; // the limit
    unsigned n_signs;  // that were seen last
    kin_time looked_at;
    uint64_t silent_ns, longest_ns; // since the last sign; of silences that have ended
} kin_watchdog;

// To be called several times a second. is_busy: the thread has something to do. True: it hangs.
bool kin_watchdog_look(kin_watchdog *watchdog, kin_time now, bool is_busy, unsigned n_signs);
