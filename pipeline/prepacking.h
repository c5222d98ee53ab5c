// Prepacking: a thread of the lowest priority that packs weights for a plan that is not active yet, into the prepacked cache, so
// that the plan starts without a wait (kin_shard_prepack).
//
// One job at a time; a new one replaces it. Nothing may be packed while an engine opens: the computing thread cancels and waits
// first. What the last job packed stays known until the next one, or close.
//
// Owner: a head's cluster, or a device's join. Threads: see the functions.
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
    kin_proto_plan plan; // on a device
    char path[1024];     // of the device's model
    kin_windows windows; // on a head
    kin_windows but;     // layers that are already packed
} kin_prepacking_job;

typedef struct kin_prepacking_options { // both are called in the thread
    int (*pack)(void *user, const kin_prepacking_job *job, const atomic_bool *stop, kin_packed **held, kin_err *err);
    // Called when a job that was not cancelled has ended. What it could not pack is packed when its plan begins.
    void (*done)(void *user, uint32_t ticket);
    void *user;
} kin_prepacking_options;

int kin_prepacking_open(kin_prepacking **out, const kin_prepacking_options *options, kin_err *err);
// Ends the thread, and waits for the current block. Neither callback is called afterwards. NULL is allowed, for both functions.
void kin_prepacking_stop(kin_prepacking *prepacking);
void kin_prepacking_close(kin_prepacking *prepacking); // also stops

// Any thread; returns at once. The job is copied.
void kin_prepacking_begin(kin_prepacking *prepacking, const kin_prepacking_job *job);
void kin_prepacking_cancel(kin_prepacking *prepacking);

// Any thread: cancels, and waits until nothing is being packed, for one block at most.
void kin_prepacking_pause(kin_prepacking *prepacking);
