// An inflow: the parts of a model as they come from others, for computing threads that wait for them (engine/arrival.h).
//
// The loop's thread begins it for a preparation, tells when there is more, and ends it when nothing more comes; everybody who
// waits then fails with the reason. A wait lasts no longer than the fetch behind it, which gives up after a minute without a
// byte (ring/fetch.h), or until the process is to stop.
//
// Waits go on after the device is ready: it is when its first window is here. What a preparation waited for is here for good; an
// inflow that was begun for another one fails those who still wait for the former.
//
// Owner: the join. Threads: as the functions say.
#pragma once

#include <stdatomic.h>

#include "engine/arrival.h"
#include "model/store.h"

typedef struct kin_inflow kin_inflow;

// stop: borrowed; ends waits.
int kin_inflow_open(kin_inflow **out, const atomic_bool *stop, kin_err *err);
void kin_inflow_close(kin_inflow *inflow); // nobody waits any more. NULL is allowed

// ---- the loop's thread

// `ticket` names the preparation. The store is borrowed until the next begin or end.
void kin_inflow_begin(kin_inflow *inflow, uint32_t ticket, kin_store *store);
void kin_inflow_news(kin_inflow *inflow);     // the store has more
void kin_inflow_is_whole(kin_inflow *inflow); // nothing more comes: what is not here was not asked for
void kin_inflow_end(kin_inflow *inflow, const char *reason);

// ---- any thread

// A preparation's view of it.
typedef struct kin_inflow_view {
    kin_inflow *inflow;
    uint32_t ticket;
    bool is_left; // nobody wants to wait with it any more; the inflow's
} kin_inflow_view;

// The view is borrowed as long as the arrival is used.
kin_arrival kin_inflow_arrival(kin_inflow_view *view);
