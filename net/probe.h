// A probe: measures the path to one other member as the ring's messages take it: TCP and TLS, and the other side's loop.
//
//   connect, OPEN (role probe), ACCEPT ─► messages as pure/proto/probing.h has them, 10 ms before each round trip
//
// A few megabytes in all, and on a long way up to 20.
//
// In homes of lab/run: 1 Gbit/s at a round trip of 1 ms is measured as 0.80 to 0.86, in 0.12 s; 100 Mbit/s as 89 to 92, in 0.3
// s. At 20 ms 1 Gbit/s as 0.70 to 0.79, 50 Mbit/s as 48, 5 Mbit/s as 5; 1 Gbit/s at 12 ms as 0.92 to 0.95, at 50 ms as 0.31.
//
// Owner: who started it. Thread: the loop's, for every function and callback. After the end the loop must run once more before
// it is closed.
#pragma once

#include <uv.h>

#include "net/link.h"
#include "pure/proto/message.h"
#include "pure/proto/probing.h"

enum {
    KIN_PROBE_LIMIT_MS = 3000,
    KIN_PROBE_CONNECT_MS = 1500, // of that for connecting, at all addresses together
};

typedef struct kin_probe kin_probe;

typedef struct kin_probe_options {
    kin_tls_ctx *tls;        // borrowed
    kin_proto_open self;     // id, name, version and features, for OPEN
    kin_proto_endpoint to;   // with at least one address; they are tried in turn
    const kin_proto_id *who; // that must answer there; borrowed for the call. NULL: anybody
    uint32_t hidden_bytes;   // of a hidden state, at least 1
    uint32_t limit_ms;       // 0: KIN_PROBE_LIMIT_MS
} kin_probe_options;

typedef kin_probing_result kin_probe_result;

// Called once, unless it was cancelled; then the probe is gone. result NULL: it did not succeed, and why.
typedef void (*kin_probe_done)(void *user, const kin_probe_result *result, const char *reason);

// Fails only on what is wrong here; `done` is never called inside.
int kin_probe_start(kin_probe **out, uv_loop_t *loop, const kin_probe_options *options, kin_probe_done done, void *user,
                    kin_err *err);
void kin_probe_cancel(kin_probe *probe); // NULL is allowed
