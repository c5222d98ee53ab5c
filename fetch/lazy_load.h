// Lazy loading: the parts of a model as they arrive from others, for computing threads that wait for them (engine/arrival.h).
//
// The loop's thread begins it for a preparation, tells when there is more, and ends it when nothing more comes; everybody who
// waits then fails with the reason. A wait lasts no longer than the fetch behind it, which gives up after a minute without a
// byte (fetch/fetch.h), or until the process is to stop.
//
// Waits go on after the device is ready: it is when its first window is here. What a preparation waited for is here for good;
// one that was begun for another one fails those who still wait for the former.
//
// Owner: the join. Threads: as the functions say.
#pragma once

#include <stdatomic.h>

#include "engine/arrival.h"
#include "model/store.h"

typedef struct kin_lazy_load kin_lazy_load;

// stop: borrowed; ends waits.
int kin_lazy_load_open(kin_lazy_load **out, const atomic_bool *stop, kin_err *err);
void kin_lazy_load_close(kin_lazy_load *lazy_load); // nobody waits any more. NULL is allowed

// ---- the loop's thread

// `ticket` names the preparation. The store is borrowed until the next begin or end.
void kin_lazy_load_begin(kin_lazy_load *lazy_load, uint32_t ticket, kin_store *store);
void kin_lazy_load_arrived(kin_lazy_load *lazy_load);  // the store has more
void kin_lazy_load_is_whole(kin_lazy_load *lazy_load); // nothing more comes: what is not here was not asked for
void kin_lazy_load_end(kin_lazy_load *lazy_load, const char *reason);

// ---- any thread

// A preparation's view of it.
typedef struct kin_lazy_load_view {
    kin_lazy_load *lazy_load;
    uint32_t ticket;
    bool is_left; // no thread waits with it any more
} kin_lazy_load_view;

// The view is borrowed as long as the arrival is used.
kin_arrival kin_lazy_load_arrival(kin_lazy_load_view *view);
