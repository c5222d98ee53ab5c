// A remote engine: computes in place of a member's own engine, somewhere that only the member can reach (a browser's tab,
// serve/tabs/tab.h). Its interface is a worker's: the payloads of PLAN, STEP and PAGES.
//
// Owner: the caller that passes it to the member (kin_join_options). Thread: the computing thread calls its functions, which may
// block.
#pragma once

#include <stdatomic.h>

#include "net/message_buffer.h"
#include "pure/proto/message.h"

typedef struct kin_remote_open {
    const kin_proto_plan *plan;
    void (*progress)(void *user, const char *what, uint64_t done, uint64_t total); // NULL: not wanted
    void *progress_user;
} kin_remote_open;

typedef struct kin_remote_engine {
    const char *os;    // for DEVICE: the platform it runs on
    uint64_t memory;   // memory that it lends, bytes
    uint32_t features; // for OPEN: KIN_PROTO_INEXACT, or 0
    void *user;
    // Opens what the plan asks for, replaces what was open, and fills `ready`. May call progress from another thread until it
    // returns.
    int (*open)(void *user, const kin_remote_open *o, kin_proto_ready *ready, kin_err *err);
    // Computes a STEP or PAGES. The answer replaces it in the buffer, which has room for it.
    int (*handle)(void *user, kin_message_buffer *buffer, kin_err *err);
    // Fetches what another plan will need, while steps are computed, until `stop`. Called in a separate thread. NULL: not
    // supported.
    int (*prefetch)(void *user, const kin_proto_plan *plan, const atomic_bool *stop, kin_err *err);
    // Resets to the state after open: no step, an empty KV cache.
    int (*reset)(void *user, kin_err *err);
} kin_remote_engine;
