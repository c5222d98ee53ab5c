// Epoch numbers (pure/proto/membership.h): serial numbers that wrap around. 0 is no epoch.
//
// A head's first number comes from the clock, with four numbers per second, so that a later run does not repeat the numbers of an
// earlier one. Of two numbers, the newer one is less than 2^31 after the other: 17 years of the clock.
#pragma once

#include <stdbool.h>
#include <stdint.h>

static inline uint32_t kin_epoch_at(uint64_t seconds, uint32_t nanoseconds) {
    uint32_t quarters = (uint32_t)(seconds * 4 + nanoseconds / 250000000u);
    return quarters ? quarters : 1;
}

static inline uint32_t kin_epoch_next(uint32_t epoch) {
    return epoch == UINT32_MAX ? 1 : epoch + 1;
}

// True if `epoch` is newer than `than`. Any epoch is newer than none (0).
static inline bool kin_epoch_is_newer(uint32_t epoch, uint32_t than) {
    return epoch != 0 && (than == 0 || (int32_t)(epoch - than) > 0);
}
