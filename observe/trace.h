// A trace: what this machine did when, for a timeline: computing, waiting, reading from the disk, sending.
//
// Several threads add, one takes. Bounded: what finds it full is dropped. While it is off nothing is kept, and adding costs
// nothing.
//
// Owner: a driver (cluster/join.c, or a timeline for the head's own). Thread: any for all but open and close. NULL is allowed
// everywhere: a recorder that is always off.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"
#include "engine/busy.h"
#include "pure/proto/message.h"

enum { KIN_TRACE_MAX = 4096 };

typedef struct kin_trace kin_trace;

int kin_trace_open(kin_trace **out, kin_err *err); // off
void kin_trace_close(kin_trace *trace);

// Turned off or on, it forgets what it has.
void kin_trace_turn(kin_trace *trace, bool on);
bool kin_trace_is_on(const kin_trace *trace);

void kin_trace_add(kin_trace *trace, kin_proto_event_kind kind, uint64_t step, int round, kin_time begin, kin_time end);

// Computing, but for the pauses in it, in order: those are waiting, for the disk.
void kin_trace_add_compute(kin_trace *trace, uint64_t step, int round, kin_time begin, kin_time end, const kin_interval *pauses,
                           size_t n_pauses);

// Of the disk.
void kin_trace_add_disk(kin_trace *trace, const kin_interval *intervals, size_t n);

// The oldest ones // [n_max]; returns how many.
int kin_trace_take(kin_trace *trace, kin_proto_event *out, int n_max);
