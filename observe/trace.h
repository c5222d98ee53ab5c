// A trace: this machine's activity over time, for a timeline: computing, waiting, reading from the disk, sending.
//
// Several threads add events, one takes them. It is bounded: when it is full, events are dropped. While it is off nothing is
// stored, and adding costs nothing.
//
// Owner: a driver (cluster/join.c, or a timeline for the head's own). Thread: any, except for open and close. NULL is allowed
// everywhere: a trace that is always off.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"
#include "engine/busy.h"
#include "pure/proto/message.h"

enum { KIN_TRACE_MAX = 4096 };

typedef struct kin_trace kin_trace;

int kin_trace_open(kin_trace **out, kin_err *err); // off at first
void kin_trace_close(kin_trace *trace);

// Turns it on or off; a change discards its events.
void kin_trace_turn(kin_trace *trace, bool on);
bool kin_trace_is_on(const kin_trace *trace);

void kin_trace_add(kin_trace *trace, kin_proto_event_kind kind, uint64_t step, int round, kin_time begin, kin_time end);

// Adds computing, except for the pauses in it, in order: these become waiting, for the disk.
void kin_trace_add_compute(kin_trace *trace, uint64_t step, int round, kin_time begin, kin_time end, const kin_interval *pauses,
                           size_t n_pauses);

// Adds disk reads.
void kin_trace_add_disk(kin_trace *trace, const kin_interval *intervals, size_t n);

// Takes the oldest events // [n_max]; returns their number.
int kin_trace_pop(kin_trace *trace, kin_proto_event *out, int n_max);
