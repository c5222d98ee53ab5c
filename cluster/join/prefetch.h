// Prefetching for later plans, which the head orders. Thread: the loop's.
#pragma once

#include "cluster/join/joining.h"

int kin_join_open_prefetch(kin_join *j, kin_err *err);
void kin_join_close_prefetch(kin_join *j); // after the loop and the computing thread have ended
// See kin_ring_member_options; any thread.
int kin_join_pack(void *join, const kin_prepacking_job *job, const atomic_bool *stop, kin_packed **held, kin_err *err);
void kin_join_on_packed(void *join, uint32_t ticket);
void kin_join_handle_prefetch(kin_join *j, const kin_proto_prefetch *order);
void kin_join_end_prefetch(kin_join *j); // for another head, or for a plan, which has priority
// Begins the prefetch when there is nothing more important to fetch, and reports its progress. Call it ten times a second.
void kin_join_prefetch_tick(kin_join *j);
