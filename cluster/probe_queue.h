// A device's probe queue: measures the links that a head asks for (message MEASURE), one after the other.
//
// Each request gets one answer (message MEASURED): the figures, or the reason why they are missing. If the other member is busy
// it is tried again, for some seconds.
//
// Owner: cluster/join.c. Thread: the loop's, for every function and callback. After kin_probe_queue_close the loop must run once
// more.
#pragma once

#include <uv.h>

#include "pure/proto/message.h"
#include "sys/tls.h"

typedef struct kin_probe_queue kin_probe_queue;

typedef struct kin_probe_queue_options {
    kin_tls_ctx *tls;    // borrowed
    kin_proto_open self; // contents of OPEN, except the role
} kin_probe_queue_options;

// Called with an answer; may ask or clear the queue, but not close it.
typedef void (*kin_probe_queue_measured)(void *user, const kin_proto_measured *measured);

int kin_probe_queue_open(kin_probe_queue **out, uv_loop_t *loop, const kin_probe_queue_options *options,
                         kin_probe_queue_measured measured, void *user, kin_err *err);
void kin_probe_queue_close(kin_probe_queue *probes); // NULL is allowed

// `request` has addresses. If KIN_PROTO_MAX_MEASURES are pending, it fails at once.
void kin_probe_queue_ask(kin_probe_queue *probes, const kin_proto_measure *request);

// Drops all requests; they get no answers. NULL is allowed.
void kin_probe_queue_clear(kin_probe_queue *probes);
