// Metrics of a device's work: counters for STATUS, and a trace for a timeline.
//
// The computing thread records; a few times a second the counters are published, and the loop's thread makes messages of them.
//
// Owner: cluster/join.c. Thread: as each part says.
#pragma once

#include "net/message_buffer.h"
#include "observe/trace.h"
#include "pipeline/engine_instance.h"

typedef struct kin_metrics kin_metrics;

int kin_metrics_open(kin_metrics **out, kin_err *err);
void kin_metrics_close(kin_metrics *metrics); // NULL is allowed

kin_trace *kin_metrics_trace(kin_metrics *metrics); // off at first

// ---- the computing thread

// It waits from `begun` on.
void kin_metrics_waits(kin_metrics *metrics, kin_time begun);
// It waited from `begun` until now; buffer: what came, NULL: nothing.
void kin_metrics_waited(kin_metrics *metrics, kin_time begun, const kin_message_buffer *buffer);

// It computes what the buffer wants, and has done so.
void kin_metrics_begin(kin_metrics *metrics, const kin_message_buffer *buffer, const kin_engine_instance *instance);
void kin_metrics_end(kin_metrics *metrics, kin_engine_instance *instance);

// Another instance from now on: what a token took on the one before counts no more.
void kin_metrics_take_instance(kin_metrics *metrics);

// After each message. instance: NULL: none.
void kin_metrics_publish(kin_metrics *metrics, kin_engine_instance *instance, bool has_computed);

// ---- any thread

// All of it that is counted here: not what the network and the membership know. is_computing: a step is here, or was a moment
// ago.
kin_proto_status kin_metrics_status(kin_metrics *metrics, bool *is_computing);
