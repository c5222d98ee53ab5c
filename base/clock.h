// Monotonic time. A kin_time never mixes with wall-clock time or with a duration in other units.
#pragma once

#include <stdint.h>

typedef uint64_t kin_time; // nanoseconds since an arbitrary start

kin_time kin_clock_now(void);

static inline double kin_clock_ms(kin_time from, kin_time to) {
    return (double)(to - from) / 1e6;
}
