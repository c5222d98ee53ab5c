// Metrics of a device's work: counters for STATUS, and a trace for a timeline.
//
// The computing thread records; the counters are published a few times a second, and the loop's thread builds messages from them.
//
// Owner: cluster/join.c. Thread: see each part.
#pragma once

#include "net/message_buffer.h"
#include "observe/trace.h"
#include "pipeline/engine_instance.h"

typedef struct kin_metrics kin_metrics;

int kin_metrics_open(kin_metrics **out, kin_err *err);
void kin_metrics_close(kin_metrics *metrics); // NULL is allowed

kin_trace *kin_metrics_trace(kin_metrics *metrics); // off at first

// ---- the computing thread

// The thread waits since `begun`.
void kin_metrics_waits(kin_metrics *metrics, kin_time begun);
// The thread waited from `begun` until now; buffer: what came, NULL: nothing.
void kin_metrics_waited(kin_metrics *metrics, kin_time begun, const kin_message_buffer *buffer);

// Call these before and after computing a buffer.
void kin_metrics_begin(kin_metrics *metrics, const kin_message_buffer *buffer, const kin_engine_instance *instance);
void kin_metrics_end(kin_metrics *metrics, kin_engine_instance *instance);

// Another instance from now on: resets the step timing.
void kin_metrics_reset_instance(kin_metrics *metrics);

// Call it after each message. instance NULL: none.
void kin_metrics_publish(kin_metrics *metrics, kin_engine_instance *instance, bool has_computed);

// ---- any thread

// Returns the fields of the status that are counted here, not those of the network and the membership. is_computing: a step is
// here, or was a moment ago.
kin_proto_status kin_metrics_status(kin_metrics *metrics, bool *is_computing);
