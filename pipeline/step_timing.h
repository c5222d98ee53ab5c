// Step timing: measures what one token costs a machine, as medians of the last few, so that one slow token has no effect.
//
//   begin ─► enter ─► leave (a window, the output) ─► enter ─► leave ... ─► end: a token, or another kind of step
//
// Disk reads are counted from the end of one step to the end of the next, since a device reads ahead while others compute. The
// thesis has such a median too (4.3.2).
//
// Plain data; zeros are the initial state. Owner: the code that computes. Thread: the computing one.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "engine/stream.h"

enum {
    KIN_STEP_TIMING_KEPT = 15,
    KIN_STEP_TIMING_LEAST = 8, // fewer samples: not known
};

// Costs of one token. All 0: not known.
typedef struct kin_token_times {
    uint64_t compute_ns; // without stalls
    uint64_t stall_ns;   // waiting for streamed weights
    uint64_t disk_ns;    // time with a read of weights in flight
    uint64_t disk_bytes; // bytes of weights read
    uint64_t total_ns;   // from begin to end, including the wait for other members
} kin_token_times;

typedef struct kin_step_timing {
    kin_token_times kept[KIN_STEP_TIMING_KEPT];
    int n, at;             // samples kept; index of the next one
    kin_token_times token; // the one being computed
    kin_time begun, entered;
    uint64_t wait_ns;                  // the stream's wait_ns at `enter`
    bool has_mark;                     // the marks are valid: an `end` came before
    uint64_t mark_ns, mark_read_bytes; // busy_ns and read_bytes of the stream at that end
} kin_step_timing;

void kin_step_timing_begin(kin_step_timing *timing, kin_time now);
void kin_step_timing_enter(kin_step_timing *timing, kin_time now, const kin_stream_stats *stream);
void kin_step_timing_leave(kin_step_timing *timing, kin_time now, const kin_stream_stats *stream);
// is_token: the step counts as a sample. The first end never counts: it has no mark before it.
void kin_step_timing_end(kin_step_timing *timing, kin_time now, const kin_stream_stats *stream, bool is_token);

// Returns the median of each field separately.
kin_token_times kin_step_timing_median(const kin_step_timing *timing);
