// A meter: measures the links that a head asks about (message MEASURE), one after the other, and has the answers.
//
// Each request gets one answer (message MEASURED): the figures, or why there are none. A member that is busy with others is asked
// again a little later, for some seconds.
//
// Owner: ring/join.c. Thread: the loop's, for every function and callback. After kin_meter_close the loop must run once more.
#pragma once

#include <uv.h>

#include "pure/proto/message.h"
#include "sys/tls.h"

typedef struct kin_meter kin_meter;

typedef struct kin_meter_options {
    kin_tls_ctx *tls;    // borrowed
    kin_proto_open self; // what OPEN says, but for the role
} kin_meter_options;

// The answer; the meter may be asked or cleared inside, not closed.
typedef void (*kin_meter_measured)(void *user, const kin_proto_measured *measured);

int kin_meter_open(kin_meter **out, uv_loop_t *loop, const kin_meter_options *options, kin_meter_measured measured, void *user,
                   kin_err *err);
void kin_meter_close(kin_meter *meter); // NULL is allowed

// `request` has addresses. More than KIN_PROTO_MAX_MEASURES that wait are answered at once.
void kin_meter_ask(kin_meter *meter, const kin_proto_measure *request);

// Nobody wants the answers any more. NULL is allowed.
void kin_meter_clear(kin_meter *meter);
