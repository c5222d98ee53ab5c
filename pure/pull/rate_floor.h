// A floor for the rate of a download. A server that sends a byte now and then keeps every connection alive, and would hold the
// download forever; so over each window of time enough bytes must arrive.
//
// Pure; time is an argument. Owner: the download.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define KIN_RATE_FLOOR_BYTES_S 1024

typedef struct kin_rate_floor {
    uint64_t window_ms; // 0: there is no floor
    uint64_t counted_ms, seen_ms, n_begin;
    bool has_begun;
} kin_rate_floor;

// Call several times a second, with the bytes that have come so far. counts: false while the download waits because the server
// asked it to; this time is left out. True: over the last window less than KIN_RATE_FLOOR_BYTES_S came on average; *n_window is
// what came.
bool kin_rate_floor_is_missed(kin_rate_floor *floor, uint64_t now_ms, uint64_t n, bool counts, uint64_t *n_window);
