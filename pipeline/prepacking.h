// Prepacking: a thread that gives way to all others and packs weights for a plan that is not in force yet, into the prepacked
// cache, so that the plan begins without a wait (kin_shard_prepack).
//
// One job at a time; another one takes its place. While an engine opens nothing may be packed: the computing thread cancels and
// waits before. What the last job packed stays known until the next one, or close.
//
// Owner: a head's cluster, or a device's join. Threads: as the functions say.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/packed.h"
#include "pure/plan/window.h"
#include "pure/proto/message.h"

typedef struct kin_prepacking kin_prepacking;

typedef struct kin_prepacking_job {
    uint32_t ticket;
    kin_proto_plan plan; // a device's
    char path[1024];     // of its model
    kin_windows windows; // a head's
    kin_windows but;     // layers that are packed already
} kin_prepacking_job;

typedef struct kin_prepacking_options { // both are called in the thread
    int (*pack)(void *user, const kin_prepacking_job *job, const atomic_bool *stop, kin_packed **held, kin_err *err);
    // Of a job that was not cancelled. reason: why it failed; NULL: all is packed.
    void (*done)(void *user, uint32_t ticket, const char *reason);
    void *user;
} kin_prepacking_options;

int kin_prepacking_open(kin_prepacking **out, const kin_prepacking_options *options, kin_err *err);
// Ends its thread, and waits for the block in hand. Nothing is packed or told from then on. NULL is allowed, for both.
void kin_prepacking_stop(kin_prepacking *prepacking);
void kin_prepacking_close(kin_prepacking *prepacking); // stops, too

// Any thread; at once. The job is copied.
void kin_prepacking_begin(kin_prepacking *prepacking, const kin_prepacking_job *job);
void kin_prepacking_cancel(kin_prepacking *prepacking);

// Any thread: cancels, and waits until nothing is being packed; for a block at most.
void kin_prepacking_pause(kin_prepacking *prepacking);
