// A remote engine: what computes in the place of a member's own engine, somewhere that only the member reaches (a browser's tab,
// serve/tab.h). It takes and gives what a worker does: the payloads of PLAN, STEP and PAGES.
//
// Owner: whoever gives it to the member (kin_join_options). Thread: its functions are called by the computing one, and may block.
#pragma once

#include <stdatomic.h>

#include "net/message_buffer.h"
#include "pure/proto/message.h"

typedef struct kin_remote_open {
    const kin_proto_plan *plan;
    void (*progress)(void *user, const char *what, uint64_t done, uint64_t total); // NULL: not asked for
    void *progress_user;
} kin_remote_open;

typedef struct kin_remote_engine {
    const char *os;    // in DEVICE: what it runs on
    uint64_t memory;   // that it lends, bytes
    uint32_t features; // in OPEN: KIN_PROTO_INEXACT, or 0
    void *user;
    // Opens what the plan asks for, in place of what was open, and fills `ready`. progress may be called from another thread
    // until it returns.
    int (*open)(void *user, const kin_remote_open *o, kin_proto_ready *ready, kin_err *err);
    // Computes a STEP or PAGES. The answer takes its place in the buffer; it is not longer.
    int (*take)(void *user, kin_message_buffer *buffer, kin_err *err);
    // Fetches what another plan will need, while steps are computed, until `stop`. From a thread of its own. NULL: it cannot.
    int (*prefetch)(void *user, const kin_proto_plan *plan, const atomic_bool *stop, kin_err *err);
    // As after open: no step, an empty KV cache.
    int (*reset)(void *user, kin_err *err);
} kin_remote_engine;
