// Lazy loading: lets computing threads wait for parts of a model that are still being fetched (engine/arrival.h).
//
// The loop's thread begins it for a preparation, reports arrivals, and ends it when nothing more will come; all waiting threads
// then fail with the reason. A wait lasts at most as long as the fetch that it depends on, which gives up after a minute without
// data (fetch/fetch.h), or until the process stops.
//
// Waits go on after the device is ready, because it reports ready once its first window is present. Parts that a preparation
// waited for stay present; beginning another preparation fails the waits of the former.
//
// Owner: the join. Threads: see the functions.
#pragma once

#include <stdatomic.h>

#include "engine/arrival.h"
#include "model/store.h"

typedef struct kin_lazy_load kin_lazy_load;

// stop: borrowed; setting it ends waits.
int kin_lazy_load_open(kin_lazy_load **out, const atomic_bool *stop, kin_err *err);
void kin_lazy_load_close(kin_lazy_load *lazy_load); // no thread may be waiting. NULL is allowed

// ---- the loop's thread

// `ticket` identifies the preparation. The store is borrowed until the next begin or end.
void kin_lazy_load_begin(kin_lazy_load *lazy_load, uint32_t ticket, kin_store *store);
void kin_lazy_load_arrived(kin_lazy_load *lazy_load);  // the store has more chunks
void kin_lazy_load_is_whole(kin_lazy_load *lazy_load); // nothing more comes: absent parts were not requested
void kin_lazy_load_end(kin_lazy_load *lazy_load, const char *reason);

// ---- any thread

// One preparation's handle to it.
typedef struct kin_lazy_load_view {
    kin_lazy_load *lazy_load;
    uint32_t ticket;
    bool is_left; // no thread uses it to wait any more
} kin_lazy_load_view;

// The view is borrowed while the arrival is used.
kin_arrival kin_lazy_load_arrival(kin_lazy_load_view *view);
