#include "base/clock.h"

#include <time.h>

kin_time kin_clock_now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (kin_time)ts.tv_sec * 1000000000u + (kin_time)ts.tv_nsec;
}
