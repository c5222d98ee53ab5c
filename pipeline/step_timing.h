// Step timing: what one token takes of a machine, as medians of the last few, so that one slow token changes nothing.
//
//   begin ─► enter ─► leave (a window, the output) ─► enter ─► leave ... ─► end: one token, or something else
//
// What the disk reads is counted from the end of one step to the end of the next: it reads ahead while others compute. The
// thesis has such a median too (4.3.2).
//
// Plain data; zeros are a new one. Owner: who computes. Thread: the computing one.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "engine/stream.h"

enum {
    KIN_STEP_TIMING_KEPT = 15,
    KIN_STEP_TIMING_LEAST = 8, // before that nothing is known
};

// Of one token. All 0: not known.
typedef struct kin_token_times {
    uint64_t compute_ns; // without the following
    uint64_t stall_ns;   // waiting for weights that are streamed
    uint64_t disk_ns;    // time with a read of them in flight
    uint64_t disk_bytes; // of them read
    uint64_t total_ns;   // from begin to end, with waiting for others
} kin_token_times;

typedef struct kin_step_timing {
    kin_token_times kept[KIN_STEP_TIMING_KEPT];
    int n, at;             // kept so far, where the next one goes
    kin_token_times token; // that is being computed
    kin_time begun, entered;
    uint64_t wait_ns;                  // of the stream, when it was entered
    bool has_mark;                     // the following are of the end before
    uint64_t mark_ns, mark_read_bytes; // busy_ns and read_bytes
} kin_step_timing;

void kin_step_timing_begin(kin_step_timing *timing, kin_time now);
void kin_step_timing_enter(kin_step_timing *timing, kin_time now, const kin_stream_stats *stream);
void kin_step_timing_leave(kin_step_timing *timing, kin_time now, const kin_stream_stats *stream);
// is_token: it counts. The first end ever does not: what was read before is not known.
void kin_step_timing_end(kin_step_timing *timing, kin_time now, const kin_stream_stats *stream, bool is_token);

// The median of each number on its own.
kin_token_times kin_step_timing_median(const kin_step_timing *timing);
